//! Streams, which order the work of a device.

use std::{fmt, sync::Arc};

use crate::{Device, Error, calls::NOT_READY};

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream, nor does that wait for it.
const NON_BLOCKING: u32 = 1;

/// A stream of a device. A handle that is cheap to clone.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    /// The `CUstream`.
    handle: usize,
    /// Made here, and destroyed with the last handle.
    is_own: bool,
}

impl Stream {
    /// Creates a stream that does not synchronize with other streams.
    ///
    /// Errors: [`Error::Cuda`].
    pub fn new(device: &Device) -> Result<Self, Error> {
        let mut handle = 0;
        device.call(
            // SAFETY: the place of the answer lives through the call.
            |calls| unsafe { (calls.stream_create)(&mut handle, NON_BLOCKING) },
            || "cuStreamCreate".into(),
        )?;
        Ok(Self { inner: Arc::new(Inner { device: device.clone(), handle, is_own: true }) })
    }

    /// Takes a stream of the application: a `CUstream` or `cudaStream_t`, such as `torch.cuda.Stream.cuda_stream`. 0 is the
    /// default stream, 1 and 2 what cuda.h calls the legacy and the per-thread one.
    ///
    /// # Safety
    /// It is a stream of the device's primary context, and is not destroyed before the last handle was dropped.
    pub unsafe fn from_raw(device: &Device, handle: usize) -> Self {
        Self { inner: Arc::new(Inner { device: device.clone(), handle, is_own: false }) }
    }

    /// Returns the default stream of a device.
    pub fn default_of(device: &Device) -> Self {
        Self { inner: Arc::new(Inner { device: device.clone(), handle: 0, is_own: false }) }
    }

    /// Returns the `CUstream`.
    pub fn handle(&self) -> usize {
        self.inner.handle
    }

    /// Returns whether all that was queued is done.
    pub(crate) fn is_idle(&self) -> Result<bool, Error> {
        let mut is_idle = true;
        self.device().call(
            |calls| {
                // SAFETY: the stream lives.
                let code = unsafe { (calls.stream_query)(self.handle()) };
                is_idle = code != NOT_READY;
                if is_idle { code } else { 0 }
            },
            || "cuStreamQuery".into(),
        )?;
        Ok(is_idle)
    }

    /// Returns its device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: made here and not destroyed before. What it has to do is done nevertheless.
            self.device.free(|calls| unsafe { (calls.stream_destroy)(self.handle) });
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:#x} of device {})", self.inner.handle, self.inner.device.ordinal())
    }
}
