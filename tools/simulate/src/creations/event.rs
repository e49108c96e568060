//! What happens in a run.

use rdmc::creation::{choice::RootChoice, messages::Message};

use super::links::End;

/// What happens at a time. A context's `life` tells it from those before and after it.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Start { context: usize },
    Die { context: usize },
    Lose,
    Begin { group: usize, rank: u32, life: u32 },
    Link { group: usize, context: usize, life: u32, choice: RootChoice },
    Wake { context: usize, life: u32 },
    Dial { context: usize, life: u32, dial: u64 },
    Connected { connection: usize, side: usize, dial: Option<u64> },
    Unusable { connection: usize, side: usize, dial: Option<u64> },
    Ended { connection: usize, side: usize },
    Deliver { connection: usize, side: usize, message: Message },
    Placed { context: usize, life: u32, ask: u64, link: u64 },
    Answered { context: usize, life: u32, dial: u64, answer: Result<Answer, String> },
    Closed(End),
}

impl Event {
    /// Returns whether it wakes this context.
    pub(super) fn wakes(&self, context: usize, life: u32) -> bool {
        matches!(self, Self::Wake { context: of, life: its } if (*of, *its) == (context, life))
    }
}

/// What is answered on a connection of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Link(u64),
    Choice(RootChoice),
}
