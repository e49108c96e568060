//! Devices, their memory and their queue pairs.

use std::{
    ffi::{CStr, CString},
    io,
    net::IpAddr,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    ptr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::{
    Completion, Connection, DEPTH, Event, Operation, Status, VerbsError,
    ffi::{
        self, Functions, RawCompletion, RawConnection, RawDevice, RawMemory, RawQueuePair, RawWork,
    },
};

/// Capacity of a device's completion queue.
const COMPLETIONS: u32 = 1024;

/// The part of a device that its memory and queue pairs keep alive.
struct Opened {
    functions: &'static Functions,
    raw: *mut RawDevice,
    name: String,
}

// SAFETY: libibverbs' objects are bound to no thread, and the library itself takes locks.
unsafe impl Send for Opened {}
// SAFETY: as above; every function that the shim calls may be called from several threads at once.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `Functions::open`, and nothing that was made of it is left: all of that has
        // an `Arc` of this.
        unsafe { (self.functions.close)(self.raw) }
    }
}

impl Opened {
    fn check(&self, step: &'static str, result: i32) -> Result<(), VerbsError> {
        check(&self.name, step, result)
    }
}

fn check(device: &str, step: &'static str, result: i32) -> Result<(), VerbsError> {
    if result >= 0 {
        return Ok(());
    }
    let source = io::Error::from_raw_os_error(-result);
    Err(VerbsError::Device { device: device.to_owned(), step, source })
}

/// An RDMA device, with one of its addresses and one completion queue.
pub struct Device {
    opened: Arc<Opened>,
}

/// The shim, once the library is open.
fn load() -> Result<&'static Functions, VerbsError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(functions) = ffi::functions() else {
        let why = "this program was built without its headers (Debian: libibverbs-dev)";
        return Err(VerbsError::Library { why: why.to_owned() });
    };
    let mut why = [0_u8; 256];
    // SAFETY: one thread at a time calls this, and `why` has the length that is given.
    let result = unsafe { (functions.load)(why.as_mut_ptr().cast(), why.len()) };
    if result >= 0 {
        return Ok(functions);
    }
    let text = why.split(|byte| *byte == 0).next().unwrap_or_default();
    Err(VerbsError::Library { why: String::from_utf8_lossy(text).into_owned() })
}

fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl Device {
    /// Opens a device by its name and one of its addresses.
    pub fn open(name: &str, address: IpAddr) -> Result<Self, VerbsError> {
        let functions = load()?;
        let c_name = CString::new(name).map_err(|_| missing(name))?;
        Self::open_raw(functions, Some(&c_name), address, 0).map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => {
                VerbsError::Address { device: name.to_owned(), address }
            }
            _ => VerbsError::Device { device: name.to_owned(), step: "open it", source: error },
        })
    }

    /// Opens the device that is up and has this address on the network interface of this number, if
    /// there is one.
    pub fn with_address(address: IpAddr, interface: u32) -> Result<Option<Self>, VerbsError> {
        match Self::open_raw(load()?, None, address, interface) {
            Ok(device) => Ok(Some(device)),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(None),
            Err(source) => Err(VerbsError::Device {
                device: format!("with {address}"),
                step: "open it",
                source,
            }),
        }
    }

    /// Errors: the library's; `AddrNotAvailable` if no device, or not the one of this name, has the address.
    fn open_raw(
        functions: &'static Functions,
        name: Option<&CStr>,
        address: IpAddr,
        interface: u32,
    ) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        let name = name.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the library is open; the pointers are to a string with its end or null, to 16
        // bytes, and to a place for the result.
        let result = unsafe {
            (functions.open)(name, gid(address).as_ptr(), interface, COMPLETIONS, &raw mut raw)
        };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: the device is open, and its name is a string with an end that lives as long.
        let name = unsafe { CStr::from_ptr((functions.name)(raw)) }.to_string_lossy().into_owned();
        Ok(Self { opened: Arc::new(Opened { functions, raw, name }) })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.opened.name
    }

    /// Payload of a packet, at most; 0 if its port was down when it was opened.
    #[must_use]
    pub fn mtu_bytes(&self) -> u32 {
        // SAFETY: the device is open.
        unsafe { (self.opened.functions.mtu_bytes)(self.opened.raw) }
    }

    /// Registers zeroed memory that the device can read and write, and peers can write.
    pub fn memory(&self, bytes: usize) -> Result<Memory, VerbsError> {
        self.register(bytes, true)
    }

    /// Registers zeroed memory; `for_peers`: that peers can write.
    pub(crate) fn register(&self, bytes: usize, for_peers: bool) -> Result<Memory, VerbsError> {
        let bytes = bytes.max(1);
        let begin = Box::into_raw(vec![0_u8; bytes].into_boxed_slice()).cast::<u8>();
        let owned = Owned { begin, bytes };
        // SAFETY: `owned` is freed after it was deregistered.
        let registration = unsafe { self.register_raw(begin, bytes, true, for_peers) }?;
        Ok(Memory { registration, owned })
    }

    /// Registers memory that belongs to others, which the device can read, and write if it `may_write`; peers cannot.
    ///
    /// # Safety
    /// The memory stays mapped, and writable if it `may_write`, until the registration is dropped.
    pub(crate) unsafe fn register_foreign(
        &self,
        begin: *mut u8,
        bytes: usize,
        may_write: bool,
    ) -> Result<Registration, VerbsError> {
        // SAFETY: as the caller says.
        unsafe { self.register_raw(begin, bytes, may_write, false) }
    }

    /// # Safety
    /// As for [`Device::register_foreign`].
    unsafe fn register_raw(
        &self,
        begin: *mut u8,
        bytes: usize,
        may_write: bool,
        for_peers: bool,
    ) -> Result<Registration, VerbsError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the device is open; the memory is there, as the caller says, and the pointer is to a place for the
        // result.
        let result = unsafe {
            (self.opened.functions.register_memory)(
                self.opened.raw,
                begin.cast(),
                bytes,
                may_write.into(),
                for_peers.into(),
                &raw mut raw,
            )
        };
        if result < 0 {
            let (device, source) = (self.name().to_owned(), io::Error::from_raw_os_error(-result));
            return Err(VerbsError::Register { device, bytes, source });
        }
        Ok(Registration { raw, begin: begin as u64, bytes, opened: Arc::clone(&self.opened) })
    }

    /// A queue pair that is not connected yet.
    pub fn queue_pair(&self) -> Result<QueuePair, VerbsError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the device is open, and the pointer is to a place for the result.
        let result =
            unsafe { (self.opened.functions.create)(self.opened.raw, DEPTH, &raw mut raw) };
        self.opened.check("make a queue pair", result)?;
        Ok(QueuePair { raw, opened: Arc::clone(&self.opened) })
    }

    /// Completions of all queue pairs of this device. Waits up to `timeout` if there are none.
    pub fn poll(
        &self,
        completions: &mut Vec<Completion>,
        timeout: Duration,
    ) -> Result<(), VerbsError> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.drain(completions)? > 0 || Instant::now() >= deadline {
                return Ok(());
            }
            if self.poll_or_arm(completions)? > 0 {
                return Ok(());
            }
            self.wait(deadline)?;
        }
    }

    /// Completions of all queue pairs of this device, and their number. If there are none, the device's descriptor
    /// is readable when there are.
    pub fn poll_or_arm(&self, completions: &mut Vec<Completion>) -> Result<usize, VerbsError> {
        let found = self.drain(completions)?;
        if found > 0 {
            return Ok(found);
        }
        // SAFETY: the device is open.
        let armed = unsafe { (self.opened.functions.arm)(self.opened.raw) };
        self.opened.check("ask for events", armed)?;
        // What came before it was armed makes no event.
        self.drain(completions)
    }

    fn wait(&self, deadline: Instant) -> Result<(), VerbsError> {
        let fd = self.as_fd();
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left.try_into().ok();
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => self.opened.check("wait", -error.raw_os_error()),
        }
    }

    fn drain(&self, completions: &mut Vec<Completion>) -> Result<usize, VerbsError> {
        let mut found = [RawCompletion::default(); 16];
        // SAFETY: the device is open, and `found` has room for that many.
        let result = unsafe {
            (self.opened.functions.poll)(self.opened.raw, found.as_mut_ptr(), found.len() as u32)
        };
        self.opened.check("read completions", result)?;
        let count = usize::try_from(result).unwrap_or(0);
        completions.extend(found[..count].iter().map(completion));
        Ok(count)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the device's, which stays open while `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw((self.opened.functions.fd)(self.opened.raw)) }
    }
}

