//! A write each way, by a transport.

use std::time::Duration;

use transport::{Completion, EndpointId, PeerMemory, Region, Token};

use super::pair::{Counted, Pair, Wait};
use crate::outcome::Outcome;

/// Writes whose memory may be in use at the same time.
const SLOTS: u64 = 4;

/// The last byte of the write of an operation, which differs from that of others near it.
fn mark(operation: u64) -> u8 {
    (operation % 255) as u8 + 1
}

/// A write each way, of contents of 4 bytes and a header.
pub struct Writes<T> {
    wait: Wait,
    transport: T,
    endpoint: EndpointId,
    region: Region,
    /// What the other member writes.
    memory: PeerMemory,
    /// The other member's transport reports writes; otherwise their last byte is polled.
    are_reported: bool,
    operations: u64,
    completions: Vec<Completion>,
}

impl<T: Counted> Writes<T> {
    const BYTES: usize = 4 + collective::HEADER_BYTES;

    pub fn new(mut transport: T, link: T::Link, are_reported: bool, wait: Wait) -> Outcome<Self> {
        let endpoint = transport.open(link)?;
        let memory = PeerMemory::zeroed(Self::BYTES);
        let writes = transport.one_sided().ok_or("this network has no writes")?;
        writes.expose(endpoint, 0, memory.clone())?;
        transport.write_control(endpoint, &[1])?;
        let (region, completions) = (Region::zeroed(SLOTS as usize * Self::BYTES), Vec::new());
        let operations = 0;
        let mut pair = Self {
            wait,
            transport,
            endpoint,
            region,
            memory,
            are_reported,
            operations,
            completions,
        };
        pair.wait_for(|it| matches!(it, Completion::Control { .. }))?;
        Ok(pair)
    }

    /// Looks for a completion, and forgets that sends have completed.
    fn find(&mut self, is_it: impl Fn(&Completion) -> bool) -> Outcome<bool> {
        let Self { transport, completions, .. } = self;
        transport.poll(completions, Duration::ZERO);
        let broken = completions.iter().find(|it| matches!(it, Completion::Broken { .. }));
        if let Some(broken) = broken {
            return Err(format!("{broken:?}").into());
        }
        completions.retain(|it| !matches!(it, Completion::Sent { .. }));
        let found = completions.iter().position(is_it);
        Ok(found.map(|index| completions.remove(index)).is_some())
    }

    fn wait_for(&mut self, is_it: impl Fn(&Completion) -> bool) -> Outcome<()> {
        self.wait.until(|| self.find(&is_it))
    }

    /// Looks at what the other member has written. It may be one operation ahead, and have overwritten this one's.
    fn has_written(&self) -> Outcome<bool> {
        let last = self.memory.load_byte(Self::BYTES - 1)?;
        Ok([self.operations, self.operations + 1].map(mark).contains(&last))
    }

    fn receive(&mut self) -> Outcome<()> {
        if self.are_reported {
            return self.wait_for(|it| matches!(it, Completion::Written { .. }));
        }
        self.wait.until(|| {
            self.find(|_| false)?;
            self.has_written()
        })
    }
}

impl<T: Counted> Pair for Writes<T> {
    fn operate(&mut self) -> Outcome<()> {
        self.operations += 1;
        let start = (self.operations % SLOTS) as usize * Self::BYTES;
        let place = start..start + Self::BYTES;
        // An earlier write may not have completed here although it has arrived there.
        self.wait.until(|| {
            let Ok(mut lease) = self.region.write(place.clone()) else {
                self.find(|_| false)?;
                return Ok(false);
            };
            lease[Self::BYTES - 1] = mark(self.operations);
            Ok(true)
        })?;
        let from = self.region.read(place)?;
        let writes = self.transport.one_sided().ok_or("this network has no writes")?;
        let immediate = self.are_reported.then_some(0);
        writes.post_write(self.endpoint, from, 0, 0, immediate, Token(0))?;
        self.transport.flush();
        self.receive()
    }

    fn progress(&mut self) {
        self.transport.poll(&mut self.completions, Duration::ZERO);
    }

    fn counts(self: Box<Self>) -> Vec<u64> {
        self.transport.counts()
    }
}
