//! Host memory that devices access directly.

use rdmc::Region;

use crate::{Device, Error, calls::ALREADY_REGISTERED};

/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`: pinned for all devices.
const PORTABLE: u32 = 1;

/// Frees the memory; owned by its region, whose last clone and lease drop it.
struct Allocated {
    device: Device,
    start: usize,
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: allocated by `pinned`, and freed here alone. Copies hold leases of the region, so that none is under way.
        self.device.free(|calls| unsafe { (calls.host_free)(self.start) });
    }
}

/// Ends the registration; attached to the memory, and dropped just before that is freed.
struct Registered {
    device: Device,
    start: usize,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `pin`, and ended here alone. Copies hold leases of the region, so that none is under way.
        self.device.free(|calls| unsafe { (calls.host_unregister)(self.start) });
    }
}

/// Allocates pinned host memory, for all devices. Pinned memory cannot be swapped out, so its amount is limited. It is freed with
/// the region's last clone and lease.
///
/// Allocation is slow, since the driver locks every page: reuse the region.
///
/// Errors: [`Error::Cuda`], such as out of memory; too long for this machine.
pub fn pinned(device: &Device, bytes: u64) -> Result<Region, Error> {
    let length = usize::try_from(bytes)
        .map_err(|_| Error::Call(format!("{bytes} bytes do not fit into the address space")))?;
    if length == 0 {
        return Ok(Region::zeroed(0));
    }
    let mut start = 0;
    device.call(
        // SAFETY: the place of the answer lives through the call.
        |calls| unsafe { (calls.host_allocate)(&mut start, length, PORTABLE) },
        || format!("cuMemHostAlloc of {bytes} bytes"),
    )?;
    let owner = Box::new(Allocated { device: device.clone(), start });
    // SAFETY: the driver gives memory of the process that is readable and writable until the owner frees it, to nobody else.
    Ok(unsafe { Region::from_raw(start as *mut u8, length, true, owner) })
}

/// Pins the whole memory that a region is part of, until the memory is freed. Has no effect on memory that is already pinned: if
/// other code has pinned it, that code decides when it is unpinned.
///
/// Errors: [`Error::Cuda`], such as out of memory; the region is in a file.
pub fn pin(device: &Device, region: &Region) -> Result<(), Error> {
    if region.is_stored() {
        return Err(Error::Call(
            "the bytes of a file cannot be pinned: read them into memory".into(),
        ));
    }
    let (memory, _) = region.memory();
    let (start, bytes) = (memory.start() as usize, memory.bytes());
    if bytes == 0 {
        return Ok(());
    }
    // Held until the end, so that nobody registers at the same time.
    let mut attachments = memory.attachments();
    let mut code = 0;
    device.call(
        |calls| {
            // SAFETY: the region's memory, which lives longer than the registration that is attached to it.
            code = unsafe { (calls.host_register)(start, bytes, PORTABLE) };
            if code == ALREADY_REGISTERED { 0 } else { code }
        },
        || format!("cuMemHostRegister of {bytes} bytes"),
    )?;
    if code == 0 {
        attachments.push(Box::new(Registered { device: device.clone(), start }));
    }
    Ok(())
}