fn missing(name: &str) -> VerbsError {
    let source = io::ErrorKind::NotFound.into();
    VerbsError::Device { device: name.to_owned(), step: "find it", source }
}

fn completion(raw: &RawCompletion) -> Completion {
    let status = Status::new(raw.status);
    let immediate = (raw.has_immediate != 0).then_some(raw.immediate);
    let event = match (status, raw.kind) {
        (Status::Done, 0) => Some(Event::Sent),
        (Status::Done, 1) => Some(Event::Received { bytes: raw.bytes, immediate }),
        (Status::Done, _) => Some(Event::Written { bytes: raw.bytes, immediate }),
        _ => None,
    };
    Completion { id: raw.id, qpn: raw.qpn, status, event }
}

/// Memory that a device can access until this is dropped. It may belong to others.
pub(crate) struct Registration {
    raw: *mut RawMemory,
    begin: u64,
    bytes: usize,
    opened: Arc<Opened>,
}

// SAFETY: the library's object is bound to no thread.
unsafe impl Send for Registration {}
// SAFETY: only its keys are read while it is shared.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `Functions::register_memory`, and is not used any more.
        unsafe { (self.opened.functions.deregister_memory)(self.raw) }
    }
}

impl Registration {
    /// Virtual addresses of the memory: the first, and one behind the last.
    pub(crate) const fn addresses(&self) -> Range<u64> {
        self.begin..self.begin + self.bytes as u64
    }

    fn check(&self, range: &Range<usize>) -> Result<(), VerbsError> {
        let (begin, end, bytes) = (range.start, range.end, self.bytes);
        let is_inside = begin <= end && end <= bytes && end - begin <= u32::MAX as usize;
        if is_inside { Ok(()) } else { Err(VerbsError::Range { begin, end, bytes }) }
    }
}

/// A part of registered memory.
pub(crate) struct Registered<'a> {
    pub(crate) registration: &'a Registration,
    pub(crate) range: Range<usize>,
}

impl Registered<'_> {
    /// Its address, length and local key (L_Key). Errors: it is not in the memory.
    fn place(&self) -> Result<(u64, u32, u32), VerbsError> {
        let Registration { begin, .. } = self.registration;
        self.registration.check(&self.range)?;
        // SAFETY: it is registered as long as it lives.
        let key = unsafe { (self.registration.opened.functions.local_key)(self.registration.raw) };
        Ok((begin + self.range.start as u64, self.range.len() as u32, key))
    }
}

/// A box's bytes.
struct Owned {
    begin: *mut u8,
    bytes: usize,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it came from a box of this length, in `Device::register`.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.begin, self.bytes)) });
    }
}

/// Memory that a device may read and write at any time. It is copied in and out; nothing refers to it.
pub struct Memory {
    /// Dropped before the bytes.
    registration: Registration,
    owned: Owned,
}

// SAFETY: the memory is this object's alone, but for the device, which is bound to no thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Its virtual address, for peers.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.registration.begin
    }

    /// Its remote key (R_Key), for peers.
    #[must_use]
    pub fn key(&self) -> u32 {
        let registration = &self.registration;
        // SAFETY: it is registered as long as it lives.
        unsafe { (registration.opened.functions.remote_key)(registration.raw) }
    }

    /// Its length.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.owned.bytes
    }

    /// A part of it.
    pub(crate) const fn registered(&self, range: Range<usize>) -> Registered<'_> {
        Registered { registration: &self.registration, range }
    }

    /// Copies bytes in, from a place on.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), VerbsError> {
        self.registration.check(&(at..at.saturating_add(bytes.len())))?;
        // SAFETY: the place is in the memory, to which no Rust reference exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.owned.begin.add(at), bytes.len()) };
        Ok(())
    }

    /// Copies bytes out.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<u8>, VerbsError> {
        self.registration.check(&range)?;
        let mut bytes = vec![0; range.len()];
        self.copy(range.start, &mut bytes);
        Ok(bytes)
    }

    /// Copies the first bytes out.
    pub(crate) fn read_into(&self, into: &mut [u8]) -> Result<(), VerbsError> {
        self.registration.check(&(0..into.len()))?;
        self.copy(0, into);
        Ok(())
    }

    /// The caller has checked the range.
    fn copy(&self, at: usize, into: &mut [u8]) {
        // SAFETY: as in `write`. What the device writes meanwhile is any byte, and any byte is one.
        unsafe { ptr::copy_nonoverlapping(self.owned.begin.add(at), into.as_mut_ptr(), into.len()) }
    }
}

