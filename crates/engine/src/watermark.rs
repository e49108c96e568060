//! How many messages are in place at every member, as far as this member can prove.
//!
//! Counts are sent along the announcement tree (docs/decisions/closing.md): in [`Word::Grant`] up
//! and [`Word::Announce`] down while the group runs, in [`Word::Counted`] up and [`Word::Settled`]
//! down once after a failure. A message counts at a receiver when it is reported by
//! [`crate::Event::Received`], and at the root when it is sent.

use std::collections::{BTreeMap, BTreeSet};

use relay::RelayError;
use schedule::Schedule;

use crate::words::Word;

/// Counts never decrease, and each was true when it was reported: so their minimum is true as well.
#[derive(Debug)]
pub(crate) struct Watermark {
    parent: Option<u32>,
    /// How many messages are in place in each child's subtree, by its last report.
    subtrees: BTreeMap<u32, u64>,
    /// How many are in place at every member.
    everywhere: u64,
    count: Option<Count>,
}

/// The count after a failure.
#[derive(Debug)]
struct Count {
    /// How many messages are in place here; final.
    own: u64,
    /// Children that have not sent [`Word::Counted`], and are not lost.
    awaited: BTreeSet<u32>,
    /// Connected children to which [`Word::Settled`] was not written.
    uninformed: BTreeSet<u32>,
    is_reported: bool,
    is_settled: bool,
}

impl Watermark {
    pub(crate) fn new(schedule: &Schedule, rank: u32) -> Self {
        Self {
            parent: schedule.announcer(rank),
            subtrees: schedule.announces_to(rank).map(|child| (child, 0)).collect(),
            everywhere: 0,
            count: None,
        }
    }

    /// Returns how many messages are in place here, where `own` are, and at all members of the
    /// subtree.
    pub(crate) fn subtree(&self, own: u64) -> u64 {
        self.subtrees.values().copied().fold(own, u64::min)
    }

    /// Returns how many are in place at every member. `own`: here.
    pub(crate) fn everywhere(&self, own: u64) -> u64 {
        match self.parent {
            Some(_) => self.everywhere,
            None => self.everywhere.max(self.subtree(own)),
        }
    }

    /// Notes how many messages `rank` and all members of its subtree have, if it is a child.
    pub(crate) fn note_subtree(&mut self, rank: u32, received: u64) {
        if let Some(known) = self.subtrees.get_mut(&rank) {
            *known = received.max(*known);
        }
    }

    /// Notes how many messages are in place at every member. `own`: here.
    pub(crate) fn note_everywhere(&mut self, delivered: u64, own: u64) {
        self.everywhere = self.everywhere.max(delivered.min(own));
    }

    /// Starts the count after a failure; `own` messages are in place here. Neighbours that are not
    /// connected do not reply.
    pub(crate) fn start_count(&mut self, own: u64, is_connected: impl Fn(u32) -> bool) {
        let connected = self.subtrees.keys().copied().filter(|&child| is_connected(child));
        let awaited: BTreeSet<u32> = connected.collect();
        let uninformed = awaited.clone();
        let is_settled = self.parent.is_some_and(|parent| !is_connected(parent));
        self.count = Some(Count { own, awaited, uninformed, is_reported: false, is_settled });
    }

    /// Processes a neighbour's word. Errors: the word is out of turn.
    pub(crate) fn on_count(&mut self, rank: u32, word: &Word) -> Result<(), RelayError> {
        let count = self.count.as_mut().ok_or_else(|| word.out_of_turn(rank))?;
        let own = count.own;
        match word {
            Word::Counted { received } if count.awaited.contains(&rank) => {
                count.awaited.remove(&rank);
                self.note_subtree(rank, *received);
                Ok(())
            }
            Word::Settled { delivered } if self.parent == Some(rank) => {
                count.is_settled = true;
                self.note_everywhere(*delivered, own);
                Ok(())
            }
            _ => Err(word.out_of_turn(rank)),
        }
    }

    /// Notes that the connection to this neighbour has ended: it does not reply.
    pub(crate) fn on_lost(&mut self, rank: u32) {
        if let Some(count) = &mut self.count {
            count.awaited.remove(&rank);
            count.uninformed.remove(&rank);
            count.is_settled |= self.parent == Some(rank);
        }
    }

    /// Ends the wait for counts after the deadline.
    pub(crate) fn stop_count(&mut self) {
        if let Some(count) = &mut self.count {
            count.is_settled = true;
        }
    }

