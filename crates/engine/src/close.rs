//! Closing a group with the guarantee that every message is complete at every member.
//!
//! "If the group close operation is successful, the sender (and all receivers) can be confident
//! that every RDMC message reached every destination" (DSN 2018 section 4.6). Along the tree in
//! which messages are announced, the root sends how many messages there were ([`Word::Closing`]).
//! A member sends [`Word::Delivered`] to its parent once it has completed them and all its children
//! have sent it; then the root sends [`Word::Confirmed`]. Cost: three words on each of the tree's
//! n-1 edges, 3 log n delays for the binomial pipeline.

use std::collections::BTreeSet;

use relay::RelayError;
use schedule::Schedule;

use crate::words::Word;

/// The progress of closing at one member.
#[derive(Debug)]
pub(crate) struct Closing {
    parent: Option<u32>,
    children: Vec<u32>,
    asked: bool,
    /// The total number of messages, once known.
    messages: Option<u64>,
    passed_on: bool,
    /// Children that have not sent [`Word::Delivered`].
    undelivered: BTreeSet<u32>,
    delivered: bool,
    confirmed: bool,
}

impl Closing {
    pub(crate) fn new(schedule: &Schedule, rank: u32) -> Self {
        Self {
            parent: schedule.announcer(rank),
            undelivered: schedule.announces_to(rank).collect(),
            children: schedule.announces_to(rank).collect(),
            asked: false,
            messages: None,
            passed_on: false,
            delivered: false,
            confirmed: false,
        }
    }

    /// Notes that the application closes the group. Returns `false` if it has done so before.
    pub(crate) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// Returns whether all messages are complete at all members.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Returns whether the number of messages is final.
    pub(crate) fn is_under_way(&self) -> bool {
        self.messages.is_some()
    }

    /// Returns whether the group can still close with success without this neighbour: once all
    /// messages are complete here and in the subtree, only the parent's last word is missing.
    pub(crate) fn can_do_without(&self, rank: u32) -> bool {
        self.delivered && (self.confirmed || self.parent != Some(rank))
    }

    pub(crate) fn on_control(&mut self, rank: u32, word: &Word) -> Result<(), RelayError> {
        let from_parent = self.parent == Some(rank);
        match word {
            Word::Closing { messages } if from_parent && self.messages.is_none() => {
                self.messages = Some(*messages);
            }
            Word::Delivered if self.messages.is_some() && self.undelivered.remove(&rank) => {}
            Word::Confirmed if from_parent && self.delivered => self.confirmed = true,
            _ => return Err(word.out_of_turn(rank)),
        }
        Ok(())
    }

    /// Returns the neighbour that has to act before closing can continue, if the group is closing.
    pub(crate) fn waited_for(&self, completed: u64) -> Option<u32> {
        match self.messages {
            // The root has counted a message that has not been announced here yet.
            Some(messages) if completed < messages => self.parent,
            Some(_) => self.undelivered.first().copied().or(self.parent),
            None => None,
        }
    }

    /// Returns the words to be written now, in order, with their receivers; empty if closing has to
    /// wait.
    pub(crate) fn next_words(&mut self, known: u64, completed: u64) -> Vec<(u32, Word)> {
        if self.parent.is_none() && self.asked && self.messages.is_none() {
            self.messages = Some(known);
        }
        let Some(messages) = self.messages else { return Vec::new() };
        let mut words = Vec::new();
        if !std::mem::replace(&mut self.passed_on, true) {
            words.extend(self.children.iter().map(|&child| (child, Word::Closing { messages })));
        }
        if !self.delivered && completed == messages && self.undelivered.is_empty() {
            self.delivered = true;
            match self.parent {
                Some(parent) => words.push((parent, Word::Delivered)),
                None => self.confirmed = true,
            }
        }
        if self.confirmed {
            words.extend(self.children.iter().map(|&child| (child, Word::Confirmed)));
        }
        words
    }
}
