//! A control connection between the root and a receiver: its messages and its end.

use std::collections::VecDeque;

use files::machines::{ToReceiver, ToRoot};

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Way {
    ToRoot,
    ToReceiver,
}

impl Way {
    pub(super) const BOTH: [Self; 2] = [Self::ToRoot, Self::ToReceiver];
}

/// A message, or the end of a direction.
#[derive(Clone, Debug)]
pub(super) enum Word {
    ToRoot(ToRoot),
    ToReceiver(ToReceiver),
    /// The end of this direction, with the reason.
    End(&'static str),
}

/// One direction of a line, with the messages in transit, in order.
#[derive(Default)]
pub(super) struct Pipe {
    /// When each was sent, when it arrives, and its contents.
    pub(super) words: VecDeque<(u64, u64, Word)>,
    pub(super) last_at_ns: u64,
    /// Whether nothing is sent or read any more.
    pub(super) is_shut: bool,
    /// Since when nothing was delivered, heartbeats included.
    pub(super) silent_since_ns: Option<u64>,
}

/// A control connection.
pub(super) struct Line {
    /// The processes at both ends.
    pub(super) root: usize,
    pub(super) receiver: usize,
    /// Index of the host in the scenario.
    pub(super) host: usize,
    /// The root's number of the host, once it is admitted.
    pub(super) seat: Option<usize>,
    pipes: [Pipe; 2],
}

impl Line {
    pub(super) fn new(root: usize, receiver: usize, host: usize) -> Self {
        Self { root, receiver, host, seat: None, pipes: Default::default() }
    }

    pub(super) fn pipe(&mut self, way: Way) -> &mut Pipe {
        &mut self.pipes[way as usize]
    }

    pub(super) fn reader(&self, way: Way) -> usize {
        match way {
            Way::ToRoot => self.root,
            Way::ToReceiver => self.receiver,
        }
    }

    pub(super) fn writer(&self, way: Way) -> usize {
        match way {
            Way::ToRoot => self.receiver,
            Way::ToReceiver => self.root,
        }
    }

    /// Returns whether the direction is closed, or its end is in transit.
    pub(super) fn has_ended(&self) -> bool {
        let ends = |pipe: &Pipe| matches!(pipe.words.back(), Some((.., Word::End(_))));
        self.pipes.iter().all(|pipe| pipe.is_shut || ends(pipe))
    }
}
