//! Offload: messages in files, whole in memory, since the network needs all of a message at once.

use std::collections::{BTreeMap, VecDeque};

use transport::{LeaseError, Region};

use crate::{
    job_list::{Request, Then},
    jobs::{What, Work},
};

/// The messages of one member that are whole in memory.
#[derive(Default)]
pub(crate) struct Shadows {
    /// By number.
    memory: BTreeMap<u64, Region>,
    /// At the root: messages that are being read, or wait for earlier ones that are, in order.
    unsent: VecDeque<Unsent>,
}

struct Unsent {
    bytes: u64,
    is_read: bool,
    number: u64,
}

impl Shadows {
    /// Returns memory for the whole message.
    pub(crate) fn of(&mut self, number: u64, file: &Region) -> Region {
        let shadow = self.memory.entry(number);
        shadow.or_insert_with(|| Region::zeroed(file.len())).clone()
    }

    /// Returns whether messages wait to be read before they can be relayed.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Queues a message, which is relayed after those before it, once it is read if it is in a file.
    /// Returns the job that reads it. Errors: the file is being written.
    pub(crate) fn queue(
        &mut self,
        number: u64,
        region: &Region,
    ) -> Result<Option<Request>, LeaseError> {
        let (bytes, is_read) = (region.len() as u64, !region.is_stored());
        self.unsent.push_back(Unsent { bytes, is_read, number });
        if is_read {
            return Ok(None);
        }
        let from = region.read_stored(0..region.len())?;
        let shadow = self.of(number, region);
        let into = shadow.write(0..shadow.len())?;
        let (what, work) = (What::new("read", region, bytes), Work::Read { from, into });
        Ok(Some(Request { what, message: number, work, then: Then::Shadowed }))
    }

    /// Notes that a message was read. Returns the numbers and lengths of those that can be relayed now.
    pub(crate) fn read(&mut self, number: u64) -> Vec<(u64, u64)> {
        for unsent in &mut self.unsent {
            unsent.is_read |= unsent.number == number;
        }
        let count = self.unsent.iter().take_while(|next| next.is_read).count();
        self.unsent.drain(..count).map(|unsent| (unsent.number, unsent.bytes)).collect()
    }

    /// Drops a message that is complete.
    pub(crate) fn forget(&mut self, number: u64) {
        self.memory.remove(&number);
    }

    pub(crate) fn clear(&mut self) {
        self.memory.clear();
        self.unsent.clear();
    }
}
