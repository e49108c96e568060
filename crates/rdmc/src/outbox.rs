//! Events on their way to a group's callback thread.
//!
//! Adding an event never blocks, so a slow or stuck callback delays only its own group. The queue
//! is bounded all the same. Most events wait for the application's memory, so only a few of them
//! can be pending. Blocks of a message that has memory are merged while they are queued, where they
//! are adjacent: one range is kept for each gap in the message, and there are at most a few more
//! gaps than receives posted.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use crossbeam_channel::{Receiver, Sender, unbounded};

use engine::Event;
use rangemap::RangeSet;

use crate::{
    inbox::Given,
    outlet::{Due, Outlet},
};

/// The progress thread's end of the queue.
pub(crate) struct EventSender {
    queue: Sender<Queued>,
    blocks: SharedBlocks,
}

/// The callback thread's end of the queue.
pub(crate) struct EventReceiver {
    queue: Receiver<Queued>,
    blocks: SharedBlocks,
}

enum Queued {
    Event(Event),
    /// The ranges of this message that are queued when this entry is taken.
    Blocks {
        group: u64,
        message: u64,
    },
}

/// The ranges of each message that have arrived and were not taken. A message has an entry here
/// exactly while it has one in the queue.
type Blocks = BTreeMap<u64, RangeSet<u64>>;

#[derive(Clone, Default)]
struct SharedBlocks(Arc<Mutex<Blocks>>);

/// Makes an empty queue.
pub(crate) fn events() -> (EventSender, EventReceiver) {
    let (sender, receiver) = unbounded();
    let blocks = SharedBlocks::default();
    let sender = EventSender { queue: sender, blocks: blocks.clone() };
    (sender, EventReceiver { queue: receiver, blocks })
}

impl EventSender {
    /// Adds an event. It is dropped if the receiver no longer exists.
    fn send(&self, event: Event) {
        let queued = match event {
            Event::Block { group, message, offset, bytes } => {
                let mut blocks = self.blocks.lock();
                let is_queued = blocks.contains_key(&message);
                let ranges = blocks.entry(message).or_default();
                // The block of an empty message is an empty set.
                if bytes > 0 {
                    ranges.insert(offset..offset + bytes);
                }
                if is_queued {
                    return;
                }
                Queued::Blocks { group, message }
            }
            event => Queued::Event(event),
        };
        let _ = self.queue.send(queued);
    }
}

impl Outlet for EventSender {
    fn take(&mut self, event: Event, _: &mut Due) -> Given {
        self.send(event);
        Given::new()
    }
}

#[cfg(test)]
impl EventSender {
    /// Returns how many events and ranges of blocks are queued.
    fn kept(&self) -> usize {
        let ranges: usize = self.blocks.lock().values().map(RangeSet::len).sum();
        self.queue.len() + ranges
    }
}

impl EventReceiver {
    /// Takes events until the sender is dropped.
    pub(crate) fn for_each(self, mut take: impl FnMut(Event)) {
        for queued in self.queue {
            match queued {
                Queued::Event(event) => take(event),
                Queued::Blocks { group, message } => {
                    let ranges = self.blocks.lock().remove(&message).unwrap_or_default();
                    if ranges.is_empty() {
                        take(Event::Block { group, message, offset: 0, bytes: 0 });
                    }
                    for Range { start: offset, end } in ranges {
                        take(Event::Block { group, message, offset, bytes: end - offset });
                    }
                }
            }
        }
    }
}

impl SharedBlocks {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Schedule};

    const BLOCK_BYTES: u64 = 10;

    /// Returns the blocks of a message in the order in which a member receives them by the
    /// schedule.
    fn blocks(
        algorithm: Algorithm,
        members: u32,
        rank: u32,
        blocks: u32,
    ) -> impl Iterator<Item = u32> {
        let racks: Vec<u32> = (0..members).map(|rank| rank / 3).collect();
        let schedule = Schedule::with_racks(algorithm, &racks, 0).unwrap();
        let mut step = 0;
        std::iter::from_fn(move || {
            let transfer = schedule.next_receive(rank, step, blocks)?;
            step = transfer.step + 1;
            Some(transfer.block)
        })
    }

    fn send(events: &EventSender, block: u32) {
        let offset = u64::from(block) * BLOCK_BYTES;
        events.send(Event::Block { group: 1, message: 0, offset, bytes: BLOCK_BYTES });
    }

    fn taken(events: EventReceiver) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        events.for_each(|event| match event {
            Event::Block { offset, bytes, .. } => taken.push((offset, bytes)),
            other => panic!("{other:?}"),
        });
        taken
    }

    #[test]
    fn what_is_kept_for_a_stuck_callback_does_not_grow_with_the_message() {
        let cases = Algorithm::RELAYING.into_iter().flat_map(|algorithm| {
            [2, 3, 8, 11, 32, 61].map(|members| (algorithm, members, members - 1, 3_000))
        });
        let large = (Algorithm::BinomialPipeline, 16, 11, 1_000_000);
        for (algorithm, members, rank, count) in cases.chain([large]) {
            let (sender, receiver) = events();
            let mut kept = 0;
            for block in blocks(algorithm, members, rank, count) {
                send(&sender, block);
                kept = kept.max(sender.kept());
            }
            // Blocks arrive out of order by at most the height of the tree.
            let bound = 2 * members.ilog2() as usize + 4;
            assert!(kept <= bound, "{algorithm} for {members}: {kept} kept, bound {bound}");
            drop(sender);
            assert_eq!(taken(receiver), [(0, u64::from(count) * BLOCK_BYTES)]);
        }
    }

    #[test]
    fn blocks_that_arrive_in_any_order_within_the_window_leave_as_many_gaps_at_most() {
        const WINDOW: usize = 16;
        let (sender, receiver) = events();
        let mut order: Vec<u32> = (0..10_000).collect();
        order.chunks_mut(WINDOW).for_each(|chunk| chunk.rotate_left(WINDOW / 3));
        order.chunks_mut(WINDOW).for_each(|chunk| chunk.sort_by_key(|block| block % 5));
        let mut kept = 0;
        for block in order {
            send(&sender, block);
            kept = kept.max(sender.kept());
        }
        assert!(kept > 2 && kept <= WINDOW + 2, "{kept}");
        drop(sender);
        assert_eq!(taken(receiver), [(0, 100_000)]);
    }

    #[test]
    fn blocks_keep_their_place_among_other_events() {
        let (sender, receiver) = events();
        sender.send(Event::Incoming { group: 1, message: 0, bytes: 30, slot: None });
        send(&sender, 2);
        sender.send(Event::Incoming { group: 1, message: 1, bytes: 0, slot: None });
        sender.send(Event::Block { group: 1, message: 1, offset: 0, bytes: 0 });
        send(&sender, 0);
        sender.send(Event::Received { group: 1, message: 1 });
        send(&sender, 1);
        sender.send(Event::Received { group: 1, message: 0 });
        drop(sender);
        let mut told = Vec::new();
        receiver.for_each(|event| told.push(format!("{event:?}")));
        let expected = [
            "Incoming { group: 1, message: 0, bytes: 30, slot: None }",
            "Block { group: 1, message: 0, offset: 0, bytes: 30 }",
            "Incoming { group: 1, message: 1, bytes: 0, slot: None }",
            "Block { group: 1, message: 1, offset: 0, bytes: 0 }",
            "Received { group: 1, message: 1 }",
            "Received { group: 1, message: 0 }",
        ];
        assert_eq!(told, expected);
    }
}