/// One end of a reliable connection.
pub struct QueuePair {
    raw: *mut RawQueuePair,
    opened: Arc<Opened>,
}

// SAFETY: as `Opened`.
unsafe impl Send for QueuePair {}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `Functions::create`, of a device that is still open.
        unsafe { (self.opened.functions.destroy)(self.raw) }
    }
}

impl QueuePair {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: it is there as long as this lives.
        unsafe { (self.opened.functions.qpn)(self.raw) }
    }

    /// Connects it; once. The device resolves the peer's Ethernet address.
    pub fn connect(&mut self, connection: &Connection) -> Result<(), VerbsError> {
        let raw = RawConnection {
            peer: gid(connection.peer),
            peer_qpn: connection.peer_qpn,
            send_psn: connection.send_psn,
            receive_psn: connection.receive_psn,
            mtu_bytes: connection.mtu_bytes,
            timeout: connection.timeout,
            retries: connection.retries,
            not_ready_retries: connection.not_ready_retries,
            not_ready_timer: connection.not_ready_timer,
        };
        // SAFETY: it is there, and so is what the pointer is to.
        self.opened.check("connect a queue pair", unsafe {
            (self.opened.functions.connect)(self.raw, &raw const raw)
        })
    }

    /// Posts a send of these bytes of memory, which must not change until it has completed.
    pub fn send(
        &mut self,
        id: u64,
        operation: Operation,
        memory: &Memory,
        range: Range<usize>,
        immediate: Option<u32>,
    ) -> Result<(), VerbsError> {
        // SAFETY: nothing refers to the memory, which is deregistered before it is freed.
        unsafe { self.send_registered(id, operation, immediate, memory.registered(range)) }
    }

    /// Posts a send of registered memory.
    ///
    /// # Safety
    /// Until it has completed or the queue pair is gone, the memory is not written, and is there unless it is deregistered.
    pub(crate) unsafe fn send_registered(
        &mut self,
        id: u64,
        operation: Operation,
        immediate: Option<u32>,
        from: Registered<'_>,
    ) -> Result<(), VerbsError> {
        let (address, bytes, local_key) = from.place()?;
        let mut work = RawWork {
            id,
            address,
            bytes,
            local_key,
            has_immediate: immediate.is_some().into(),
            immediate: immediate.unwrap_or_default(),
            ..RawWork::default()
        };
        if let Operation::Write { address, key } = operation {
            (work.is_write, work.remote_address, work.remote_key) = (1, address, key);
        }
        // SAFETY: it is there, and so is what the pointer is to; the memory as the caller says.
        self.opened
            .check("send", unsafe { (self.opened.functions.send)(self.raw, &raw const work) })
    }

    /// Posts a receive into these bytes of memory.
    pub fn receive(
        &mut self,
        id: u64,
        memory: &Memory,
        range: Range<usize>,
    ) -> Result<(), VerbsError> {
        // SAFETY: as in `send`.
        unsafe { self.receive_registered(id, memory.registered(range)) }
    }

    /// Posts a receive into registered memory.
    ///
    /// # Safety
    /// Until it has completed or the queue pair is gone, the memory is not accessed, and is there unless it is deregistered.
    pub(crate) unsafe fn receive_registered(
        &mut self,
        id: u64,
        into: Registered<'_>,
    ) -> Result<(), VerbsError> {
        let (address, bytes, key) = into.place()?;
        // SAFETY: it is there; the memory as the caller says.
        let result = unsafe { (self.opened.functions.receive)(self.raw, id, address, bytes, key) };
        self.opened.check("post a receive", result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_device_has_finds_none_or_says_what_is_missing() {
        match Device::with_address([192, 0, 2, 1].into(), 0) {
            Ok(found) => assert!(found.is_none()),
            Err(VerbsError::Library { why }) => assert!(!why.is_empty()),
            Err(error) => assert!(matches!(error, VerbsError::Device { .. }), "{error}"),
        }
        let missing = Device::open("none-such", [192, 0, 2, 1].into()).map(|_| ());
        assert!(missing.is_err());
    }
}
