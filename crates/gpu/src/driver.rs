//! The NVIDIA driver.

use std::{ffi::CStr, path::Path, sync::Arc};

use crate::{
    Error,
    calls::{Calls, Code},
};

/// The library that every NVIDIA driver for Linux installs.
const LIBRARY: &str = "libcuda.so.1";

/// The NVIDIA driver, loaded at run time; the CUDA toolkit is needed neither to build nor to run. A handle that is cheap to clone.
#[derive(Clone, Debug)]
pub struct Driver {
    calls: Arc<Calls>,
}

/// Properties of a device, as reported by the driver without using the device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number among the devices visible to this process.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its memory, in bytes.
    pub bytes: u64,
}

impl DeviceInfo {
    /// Returns whether it is a part of a GPU (MIG). A process sees at most one part.
    pub fn is_mig(&self) -> bool {
        self.name.contains(" MIG ")
    }
}

impl Driver {
    /// Loads `libcuda.so.1` from the loader's search path, and initialises it, which can wake sleeping GPUs. Starts no context.
    ///
    /// Errors: [`Error::NoDriver`], [`Error::NoSymbol`], and [`Error::Cuda`] if there is a driver but no GPU.
    pub fn open() -> Result<Self, Error> {
        Self::open_named(LIBRARY)
    }

    /// Opens the driver as [`Driver::open`] does, but from this path. The library is trusted, like those on the loader's path.
    ///
    /// Errors: as for [`Driver::open`].
    pub fn open_library(path: &Path) -> Result<Self, Error> {
        Self::open_named(&path.to_string_lossy())
    }

    fn open_named(library: &str) -> Result<Self, Error> {
        let driver = Self { calls: Arc::new(Calls::open(library)?) };
        // SAFETY: takes no pointer.
        let code = unsafe { (driver.calls.init)(0) };
        driver.check(code, || "cuInit".into())?;
        Ok(driver)
    }

    /// Returns the CUDA version of the driver, as major and minor.
    ///
    /// Errors: [`Error::Cuda`].
    pub fn version(&self) -> Result<(u32, u32), Error> {
        let mut version = 0;
        // SAFETY: the place of the answer lives through the call.
        let code = unsafe { (self.calls.version)(&mut version) };
        self.check(code, || "cuDriverGetVersion".into())?;
        let version = version.unsigned_abs();
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Returns the devices visible to this process.
    ///
    /// Errors: [`Error::Cuda`].
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, Error> {
        (0..self.device_count()?).map(|ordinal| self.info(ordinal)).collect()
    }

    fn info(&self, ordinal: u32) -> Result<DeviceInfo, Error> {
        let device = self.find(ordinal)?;
        let mut name = [0_u8; 256];
        // SAFETY: there is room for this many bytes.
        let code = unsafe {
            (self.calls.device_name)(name.as_mut_ptr().cast(), name.len() as i32, device)
        };
        self.check(code, || format!("cuDeviceGetName of device {ordinal}"))?;
        let mut bytes = 0;
        // SAFETY: the place of the answer lives through the call.
        let code = unsafe { (self.calls.device_bytes)(&mut bytes, device) };
        self.check(code, || format!("cuDeviceTotalMem of device {ordinal}"))?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(DeviceInfo { ordinal, name: name.to_string_lossy().into_owned(), bytes: bytes as u64 })
    }

    fn device_count(&self) -> Result<u32, Error> {
        let mut count = 0;
        // SAFETY: the place of the answer lives through the call.
        let code = unsafe { (self.calls.device_count)(&mut count) };
        self.check(code, || "cuDeviceGetCount".into())?;
        Ok(count.unsigned_abs())
    }

    /// Returns the driver's handle of a device.
    ///
    /// Errors: [`Error::NoDevice`], [`Error::Cuda`].
    pub(crate) fn find(&self, ordinal: u32) -> Result<i32, Error> {
        let devices = self.device_count()?;
        let number = i32::try_from(ordinal).ok().filter(|_| ordinal < devices);
        let number = number.ok_or(Error::NoDevice { ordinal, devices })?;
        let mut device = 0;
        // SAFETY: the place of the answer lives through the call.
        let code = unsafe { (self.calls.device_get)(&mut device, number) };
        self.check(code, || format!("cuDeviceGet of device {ordinal}"))?;
        Ok(device)
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    pub(crate) fn check(&self, code: Code, call: impl FnOnce() -> String) -> Result<(), Error> {
        self.calls.check(code, call)
    }
}
