//! Operations of teams on the memory of a device.

use std::{mem, time::Duration};

use rdmc::{Op, Team, Type, WriteLease};
use session::Deadline;

use crate::{
    Device, DeviceMemory, Error, Event, Stream, Transfer,
    chunks::{check, check_elements, chunks},
    download, pinned,
    transfer::{DROP_TIMEOUT, upload_written},
};

/// The settings of [`TeamStaging`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TeamStagingSettings {
    /// Length in bytes of the chunks into which memory is divided; a multiple of 16. It must be the same at all members of a team,
    /// since it decides which operations they call.
    pub chunk_bytes: u64,
    /// The number of host buffers of `chunk_bytes` each, 2 to 64. With 3, one chunk is copied from the device while the previous
    /// one is in the network, and the one before that is copied to the device.
    pub buffers: u32,
}

impl Default for TeamStagingSettings {
    /// Chunks of 64 MiB, 3 buffers.
    fn default() -> Self {
        Self { chunk_bytes: 64 << 20, buffers: 3 }
    }
}

impl TeamStagingSettings {
    /// Sets [`TeamStagingSettings::chunk_bytes`].
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// Sets [`TeamStagingSettings::buffers`].
    #[must_use]
    pub fn buffers(mut self, buffers: u32) -> Self {
        self.buffers = buffers;
        self
    }
}

/// Calls a team's operations on device memory, in chunks, through a ring of pinned buffers.
///
/// Each chunk is one operation of the team. Members with device memory and with host memory can be mixed: those with host memory
/// use [`crate::broadcast_in_chunks`] and [`crate::all_reduce_in_chunks`] with the same length of chunks.
///
/// Each call takes a stream of the application: copies run after work queued on it before the call, and before work queued on it
/// afterwards. A call returns when this member's part in the network is done and its last copies are queued;
/// [`TeamStaging::settle`] waits for them. Dropping the value also waits, as for [`Transfer`].
///
/// # Failures
/// If the device fails or does not complete its work in time ([`Error::Cuda`], [`Error::Timeout`]), the team fails at all members,
/// with the text of the error. Other errors, found before the first operation, have no effect on the team: the other members wait
/// until their timeout, or for a correct call.
#[derive(Debug)]
pub struct TeamStaging {
    device: Device,
    settings: TeamStagingSettings,
    up: Stream,
    down: Stream,
    ring: Vec<Slot>,
}

/// A buffer of the ring.
#[derive(Debug)]
enum Slot {
    /// Not allocated, or lost in a failure.
    Empty,
    Free(WriteLease),
    Busy(Transfer<WriteLease>),
}

/// What an operation does with the memory of this member.
#[derive(Clone, Copy)]
struct Copies {
    down: bool,
    up: bool,
}