    /// Takes the next word to write, with its receiver.
    pub(crate) fn next_word(&mut self) -> Option<(u32, Word)> {
        let count = self.count.as_mut()?;
        let (own, is_whole) = (count.own, count.awaited.is_empty());
        count.is_settled |= is_whole && self.parent.is_none();
        if count.is_settled {
            let child = count.uninformed.pop_first()?;
            return Some((child, Word::Settled { delivered: self.everywhere(own) }));
        }
        let parent = self.parent?;
        let is_due = is_whole && !std::mem::replace(&mut count.is_reported, is_whole);
        is_due.then(|| (parent, Word::Counted { received: self.subtree(own) }))
    }

    /// Returns whether the group has failed and the count continues.
    pub(crate) fn is_counting(&self) -> bool {
        self.count.as_ref().is_some_and(|count| !count.is_settled)
    }
}

#[cfg(test)]
mod tests {
    use schedule::Algorithm;

    use super::*;

    /// Returns the watermark of a member of a chain of four.
    fn chain(rank: u32) -> Watermark {
        Watermark::new(&Schedule::new(Algorithm::Chain, 4, 0).unwrap(), rank)
    }

    fn count(watermark: &mut Watermark, own: u64) -> Vec<(u32, Word)> {
        watermark.start_count(own, |_| true);
        next_words(watermark)
    }

    fn next_words(watermark: &mut Watermark) -> Vec<(u32, Word)> {
        std::iter::from_fn(|| watermark.next_word()).collect()
    }

    #[test]
    fn all_report_the_smallest_count() {
        let own = [9, 5, 7, 6];
        let mut members: Vec<Watermark> = (0..4).map(chain).collect();
        let mut words: Vec<(u32, u32, Word)> = Vec::new();
        for (rank, member) in members.iter_mut().enumerate() {
            let made = count(member, own[rank]).into_iter();
            words.extend(made.map(|(to, word)| (rank as u32, to, word)));
        }
        let mut written = 0;
        while let Some((from, to, word)) = words.pop() {
            written += 1;
            let member = &mut members[to as usize];
            member.on_count(from, &word).unwrap();
            words.extend(next_words(member).into_iter().map(|(next, word)| (to, next, word)));
        }
        assert_eq!(written, 6, "two words on each edge");
        for (member, own) in members.iter().zip(own) {
            assert!(!member.is_counting());
            assert_eq!(member.everywhere(own), 5);
        }
    }

    #[test]
    fn a_lost_child_counts_with_its_last_report() {
        let mut root = chain(0);
        root.note_subtree(1, 3);
        root.note_subtree(1, 2);
        root.note_subtree(2, 1);
        assert_eq!(root.everywhere(8), 3, "counts grow, and only children's matter");
        assert_eq!(count(&mut root, 8), []);
        root.on_lost(1);
        assert_eq!(next_words(&mut root), [], "no child is connected");
        assert_eq!(root.everywhere(8), 3);
        assert!(!root.is_counting());
    }

    #[test]
    fn a_member_without_its_parent_reports_what_was_announced() {
        for is_known_at_once in [true, false] {
            let mut member = chain(1);
            member.note_everywhere(4, 6);
            member.note_everywhere(9, 6);
            member.note_subtree(2, 8);
            member.start_count(6, |rank| !is_known_at_once || rank != 0);
            if !is_known_at_once {
                assert_eq!(next_words(&mut member), []);
                member.on_lost(0);
            }
            assert_eq!(next_words(&mut member), [(2, Word::Settled { delivered: 6 })]);
            assert_eq!(member.everywhere(6), 6, "no more than is here");
        }
    }

    #[test]
    fn at_the_deadline_what_is_known_counts() {
        let mut member = chain(2);
        member.note_everywhere(2, 6);
        assert_eq!(count(&mut member, 6), []);
        member.stop_count();
        assert_eq!(next_words(&mut member), [(3, Word::Settled { delivered: 2 })]);
        assert!(!member.is_counting());
    }

    #[test]
    fn words_out_of_turn_are_refused() {
        let (counted, settled) = (Word::Counted { received: 1 }, Word::Settled { delivered: 1 });
        let mut member = chain(1);
        assert!(member.on_count(2, &counted).is_err(), "nothing has failed");
        count(&mut member, 6);
        assert!(member.on_count(0, &counted).is_err(), "the parent");
        assert!(member.on_count(2, &settled).is_err(), "a child");
        assert_eq!(member.on_count(2, &counted), Ok(()));
        assert!(member.on_count(2, &counted).is_err(), "twice");
        assert_eq!(next_words(&mut member), [(0, Word::Counted { received: 1 })]);
        assert_eq!(next_words(&mut member), [], "once");
    }
}
