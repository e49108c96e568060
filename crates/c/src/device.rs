//! Team operations on GPU memory.

use std::{
    ffi::c_char,
    path::Path,
    sync::{Mutex, PoisonError},
};

use gpu::{DeviceMemory, Driver, Stream, TeamStaging, TeamStagingSettings};

use crate::{
    error::{Code, Error, Outcome, Problem},
    guard::{Handle, Process, guarded, object, put, silent, take},
    team::{Team, element_type, inner, operator},
    text::{milliseconds, optional},
};

/// A GPU, with pinned host memory through which team operations are staged. Concurrent calls are serialized.
#[derive(Debug)]
pub struct DeviceHandle {
    device: gpu::Device,
    staging: Mutex<TeamStaging>,
    process: Process,
}

impl Handle for DeviceHandle {
    fn process(&self) -> Process {
        self.process
    }
}

impl From<gpu::Error> for Problem {
    fn from(error: gpu::Error) -> Self {
        use gpu::Error as E;
        let code = match error {
            E::Rdmc(error) => return error.into(),
            E::NoDriver { .. } | E::NoSymbol { .. } => Code::Unsupported,
            E::NoDevice { .. } | E::Memory { .. } | E::Call(_) => Code::Invalid,
            E::Timeout { .. } => Code::Timeout,
            E::Lease(_) => Code::NoMemory,
            _ => Code::System,
        };
        Self::new(code, error.to_string())
    }
}

/// Opens a GPU by its number among those visible to this process, with its primary context, which the CUDA runtime also uses.
/// Loads the CUDA driver; returns `RDMC_UNSUPPORTED` on a machine without it. `library`: path of the driver, or NULL for
/// libcuda.so.1. `chunk_bytes`: a multiple of 16, the same at all members of a team; 0 for 64 MiB. Three chunks of pinned memory
/// are allocated on first use.
///
/// # Safety
/// `library` is null or NUL-terminated; `device` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_device_open(
    library: *const c_char,
    ordinal: u32,
    chunk_bytes: u64,
    device: *mut *mut DeviceHandle,
    error: *mut Error,
) -> i32 {
    let open = || {
        // SAFETY: `library` is null or NUL-terminated, and valid during this call.
        let library = unsafe { optional(library, "library") }?;
        let driver =
            library.map_or_else(Driver::open, |path| Driver::open_library(Path::new(path)))?;
        let opened = gpu::Device::open(&driver, ordinal)?;
        let mut settings = TeamStagingSettings::default();
        if chunk_bytes > 0 {
            settings = settings.chunk_bytes(chunk_bytes);
        }
        let staging = Mutex::new(TeamStaging::new(&opened, settings)?);
        let made = DeviceHandle { device: opened, staging, process: Process::this() };
        let made = Box::into_raw(Box::new(made));
        // SAFETY: `device` is null or writable; the new handle is freed if it cannot be returned.
        unsafe { put(device, "device", made).inspect_err(|_| rdmc_device_free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, open) }
}

/// Runs an operation on memory that is checked to belong to the device.
///
/// # Safety
/// `device` and `team` are valid; the memory and the stream are as documented.
unsafe fn operate(
    device: *const DeviceHandle,
    team: *const Team,
    address: u64,
    length: u64,
    stream: usize,
    act: impl FnOnce(&mut TeamStaging, &rdmc::Team, &DeviceMemory, &Stream) -> Result<(), gpu::Error>,
) -> Outcome<()> {
    // SAFETY: `device` and `team` are null or handles that are not freed during this call.
    let (handle, team) = unsafe { (object(device, "device")?, inner(team)?) };
    handle.process.check()?;
    // SAFETY: the memory belongs to the application and remains valid until the copies have ended.
    let memory = unsafe { DeviceMemory::from_raw(&handle.device, address, length) }?;
    // SAFETY: the stream belongs to the application and remains valid until the copies have ended.
    let stream = unsafe { Stream::from_raw(&handle.device, stream) };
    let mut staging = handle.staging.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(act(&mut staging, team, &memory, &stream)?)
}

/// Replaces `length` bytes of device memory at `address` (a `CUdeviceptr`) at all members by those of the root. All members call
/// this, with the same length and `chunk_bytes`. `stream` is a `CUstream` or `cudaStream_t` as a number, 0 for the default
/// stream: copies start after work queued on it before, and work queued on it afterwards sees the result. Blocks, but returns
/// before the last copies end; `rdmc_device_settle` waits for them.
///
/// # Safety
/// `device` and `team` are valid; memory and stream remain valid until the copies have ended; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_broadcast_device(
    team: *const Team,
    root: u32,
    device: *const DeviceHandle,
    address: u64,
    length: u64,
    stream: usize,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let timeout = milliseconds(timeout_ms);
    let broadcast = || {
        // SAFETY: device and team are not freed during this call; memory and stream remain valid until the copies have ended.
        unsafe {
            operate(device, team, address, length, stream, |staging, team, memory, stream| {
                staging.broadcast(team, root, memory, stream, timeout)
            })
        }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, broadcast) }
}

/// As `rdmc_team_all_reduce`, for `count` elements in device memory; otherwise as `rdmc_team_broadcast_device`.
///
/// # Safety
/// As for `rdmc_team_broadcast_device`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn rdmc_team_all_reduce_device(
    team: *const Team,
    device: *const DeviceHandle,
    address: u64,
    count: u64,
    element: i32,
    op: i32,
    stream: usize,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let timeout = milliseconds(timeout_ms);
    let reduce = || {
        let (element, op) = (element_type(element)?, operator(op)?);
        let length = count.checked_mul(element.bytes() as u64);
        let length =
            length.ok_or_else(|| Problem::invalid(format!("{count} elements are too many")))?;
        // SAFETY: device and team are not freed during this call; memory and stream remain valid until the copies have ended.
        unsafe {
            operate(device, team, address, length, stream, |staging, team, memory, stream| {
                staging.all_reduce(team, memory, element, op, stream, timeout)
            })
        }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, reduce) }
}

/// Waits until the copies of all operations on the device have ended.
///
/// # Safety
/// `device` is valid; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_device_settle(
    device: *const DeviceHandle,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let settle = || {
        // SAFETY: `device` is null or a handle that is not freed during this call.
        let handle = unsafe { object(device, "device") }?;
        handle.process.check()?;
        let mut staging = handle.staging.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(staging.settle(milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, settle) }
}

/// Frees a device after its copies have ended; blocks for at most 10 seconds. Does nothing for null, or in a child of fork(2).
///
/// # Safety
/// `device` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_device_free(device: *mut DeviceHandle) {
    // SAFETY: `device` is null or a handle that is not used after this call.
    let taken = unsafe { take(device) };
    silent(|| drop(taken));
}
