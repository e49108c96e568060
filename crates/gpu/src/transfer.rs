//! Copies between host memory and a device, which hold the host memory meanwhile.

use std::{
    fmt,
    time::{Duration, Instant},
};

use rdmc::{ReadLease, WriteLease};
use session::Deadline;

use crate::{DeviceMemory, Error, Event, Stream};

/// How long dropping transfers waits for their copies.
pub(crate) const DROP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the wait for a stream that has no event sleeps between polls.
const SLEEP: Duration = Duration::from_micros(100);

/// Copies queued on a stream, with the leases of their host memory, which must not be written (or, for a copy from the device,
/// read) until the copies are done.
///
/// Dropping the value waits for the copies, for at most 10 s. If copies have not ended by then, or the driver cannot tell, their
/// leases are never returned: the memory is leaked, because the device may still use it.
#[must_use = "dropping it waits for the copies"]
pub struct Transfer<L> {
    stream: Stream,
    event: Event,
    /// The event was recorded after the last copy. Otherwise the stream is asked.
    is_recorded: bool,
    /// `None` once given back.
    held: Option<L>,
    /// Of all copies: what was allocated lives at least as long as they.
    memory: Vec<DeviceMemory>,
}

/// Starts to copy bytes of a lease to a device, as many as the device memory has.
///
/// Errors: [`Error::Call`] if the lease is shorter, or the stream belongs to another device; [`Error::Cuda`]. On an error nothing
/// is copied.
pub fn upload(
    stream: &Stream,
    from: ReadLease,
    to: &DeviceMemory,
) -> Result<Transfer<ReadLease>, Error> {
    let mut transfer = Transfer::open(stream, to, from)?;
    let (start, bytes) = transfer.held.as_ref().map_or((0, 0), of_read);
    check(stream, to, bytes)?;
    transfer.copy_up(start, to)?;
    transfer.close()?;
    Ok(transfer)
}

/// Starts to copy all of this memory of a device into a lease; see [`upload`].
///
/// Errors: as for [`upload`].
pub fn download(
    stream: &Stream,
    from: &DeviceMemory,
    into: WriteLease,
) -> Result<Transfer<WriteLease>, Error> {
    let mut transfer = Transfer::open(stream, from, into)?;
    transfer.copy_down(stream, from)?;
    transfer.is_recorded = false;
    transfer.close()?;
    Ok(transfer)
}

/// As [`upload`], from memory that comes back to be written again.
pub(crate) fn upload_written(
    stream: &Stream,
    from: WriteLease,
    to: &DeviceMemory,
) -> Result<Transfer<WriteLease>, Error> {
    let mut transfer = Transfer::open(stream, to, from)?;
    let (start, bytes) = transfer.held.as_mut().map_or((0, 0), of_write);
    check(stream, to, bytes)?;
    transfer.copy_up(start, to)?;
    transfer.close()?;
    Ok(transfer)
}

/// Checks a copy between all of a device's memory and this many bytes of the host.
fn check(stream: &Stream, memory: &DeviceMemory, bytes: u64) -> Result<(), Error> {
    let (mine, device) = (stream.device().ordinal(), memory.device().ordinal());
    if mine != device {
        let what = format!("a stream of device {mine} for memory of device {device}");
        return Err(Error::Call(format!("{what}: give one of device {device}")));
    }
    let long = memory.bytes();
    if long > bytes {
        return Err(Error::Call(format!("{long} bytes of the device, and {bytes} of the host")));
    }
    Ok(())
}

fn of_read(lease: &ReadLease) -> (usize, u64) {
    (lease.as_ptr() as usize, lease.bytes() as u64)
}

fn of_write(lease: &mut WriteLease) -> (usize, u64) {
    (lease.as_mut_ptr() as usize, lease.bytes() as u64)
}

impl<L> Transfer<L> {
    /// With no copy yet.
    fn open(stream: &Stream, memory: &DeviceMemory, held: L) -> Result<Self, Error> {
        let event = Event::new(stream.device())?;
        let (stream, memory) = (stream.clone(), vec![memory.clone()]);
        Ok(Self { stream, event, is_recorded: true, held: Some(held), memory })
    }

    /// Queues a copy to a device. The host's range is one that this transfer holds a lease of.
    fn copy_up(&mut self, start: usize, part: &DeviceMemory) -> Result<(), Error> {
        let bytes = part.bytes();
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.stream.handle();
        self.stream.device().call(
            // SAFETY: both ranges stay until the copy is done: `held` and `memory` are kept until then, or for ever.
            |calls| unsafe { (calls.copy_up)(part.address(), start, bytes as usize, stream) },
            || format!("cuMemcpyHtoDAsync of {bytes} bytes"),
        )?;
        self.is_recorded = false;
        Ok(())
    }

