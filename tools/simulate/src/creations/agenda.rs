//! What happens, in the order of time.

use std::{cmp::Reverse, collections::BinaryHeap};

use rdmc::creation::{choice::RootChoice, messages::Message};

use super::links::End;
use crate::dice::Dice;

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

/// What is answered on a connection of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Link(u64),
    Choice(RootChoice),
}

/// All that will happen.
#[derive(Default)]
pub(super) struct Agenda {
    /// The time, the order within an instant, and the index of the event.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
}

impl Agenda {
    pub(super) fn plan(&mut self, dice: &mut Dice, at_ns: u64, event: Event) {
        // Nothing may depend on the order within one instant, so it is random.
        let order = dice.below(u64::MAX);
        self.heap.push(Reverse((at_ns, order, self.events.len())));
        self.events.push(Some(event));
    }

    /// Takes the next event, with its time.
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at_ns, _, index)) = self.heap.pop()?;
        Some((at_ns, self.events[index].take()?))
    }

    /// Returns whether a context will be woken by then.
    pub(super) fn wakes(&self, of: (usize, u32), by_ns: u64) -> bool {
        self.heap.iter().any(|&Reverse((at_ns, _, index))| {
            let wakes = matches!(self.events[index], Some(Event::Wake { context, life }) if (context, life) == of);
            wakes && at_ns <= by_ns
        })
    }
}
