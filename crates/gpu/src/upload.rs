//! The copies of one message to a device.

use std::{collections::VecDeque, fmt, ops::Range, time::Duration};

use rdmc::{ReadLease, Region};
use session::Deadline;

use crate::{DeviceMemory, Error, Event, Stream, Transfer, transfer::DROP_TIMEOUT};

/// Copies longer than this are made in parts, which several streams share.
const PART_BYTES: u64 = 16 << 20;
/// How many copies have one event.
const COPIES_PER_EVENT: usize = 16;
/// How many events are pending at most. Beyond that the blocks that arrive wait, and become longer copies.
const EVENTS_MAX: usize = 16;

/// A message on its way from host memory to a device. The host memory is kept, and cannot be written, until the copies are done.
/// Dropping the value waits for them, as for [`Transfer`].
#[must_use = "dropping it waits for the copies"]
pub struct Upload {
    memory: DeviceMemory,
    /// Of copies, in turns.
    streams: Vec<Stream>,
    /// How many lists of copies were begun.
    begun: usize,
    open: Option<Transfer<Vec<ReadLease>>>,
    /// Lists of copies whose end is recorded, oldest first.
    pending: VecDeque<Transfer<Vec<ReadLease>>>,
}

impl Upload {
    /// No copy yet; those to come wait for what `after` has to do.
    ///
    /// Errors: [`Error::Cuda`].
    pub(crate) fn begin(
        memory: &DeviceMemory,
        streams: &[Stream],
        after: &Stream,
    ) -> Result<Self, Error> {
        let event = Event::record(after)?;
        for stream in streams {
            event.hold(stream)?;
        }
        let (memory, streams) = (memory.clone(), streams.to_vec());
        Ok(Self { memory, streams, begun: 0, open: None, pending: VecDeque::new() })
    }

    /// Queues copies of a range of the region to the same range of the memory. Waits if too many are pending.
    ///
    /// Errors: [`Error::Call`] and [`Error::Lease`] (out of range, being written, in a file), [`Error::Cuda`],
    /// [`Error::Timeout`].
    pub(crate) fn add(
        &mut self,
        region: &Region,
        range: Range<u64>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(PART_BYTES));
            let lease = region.read(start as usize..end as usize)?;
            let part = self.memory.slice(start..end)?;
            let open = match &mut self.open {
                Some(open) => open,
                None => {
                    let stream = &self.streams[self.begun % self.streams.len()];
                    self.begun += 1;
                    self.open.insert(Transfer::several(stream, &self.memory)?)
                }
            };
            open.add(lease, &part)?;
            if open.copies() == COPIES_PER_EVENT || end - start == PART_BYTES {
                self.record()?;
                self.make_room(deadline)?;
            }
            start = end;
        }
        Ok(())
    }

    /// Records the end of the copies since the last event.
    fn record(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.close()?;
        self.pending.extend(self.open.take());
        Ok(())
    }

    fn make_room(&mut self, deadline: Deadline) -> Result<(), Error> {
        while let Some(first) = self.pending.front() {
            if self.pending.len() > EVENTS_MAX {
                first.wait(deadline.left())?;
            } else if !first.is_done()? {
                break;
            }
            self.pending.pop_front();
        }
        Ok(())
    }

    /// Makes a stream wait for all copies. Does not block.
    pub(crate) fn finish(&mut self, before: &Stream) -> Result<(), Error> {
        self.record()?;
        self.pending.iter().try_for_each(|transfer| transfer.hold(before))
    }

    /// Returns whether all copies are done; the host memory may then be written, and posted again.
    ///
    /// Errors: [`Error::Cuda`].
    pub fn is_done(&mut self) -> Result<bool, Error> {
        while let Some(first) = self.pending.front() {
            if !first.is_done()? {
                return Ok(false);
            }
            self.pending.pop_front();
        }
        Ok(true)
    }

    /// Waits until all copies are done; the host memory may then be written, and posted again.
    ///
    /// Errors: [`Error::Cuda`], [`Error::Timeout`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        while let Some(first) = self.pending.front() {
            first.wait(deadline.left())?;
            self.pending.pop_front();
        }
        Ok(())
    }
}

impl Drop for Upload {
    /// Waits once for all copies, and not for each of them.
    fn drop(&mut self) {
        if self.record().is_err() || self.wait(DROP_TIMEOUT).is_err() {
            self.pending.drain(..).chain(self.open.take()).for_each(Transfer::abandon);
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({:?}, {} events pending)", self.memory, self.pending.len())
    }
}