    /// Records the event after the copies.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.event.record_again(&self.stream)?;
        self.is_recorded = true;
        Ok(())
    }

    /// Makes a stream wait for the copies. Does not block.
    ///
    /// Errors: [`Error::Cuda`].
    pub fn hold(&self, stream: &Stream) -> Result<(), Error> {
        self.event.hold(stream)
    }

    /// Returns whether the copies are done.
    ///
    /// Errors: [`Error::Cuda`], also for failed earlier work of the stream.
    pub fn is_done(&self) -> Result<bool, Error> {
        match self.is_recorded {
            true => self.event.is_done(),
            false => self.stream.is_idle(),
        }
    }

    /// Waits until the copies are done.
    ///
    /// Errors: [`Error::Timeout`]; otherwise as for [`Transfer::is_done`].
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        const WHAT: &str = "a copy between host and device";
        if self.is_recorded {
            return self.event.wait(WHAT, timeout);
        }
        let deadline = Deadline::after(timeout);
        while !self.is_done()? {
            if deadline.left().is_zero() {
                return Err(Error::Timeout { what: WHAT.into(), timeout });
            }
            std::thread::sleep(SLEEP);
        }
        Ok(())
    }

    /// Waits until the copies are done, and returns the host memory.
    ///
    /// Errors: as for [`Transfer::wait`]; the memory is then released as if this was dropped.
    pub fn into_lease(mut self, timeout: Duration) -> Result<L, Error> {
        self.wait(timeout)?;
        self.held.take().ok_or_else(|| Error::Call("the memory was already given back".into()))
    }

    /// Waits as when it is dropped. Returns whether the copies are known to be done.
    fn settle(&self) -> bool {
        let deadline = Instant::now() + DROP_TIMEOUT;
        // An error can be of one question alone.
        for _ in 0..2 {
            match self.wait(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) => return true,
                Err(Error::Timeout { .. }) => return false,
                Err(_) => {}
            }
        }
        false
    }

    /// Drops it without waiting: if the copies are not done, their memory is leaked.
    pub(crate) fn abandon(mut self) {
        if !self.is_done().unwrap_or(false) {
            self.leak();
        }
        self.held = None;
    }

    fn leak(&mut self) {
        std::mem::forget((self.held.take(), self.memory.clone()));
    }
}

impl Transfer<Vec<ReadLease>> {
    /// With no copies yet.
    pub(crate) fn several(stream: &Stream, memory: &DeviceMemory) -> Result<Self, Error> {
        Self::open(stream, memory, Vec::new())
    }

    /// Queues a copy of a lease's bytes to a part of the memory. [`Transfer::close`] ends the list.
    pub(crate) fn add(&mut self, from: ReadLease, part: &DeviceMemory) -> Result<(), Error> {
        let (start, bytes) = of_read(&from);
        check(&self.stream, part, bytes)?;
        self.copy_up(start, part)?;
        self.held.get_or_insert_default().push(from);
        Ok(())
    }

    pub(crate) fn copies(&self) -> usize {
        self.held.as_ref().map_or(0, Vec::len)
    }
}

impl Transfer<WriteLease> {
    /// Queues a copy of all of a device's memory to the lease's.
    fn copy_down(&mut self, stream: &Stream, from: &DeviceMemory) -> Result<(), Error> {
        let (start, bytes) = self.held.as_mut().map_or((0, 0), of_write);
        check(stream, from, bytes)?;
        if from.bytes() == 0 {
            return Ok(());
        }
        stream.device().call(
            // SAFETY: both ranges stay until the copy is done: `held` and `memory` are kept until then, or for ever.
            |calls| unsafe {
                (calls.copy_down)(start, from.address(), from.bytes() as usize, stream.handle())
            },
            || format!("cuMemcpyDtoHAsync of {} bytes", from.bytes()),
        )
    }

    /// Starts to copy other memory of the device to the same memory of the host, on another stream, after these copies.
    ///
    /// Errors: as [`download`]; the copies before are waited for, as when this is dropped.
    pub(crate) fn then_download(
        mut self,
        stream: &Stream,
        from: &DeviceMemory,
    ) -> Result<Self, Error> {
        self.hold(stream)?;
        let event = Event::new(stream.device())?;
        self.copy_down(stream, from)?;
        (self.stream, self.event, self.is_recorded) = (stream.clone(), event, false);
        self.memory.push(from.clone());
        self.close()?;
        Ok(self)
    }
}

impl<L> Drop for Transfer<L> {
    fn drop(&mut self) {
        if self.held.is_some() && !self.settle() {
            self.leak();
        }
    }
}

impl<L> fmt::Debug for Transfer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transfer({:?}, {:?})", self.memory, self.stream)
    }
}
