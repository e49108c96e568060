//! Sends that were not posted: to each target in order, some until their blocks are in memory.

use std::collections::{BTreeMap, VecDeque};

use relay::SendId;
use transport::{ArrivingRead, LeaseError, ReadLease};

use crate::{file_blocks::FileBlocks, job_list::Place};

/// The sends of one member, by target.
#[derive(Default)]
pub(crate) struct Outbox {
    by_target: BTreeMap<u32, VecDeque<Waiting>>,
    /// How many there are.
    count: usize,
}

/// A send that has not been posted.
struct Waiting {
    id: SendId,
    block: u32,
    from: From,
}

/// Where the bytes of a send are.
pub(crate) enum From {
    Ready(Contents),
    /// A block of a file, of this length.
    Block(Place, u64),
}

/// The bytes of a send that can be posted.
pub(crate) enum Contents {
    Whole(ReadLease),
    Arriving(ArrivingRead),
}

impl Outbox {
    /// Queues a send behind those to the same target.
    pub(crate) fn queue(&mut self, target: u32, id: SendId, block: u32, from: From) {
        self.count += 1;
        self.by_target.entry(target).or_default().push_back(Waiting { id, block, from });
    }

    /// Returns the next send to `target`, if its bytes are in memory.
    pub(crate) fn take_ready(
        &mut self,
        target: u32,
        blocks: &mut FileBlocks,
    ) -> Option<Result<(SendId, u32, Contents), LeaseError>> {
        let waiting = self.by_target.get_mut(&target)?;
        if let From::Block(place, _) = waiting.front()?.from
            && !blocks.is_loaded(place)
        {
            return None;
        }
        let Waiting { id, block, from } = waiting.pop_front()?;
        self.count -= 1;
        let contents = match from {
            From::Ready(contents) => Ok(contents),
            From::Block(place, bytes) => blocks.take(place, bytes)?.map(Contents::Whole),
        };
        Some(contents.map(|contents| (id, block, contents)))
    }

    /// Returns whether sends wait for their blocks to be read.
    pub(crate) fn is_waiting(&self) -> bool {
        self.count > 0
    }

    pub(crate) fn targets(&self) -> Vec<u32> {
        self.by_target.keys().copied().collect()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
