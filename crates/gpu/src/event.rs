//! Events: points in the order of a stream.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use session::Deadline;

use crate::{Device, Error, Stream, calls::NOT_READY};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

/// How long a wait polls before it sleeps between polls, and how long it sleeps.
const POLLING: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_micros(50);

/// A point in a stream: the end of all work queued before.
pub struct Event {
    device: Device,
    /// The `CUevent`.
    handle: usize,
}

impl Event {
    /// Records an event after the work that is queued on the stream now.
    ///
    /// Errors: [`Error::Cuda`].
    pub fn record(stream: &Stream) -> Result<Self, Error> {
        let event = Self::new(stream.device())?;
        event.record_again(stream)?;
        Ok(event)
    }

    /// Makes an event that nothing waits for yet.
    pub(crate) fn new(device: &Device) -> Result<Self, Error> {
        let mut handle = 0;
        device.call(
            // SAFETY: the place of the answer lives through the call.
            |calls| unsafe { (calls.event_create)(&mut handle, NO_TIMING) },
            || "cuEventCreate".into(),
        )?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Moves the event to what was queued on the stream until now.
    pub(crate) fn record_again(&self, stream: &Stream) -> Result<(), Error> {
        self.device.call(
            // SAFETY: the event is this one's, and the stream lives.
            |calls| unsafe { (calls.event_record)(self.handle, stream.handle()) },
            || "cuEventRecord".into(),
        )
    }

    /// Makes work that is queued on a stream from now on wait for this event. Does not block.
    ///
    /// Errors: [`Error::Cuda`].
    pub fn hold(&self, stream: &Stream) -> Result<(), Error> {
        stream.device().call(
            // SAFETY: the event is this one's, and the stream lives.
            |calls| unsafe { (calls.stream_wait)(stream.handle(), self.handle, 0) },
            || "cuStreamWaitEvent".into(),
        )
    }

    /// Returns whether the stream has reached this point.
    ///
    /// Errors: [`Error::Cuda`], also for failed work of the stream.
    pub fn is_done(&self) -> Result<bool, Error> {
        let mut is_done = true;
        self.device.call(
            |calls| {
                // SAFETY: the event is this one's.
                let code = unsafe { (calls.event_query)(self.handle) };
                is_done = code != NOT_READY;
                if is_done { code } else { 0 }
            },
            || "cuEventQuery".into(),
        )?;
        Ok(is_done)
    }

    /// Waits until the stream has reached this point. `what` names it in the error.
    ///
    /// Errors: [`Error::Timeout`]; otherwise as for [`Event::is_done`].
    pub fn wait(&self, what: &str, timeout: Duration) -> Result<(), Error> {
        let (start, deadline) = (Instant::now(), Deadline::after(timeout));
        while !self.is_done()? {
            if deadline.left().is_zero() {
                return Err(Error::Timeout { what: what.into(), timeout });
            }
            match start.elapsed() < POLLING {
                true => thread::yield_now(),
                false => thread::sleep(SLEEP.min(deadline.left())),
            }
        }
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by this and not destroyed before. Streams that wait for it still do.
        self.device.free(|calls| unsafe { (calls.event_destroy)(self.handle) });
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x} of device {})", self.handle, self.device.ordinal())
    }
}
