//! A device, by its primary context.

use std::{fmt, sync::Arc};

use crate::{Driver, Error, calls::Calls};

/// A GPU, with its primary context, which the CUDA runtime, PyTorch and JAX use as well. A handle that is cheap to clone.
///
/// The context is made current only within calls, so the application's current context does not change. It is retained until the
/// last handle, stream, event and memory of the device has been dropped.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Driver,
    ordinal: u32,
    /// The driver's handle.
    device: i32,
    context: usize,
}

/// Makes the thread's context what it was, when it is dropped.
struct Pushed<'a>(&'a Inner);

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        let mut popped = 0;
        // SAFETY: the place of the answer lives through the call.
        // What was current before is current again; there is nobody to tell of an error.
        let _ = unsafe { (self.0.driver.calls().context_pop)(&mut popped) };
    }
}

impl Device {
    /// Retains the primary context of a device. If this process does not use it yet, the context is started, which takes
    /// time and device memory.
    ///
    /// Errors: [`Error::NoDevice`], [`Error::Cuda`].
    pub fn open(driver: &Driver, ordinal: u32) -> Result<Self, Error> {
        let device = driver.find(ordinal)?;
        let mut context = 0;
        // SAFETY: the place of the answer lives through the call.
        let code = unsafe { (driver.calls().context_retain)(&mut context, device) };
        driver.check(code, || format!("cuDevicePrimaryCtxRetain of device {ordinal}"))?;
        Ok(Self { inner: Arc::new(Inner { driver: driver.clone(), ordinal, device, context }) })
    }

    /// Returns its number among the devices visible to this process.
    pub fn ordinal(&self) -> u32 {
        self.inner.ordinal
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// Makes a call with the context current. `act` returns the call's answer, `name` what it was to do.
    pub(crate) fn call(
        &self,
        act: impl FnOnce(&Calls) -> i32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let driver = &self.inner.driver;
        // SAFETY: the context is retained.
        let code = unsafe { (driver.calls().context_push)(self.inner.context) };
        driver.check(code, || format!("cuCtxPushCurrent of device {}", self.inner.ordinal))?;
        let pushed = Pushed(&self.inner);
        let code = act(driver.calls());
        drop(pushed);
        driver.check(code, name)
    }

    /// As [`Device::call`], for calls that free: there is nobody to tell of an error.
    pub(crate) fn free(&self, act: impl FnOnce(&Calls) -> i32) {
        let _ = self.call(act, String::new);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once by this. An error cannot be reported.
        let _ = unsafe { (self.driver.calls().context_release)(self.device) };
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.inner.ordinal == other.inner.ordinal && self.inner.context == other.inner.context
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.inner.ordinal)
    }
}