impl TeamStaging {
    /// Creates the streams. Buffers are allocated on first use.
    ///
    /// Errors: [`Error::Call`] if a setting is out of range; [`Error::Cuda`].
    pub fn new(device: &Device, settings: TeamStagingSettings) -> Result<Self, Error> {
        check(settings.chunk_bytes)?;
        let buffers = settings.buffers;
        if !(2..=64).contains(&buffers) {
            return Err(Error::Call(format!("{buffers} buffers: use 2 to 64")));
        }
        let (up, down) = (Stream::new(device)?, Stream::new(device)?);
        let ring = (0..buffers).map(|_| Slot::Empty).collect();
        Ok(Self { device: device.clone(), settings, up, down, ring })
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Replaces this memory at all members by the root's: [`Team::broadcast`]. The root copies a chunk from its device while the
    /// previous one is in the network; the others copy a chunk to their device while the next one arrives.
    ///
    /// Errors: [`Error::Call`] if the memory or the stream belongs to another device; [`Error::Cuda`], [`Error::Timeout`];
    /// [`Error::Rdmc`] as for [`Team::broadcast`].
    pub fn broadcast(
        &mut self,
        team: &Team,
        root: u32,
        memory: &DeviceMemory,
        stream: &Stream,
        timeout: Duration,
    ) -> Result<(), Error> {
        let is_root = team.rank() == root;
        let copies = Copies { down: is_root, up: !is_root };
        self.run(team, copies, memory, stream, timeout, |chunk, left| {
            team.broadcast(root, chunk, left)
        })
    }

    /// Replaces the elements in this memory by their combination over all members: [`Team::all_reduce_bytes`]. At the same time,
    /// one chunk is copied from the device, one is in the network, and one is copied to the device.
    ///
    /// Errors: as for [`TeamStaging::broadcast`] and [`Team::all_reduce_bytes`]; [`Error::Call`] if the memory is not a whole
    /// number of elements.
    pub fn all_reduce(
        &mut self,
        team: &Team,
        memory: &DeviceMemory,
        element: Type,
        op: Op,
        stream: &Stream,
        timeout: Duration,
    ) -> Result<(), Error> {
        check_elements(memory.bytes(), element)?;
        let copies = Copies { down: true, up: true };
        self.run(team, copies, memory, stream, timeout, |chunk, left| {
            team.all_reduce_bytes(chunk, element, op, left)
        })
    }

    /// Waits until the copies of all calls are done.
    ///
    /// Errors: [`Error::Cuda`], [`Error::Timeout`].
    pub fn settle(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        self.ring.iter().try_for_each(|slot| match slot {
            Slot::Busy(transfer) => transfer.wait(deadline.left()),
            Slot::Empty | Slot::Free(_) => Ok(()),
        })
    }

    fn run(
        &mut self,
        team: &Team,
        copies: Copies,
        memory: &DeviceMemory,
        stream: &Stream,
        timeout: Duration,
        operate: impl FnMut(&mut [u8], Duration) -> Result<(), rdmc::Error>,
    ) -> Result<(), Error> {
        if memory.device() != &self.device || stream.device() != &self.device {
            let what = format!("{memory:?} and {stream:?} for a staging of {:?}", self.device);
            return Err(Error::Call(what));
        }
        let outcome = self.pipeline(copies, memory, stream, Deadline::after(timeout), operate);
        outcome.inspect_err(|error| {
            if !matches!(error, Error::Rdmc(_)) {
                team.abort(&error.reason());
            }
            // What was queued may still use the application's memory. A second error would say no more than the first.
            let _ = self.order(stream);
        })
    }

    fn pipeline(
        &mut self,
        copies: Copies,
        memory: &DeviceMemory,
        stream: &Stream,
        deadline: Deadline,
        mut operate: impl FnMut(&mut [u8], Duration) -> Result<(), rdmc::Error>,
    ) -> Result<(), Error> {
        let before = Event::record(stream)?;
        before.hold(&self.up)?;
        before.hold(&self.down)?;
        let chunks = chunks(memory.bytes(), self.settings.chunk_bytes);
        // Those that are copied from the device ahead.
        let mut ahead = chunks.clone();
        if copies.down {
            for (index, range) in ahead.by_ref().take(self.ring.len()).enumerate() {
                self.start_down(index, &memory.slice(range)?, deadline)?;
            }
        }
        for (range, index) in chunks.zip((0..self.ring.len()).cycle()) {
            let mut buffer = self.take(index, deadline)?;
            operate(&mut buffer[..(range.end - range.start) as usize], deadline.left())?;
            self.ring[index] = match copies.up {
                true => Slot::Busy(upload_written(&self.up, buffer, &memory.slice(range)?)?),
                false => Slot::Free(buffer),
            };
            if let Some(range) = ahead.next().filter(|_| copies.down) {
                self.start_down(index, &memory.slice(range)?, deadline)?;
            }
        }
        self.order(stream)
    }

    /// Makes the application's stream wait for all copies.
    fn order(&self, stream: &Stream) -> Result<(), Error> {
        Event::record(&self.up)?.hold(stream)?;
        Event::record(&self.down)?.hold(stream)
    }

    /// Takes a buffer whose copies are done; allocates it if there is none.
    fn take(&mut self, index: usize, deadline: Deadline) -> Result<WriteLease, Error> {
        // If it is too late, the buffer stays busy: the other members are notified before it is waited for again.
        if let Slot::Busy(transfer) = &self.ring[index] {
            transfer.wait(deadline.left())?;
        }
        match mem::replace(&mut self.ring[index], Slot::Empty) {
            Slot::Free(buffer) => Ok(buffer),
            Slot::Busy(transfer) => transfer.into_lease(deadline.left()),
            Slot::Empty => {
                let region = pinned(&self.device, self.settings.chunk_bytes)?;
                Ok(region.write(0..region.len())?)
            }
        }
    }

    /// Starts to copy a chunk from the device, after the copy that the buffer is used by. Does not wait for that.
    fn start_down(
        &mut self,
        index: usize,
        part: &DeviceMemory,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let transfer = match mem::replace(&mut self.ring[index], Slot::Empty) {
            Slot::Busy(before) => before.then_download(&self.down, part)?,
            slot => {
                self.ring[index] = slot;
                let buffer = self.take(index, deadline)?;
                download(&self.down, part, buffer)?
            }
        };
        self.ring[index] = Slot::Busy(transfer);
        Ok(())
    }
}

impl Drop for TeamStaging {
    /// Waits once for all copies, and not for each of them.
    fn drop(&mut self) {
        if self.settle(DROP_TIMEOUT).is_ok() {
            return;
        }
        for slot in self.ring.drain(..) {
            if let Slot::Busy(transfer) = slot {
                transfer.abandon();
            }
        }
    }
}
