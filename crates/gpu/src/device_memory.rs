//! Memory of a device.

use std::{ffi::c_void, fmt, ops::Range, sync::Arc};

use crate::{Device, Error};

/// A range of a device's memory. A handle that is cheap to clone; memory allocated here is freed with the last one.
#[derive(Clone)]
pub struct DeviceMemory {
    device: Device,
    address: u64,
    bytes: u64,
    kind: MemoryKind,
    /// `None`: the application's.
    owner: Option<Arc<Allocation>>,
}

/// How device memory was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MemoryKind {
    /// `cuMemAlloc` or `cudaMalloc`.
    Plain,
    /// Mapped parts (`cuMemMap`), as PyTorch allocates with `expandable_segments:True`.
    Mapped,
    /// A pool of the driver (`cudaMallocAsync`).
    Pool,
}

struct Allocation {
    device: Device,
    address: u64,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated by `DeviceMemory::allocate`, and freed here alone: no handle is left.
        self.device.free(|calls| unsafe { (calls.memory_free)(self.address) });
    }
}

/// `CUpointer_attribute`.
#[derive(Clone, Copy)]
enum Attribute {
    MemoryType = 2,
    IsManaged = 8,
    DeviceOrdinal = 9,
    IsLegacyIpcCapable = 10,
    RangeStart = 11,
    RangeBytes = 12,
    Pool = 17,
}

/// `CU_MEMORYTYPE_DEVICE`.
const TYPE_DEVICE: u64 = 2;

impl DeviceMemory {
    /// Allocates memory of a device. Its contents are undefined.
    ///
    /// Errors: [`Error::Cuda`], such as out of memory.
    pub fn allocate(device: &Device, bytes: u64) -> Result<Self, Error> {
        let length = usize::try_from(bytes)
            .map_err(|_| Error::Call(format!("{bytes} bytes do not fit into the address space")))?;
        let mut memory = Self {
            device: device.clone(),
            address: 0,
            bytes,
            kind: MemoryKind::Plain,
            owner: None,
        };
        if length > 0 {
            device.call(
                // SAFETY: the place of the answer lives through the call.
                |calls| unsafe { (calls.memory_allocate)(&mut memory.address, length) },
                || format!("cuMemAlloc of {bytes} bytes"),
            )?;
            let (device, address) = (device.clone(), memory.address);
            memory.owner = Some(Arc::new(Allocation { device, address }));
        }
        Ok(memory)
    }

    /// Wraps memory of the application, such as a tensor's `data_ptr()`, after checking that it belongs to the device.
    ///
    /// # Safety
    /// The memory must not be freed before the last copy from or to it has ended ([`crate::Transfer::wait`],
    /// [`crate::Upload::wait`], [`crate::TeamStaging::settle`]), or must be freed in the order of the stream passed to the call, as
    /// `cudaFreeAsync` and PyTorch's allocator do. Work that uses it must be ordered by that stream.
    ///
    /// Errors: [`Error::Memory`] if it is host memory, managed memory, memory of another device, or shorter; [`Error::Cuda`].
    pub unsafe fn from_raw(device: &Device, address: u64, bytes: u64) -> Result<Self, Error> {
        let kind = MemoryKind::Plain;
        let mut memory = Self { device: device.clone(), address, bytes, kind, owner: None };
        if bytes > 0 {
            memory.kind = memory.examine()?;
        }
        Ok(memory)
    }

    /// Returns its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how it was allocated, as far as the driver reports it.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns a part.
    ///
    /// Errors: [`Error::Call`]: out of range.
    pub fn slice(&self, range: Range<u64>) -> Result<Self, Error> {
        if range.start > range.end || range.end > self.bytes {
            let Range { start, end } = range;
            let what =
                format!("bytes {start}..{end} do not lie in {} bytes of the device", self.bytes);
            return Err(Error::Call(what));
        }
        let (address, bytes) = (self.address + range.start, range.end - range.start);
        Ok(Self { address, bytes, ..self.clone() })
    }

    /// Checks that all of it is this device's.
    fn examine(&self) -> Result<MemoryKind, Error> {
        let end = self.address.checked_add(self.bytes);
        let last = end.ok_or_else(|| self.refused("no memory ends so far"))? - 1;
        self.check_device(self.address)?;
        let flag = |attribute| self.attribute(attribute, self.address).ok().flatten();
        if flag(Attribute::IsLegacyIpcCapable) != Some(0) {
            let range = flag(Attribute::RangeStart).zip(flag(Attribute::RangeBytes));
            if range.is_some_and(|(start, bytes)| last - start >= bytes) {
                return Err(self.refused("it ends beyond its allocation"));
            }
            return Ok(MemoryKind::Plain);
        }
        // Mapped memory consists of parts: the driver knows the range of each only.
        self.check_device(last)?;
        match flag(Attribute::Pool) {
            None | Some(0) => Ok(MemoryKind::Mapped),
            Some(_) => Ok(MemoryKind::Pool),
        }
    }

    fn check_device(&self, address: u64) -> Result<(), Error> {
        if self.attribute(Attribute::IsManaged, address)?.is_some_and(|managed| managed != 0) {
            let what =
                "managed memory, which moves between host and device: use memory of one of them";
            return Err(self.refused(what));
        }
        if self.attribute(Attribute::MemoryType, address)? != Some(TYPE_DEVICE) {
            return Err(self.refused("memory of the host: send and receive it without a device"));
        }
        let own = u64::from(self.device.ordinal());
        match self.attribute(Attribute::DeviceOrdinal, address)? {
            Some(other) if other != own => Err(self.refused(&format!(
                "memory of device {other}, not of device {own}: give the tensor's own device"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns an attribute of an address; `None` if the driver does not know the address or the attribute.
    fn attribute(&self, attribute: Attribute, address: u64) -> Result<Option<u64>, Error> {
        const INVALID_VALUE: i32 = 1;
        // Attributes have one, four or eight bytes, the lowest first.
        let mut value = 0_u64;
        let mut is_known = true;
        self.device.call(
            |calls| {
                let to = (&raw mut value).cast::<c_void>();
                // SAFETY: the place of the answer is as long as the longest, and lives through the call.
                let code = unsafe { (calls.pointer_attribute)(to, attribute as i32, address) };
                is_known = code != INVALID_VALUE;
                if is_known { code } else { 0 }
            },
            || format!("cuPointerGetAttribute of {address:#x}"),
        )?;
        Ok(is_known.then_some(value))
    }

    fn refused(&self, what: &str) -> Error {
        Error::Memory { address: self.address, bytes: self.bytes, what: what.into() }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, device) = (self.address, self.device.ordinal());
        write!(f, "DeviceMemory({} bytes at {address:#x} of device {device})", self.bytes)
    }
}
