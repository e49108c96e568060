//! The shim's functions, and owners of libfabric's objects that close them in order.
//!
//! An owner holds what its object was made of, so whatever is dropped first, libfabric sees
//! endpoints closed before queues, queues before domains, and domains before fabrics; also when
//! opening failed half-way.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long, c_void},
    fmt,
    os::fd::{BorrowedFd, RawFd},
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

pub type Handle = *mut c_void;

#[repr(C)]
struct RawInfo {
    provider: *const c_char,
    domain: *const c_char,
    fabric: *const c_char,
    max_message_bytes: u64,
    receives_max: u64,
    link_bits_per_second: u64,
    is_message_endpoint: c_int,
    needs_local_registration: c_int,
    writes_consume_receives: c_int,
    virtual_addresses: c_int,
    link_is_up: c_int,
}

/// One entry of a completion queue.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct RawCompletion {
    pub context: u64,
    pub bytes: u64,
    pub data: u64,
    pub kind: i32,
    pub error: i32,
    pub provider_error: i32,
    pub has_data: i32,
}

/// [`RawCompletion::kind`] of a write by the peer.
pub const WRITTEN: i32 = 1;

#[repr(C)]
struct RawEvent {
    endpoint: Handle,
    info: Handle,
    kind: i32,
    error: i32,
    parameter_bytes: u32,
    parameter: [u8; 64],
}

unsafe extern "C" {
    fn rdmc_load(why: *mut c_char, why_bytes: usize) -> c_int;
    fn rdmc_version() -> u32;
    fn rdmc_strerror(error: c_int) -> *const c_char;
    fn rdmc_getinfo(
        provider: *const c_char,
        message_endpoints: c_int,
        source: *const c_char,
        first: *mut Handle,
    ) -> c_int;
    fn rdmc_info_next(info: Handle) -> Handle;
    fn rdmc_info_read(info: Handle, out: *mut RawInfo);
    fn rdmc_info_copy(info: Handle) -> Handle;
    fn rdmc_info_free(info: Handle);
    fn rdmc_fabric_open(info: Handle, fabric: *mut Handle) -> c_int;
    fn rdmc_domain_open(fabric: Handle, info: Handle, domain: *mut Handle) -> c_int;
    fn rdmc_eq_open(fabric: Handle, eq: *mut Handle) -> c_int;
    fn rdmc_cq_open(domain: Handle, entries: usize, with_wait: c_int, cq: *mut Handle) -> c_int;
    fn rdmc_wait_fd(object: Handle, fd: *mut c_int) -> c_int;
    fn rdmc_try_wait(fabric: Handle, objects: *mut Handle, count: c_int) -> c_int;
    fn rdmc_av_open(domain: Handle, av: *mut Handle) -> c_int;
    fn rdmc_av_insert(av: Handle, address: *const u8, peer: *mut u64) -> c_int;
    fn rdmc_passive_open(fabric: Handle, info: Handle, eq: Handle, out: *mut Handle) -> c_int;
    fn rdmc_endpoint_open(
        domain: Handle,
        info: Handle,
        cq: Handle,
        eq: Handle,
        av: Handle,
        out: *mut Handle,
    ) -> c_int;
    fn rdmc_name(object: Handle, address: *mut u8, bytes: *mut usize) -> c_int;
    fn rdmc_connect(
        endpoint: Handle,
        address: *const u8,
        parameter: *const u8,
        bytes: usize,
    ) -> c_int;
    fn rdmc_accept(endpoint: Handle) -> c_int;
    fn rdmc_reject(passive: Handle, info: Handle) -> c_int;
    fn rdmc_shutdown(endpoint: Handle) -> c_int;
    fn rdmc_close(object: Handle) -> c_int;
    fn rdmc_register(
        domain: Handle,
        start: *const u8,
        bytes: usize,
        for_peers: c_int,
        writable: c_int,
        wanted_key: u64,
        registration: *mut Handle,
        description: *mut Handle,
        key: *mut u64,
    ) -> c_int;
    fn rdmc_receive(ep: Handle, start: *mut u8, bytes: usize, desc: Handle, context: u64)
    -> c_long;
    fn rdmc_send(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        description: Handle,
        data: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_tagged_receive(
        endpoint: Handle,
        start: *mut u8,
        bytes: usize,
        description: Handle,
        peer: u64,
        tag: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_tagged_send(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        description: Handle,
        data: u64,
        peer: u64,
        tag: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_write(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        description: Handle,
        data: *const u64,
        address: u64,
        key: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_cq_read(cq: Handle, out: *mut RawCompletion, count: usize) -> c_long;
    fn rdmc_eq_read(eq: Handle, out: *mut RawEvent) -> c_int;
}

/// A negative errno of libfabric, made positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Try again later: a queue is full.
    pub const AGAIN: Self = Self(11);
    /// The memory that was posted is too short.
    pub const TRUNCATED: Self = Self(265);

    /// In libfabric's words.
    pub fn text(self) -> String {
        // SAFETY: the library is loaded (nothing makes an `Errno` before), and it answers any
        // number with a static string.
        let text = unsafe { CStr::from_ptr(rdmc_strerror(self.0)) };
        text.to_string_lossy().into_owned()
    }
}

fn check(result: c_int) -> Result<(), Errno> {
    if result < 0 { Err(Errno(-result)) } else { Ok(()) }
}

fn posted(result: c_long) -> Result<(), Errno> {
    if result < 0 { Err(Errno(-result as i32)) } else { Ok(()) }
}

/// Opens the library, once for the process. Errors: it is not there; in the system's words.
pub fn load() -> Result<(), String> {
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut why = [0_u8; 512];
    // SAFETY: the shim writes a terminated string of at most this length, and loads only once
    // since the lock is held.
    if unsafe { rdmc_load(why.as_mut_ptr().cast(), why.len()) } == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&why).unwrap_or(c"unknown error");
    Err(text.to_string_lossy().into_owned())
}

/// Major and minor version of the loaded library.
pub fn version() -> (u32, u32) {
    // SAFETY: the library is loaded; the function has no argument.
    let version = unsafe { rdmc_version() };
    (version >> 16, version & 0xffff)
}

/// One way to use one device: libfabric's own description, and what rdmc reads of it.
pub struct Info {
    raw: Handle,
    pub provider: String,
    pub domain: String,
    pub max_message_bytes: u64,
    pub receives_max: usize,
    pub link_bits_per_second: Option<u64>,
    pub is_message_endpoint: bool,
    pub needs_local_registration: bool,
    pub writes_consume_receives: bool,
    pub virtual_addresses: bool,
    pub link_is_up: Option<bool>,
}

// SAFETY: the description is plain memory of libfabric's that only its owner reaches; it is read by
// calls that take it as constant.
unsafe impl Send for Info {}
// SAFETY: as above.
unsafe impl Sync for Info {}

impl Info {
    /// Takes over a description that libfabric made.
    ///
    /// # Safety
    /// `raw` is a valid `fi_info` that nobody else frees.
    unsafe fn adopt(raw: Handle) -> Self {
        let mut read = std::mem::MaybeUninit::<RawInfo>::uninit();
        // SAFETY: valid by the caller's promise; the shim fills all of `read`.
        let read = unsafe {
            rdmc_info_read(raw, read.as_mut_ptr());
            read.assume_init()
        };
        let text = |start: *const c_char| {
            if start.is_null() {
                return String::new();
            }
            // SAFETY: a terminated string inside the description, which lives.
            unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned()
        };
        Self {
            raw,
            provider: text(read.provider),
            domain: text(read.domain),
            max_message_bytes: read.max_message_bytes,
            receives_max: read.receives_max as usize,
            link_bits_per_second: Some(read.link_bits_per_second).filter(|&speed| speed > 0),
            is_message_endpoint: read.is_message_endpoint != 0,
            needs_local_registration: read.needs_local_registration != 0,
            writes_consume_receives: read.writes_consume_receives != 0,
            virtual_addresses: read.virtual_addresses != 0,
            link_is_up: (read.link_is_up >= 0).then_some(read.link_is_up != 0),
        }
    }
}

impl Info {
    /// Another description of the same.
    pub fn duplicate(&self) -> Self {
        // SAFETY: a valid description, copied into memory of its own.
        unsafe { Self::adopt(rdmc_info_copy(self.raw)) }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: ours, and freed once.
        unsafe { rdmc_info_free(self.raw) }
    }
}

/// What libfabric offers: for a provider or all, with message endpoints or reliable datagrams, at
/// this source address (a name or number) or all. Empty if there is nothing.
pub fn infos(
    provider: Option<&str>,
    message_endpoints: bool,
    source: Option<&str>,
) -> Result<Vec<Info>, Errno> {
    const NO_DATA: Errno = Errno(61);
    let text = |text: Option<&str>| text.map(|text| CString::new(text).unwrap_or_default());
    let (provider, source) = (text(provider), text(source));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |t| t.as_ptr());
    let mut first = ptr::null_mut();
    // SAFETY: terminated strings or null, alive during the call; the library is loaded.
    let result = unsafe {
        rdmc_getinfo(pointer(&provider), message_endpoints.into(), pointer(&source), &mut first)
    };
    match check(result) {
        Err(NO_DATA) => return Ok(Vec::new()),
        other => other?,
    }
    let mut infos = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list, copied (without its successors) into memory of its own.
        unsafe {
            infos.push(Info::adopt(rdmc_info_copy(next)));
            next = rdmc_info_next(next);
        }
    }
    // SAFETY: the whole list, which nobody refers to any more.
    unsafe { rdmc_info_free(first) };
    Ok(infos)
}

/// An object of libfabric, closed when dropped, after which what it was made of may go.
pub struct Object {
    raw: Handle,
    /// Dropped after the object itself is closed.
    _made_of: Vec<Arc<Object>>,
}

// SAFETY: domains are opened with FI_THREAD_SAFE, so any thread may call; nobody reaches the
// object but through this crate's calls.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    fn new(raw: Handle, made_of: &[&Arc<Self>]) -> Arc<Self> {
        Arc::new(Self { raw, _made_of: made_of.iter().map(|&object| Arc::clone(object)).collect() })
    }

    /// What events call it.
    pub fn address(&self) -> usize {
        self.raw as usize
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({:p})", self.raw)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: open, and closed once; whatever was made of it held an `Arc` of it and is closed.
        let result = unsafe { rdmc_close(self.raw) };
        if let Err(error) = check(result) {
            tracing::warn!(error = error.text(), "an object of libfabric was not closed");
        }
    }
}

/// Calls an opening function of the shim, and owns what it made.
macro_rules! open {
    ($call:ident($($argument:expr),*), made of $($part:expr),*) => {{
        let mut raw: Handle = ptr::null_mut();
        // SAFETY: all arguments are open objects or live descriptions, as their types say, and the
        // shim stores an object in `raw` only if it succeeds.
        check(unsafe { $call($($argument,)* &mut raw) })?;
        Object::new(raw, &[$($part),*])
    }};
}

pub fn open_fabric(info: &Info) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_fabric_open(info.raw), made of))
}

pub fn open_domain(fabric: &Arc<Object>, info: &Info) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_domain_open(fabric.raw, info.raw), made of fabric))
}

pub fn open_event_queue(fabric: &Arc<Object>) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_eq_open(fabric.raw), made of fabric))
}

pub fn open_completion_queue(
    domain: &Arc<Object>,
    entries: usize,
    with_wait: bool,
) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_cq_open(domain.raw, entries, with_wait.into()), made of domain))
}

pub fn open_address_vector(domain: &Arc<Object>) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_av_open(domain.raw), made of domain))
}

pub fn open_passive(
    fabric: &Arc<Object>,
    info: &Info,
    events: &Arc<Object>,
) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_passive_open(fabric.raw, info.raw, events.raw), made of fabric, events))
}

/// An endpoint that is enabled, with connection events (message endpoints) or an address vector
/// (reliable datagrams).
pub fn open_endpoint(
    domain: &Arc<Object>,
    info: &Info,
    completions: &Arc<Object>,
    events: Option<&Arc<Object>>,
    addresses: Option<&Arc<Object>>,
) -> Result<Arc<Object>, Errno> {
    let raw = |object: Option<&Arc<Object>>| object.map_or(ptr::null_mut(), |object| object.raw);
    let (eq, av) = (raw(events), raw(addresses));
    let endpoint = open!(
        rdmc_endpoint_open(domain.raw, info.raw, completions.raw, eq, av),
        made of domain, completions, events.or(addresses).unwrap_or(domain)
    );
    Ok(endpoint)
}

/// The file descriptor that says when a queue has something, if it has one.
pub fn wait_fd(queue: &Object) -> Option<RawFd> {
    let mut fd: c_int = -1;
    // SAFETY: an open queue; the shim stores a descriptor that the queue keeps.
    check(unsafe { rdmc_wait_fd(queue.raw, &mut fd) }).ok()?;
    (fd >= 0).then_some(fd)
}

/// The descriptor of [`wait_fd`], borrowed from the queue that keeps it.
pub fn borrow_fd(_queue: &Object, fd: RawFd) -> BorrowedFd<'_> {
    // SAFETY: the queue keeps the descriptor open until it is closed, which the borrow outlives not.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Whether it is safe to sleep on these queues' descriptors: nothing is there to be read.
pub fn may_wait(fabric: &Object, queues: &[&Object]) -> bool {
    let mut raw: Vec<Handle> = queues.iter().map(|queue| queue.raw).collect();
    // SAFETY: open queues of this fabric.
    unsafe { rdmc_try_wait(fabric.raw, raw.as_mut_ptr(), raw.len() as c_int) == 0 }
}

pub fn insert_address(vector: &Object, address: &[u8]) -> Result<u64, Errno> {
    let mut peer = 0;
    // SAFETY: an open address vector. The provider reads as many bytes as its format has, or up to
    // a terminating zero: callers give an address padded by zeros (`offer`).
    check(unsafe { rdmc_av_insert(vector.raw, address.as_ptr(), &mut peer) })?;
    Ok(peer)
}

/// Where an object can be reached, in the provider's format.
pub fn name_of(object: &Object) -> Result<Vec<u8>, Errno> {
    let mut address = vec![0_u8; 512];
    let mut bytes = address.len();
    // SAFETY: an open endpoint, and room of that many bytes.
    check(unsafe { rdmc_name(object.raw, address.as_mut_ptr(), &mut bytes) })?;
    address.truncate(bytes);
    Ok(address)
}

/// Starts to connect; an event tells the outcome. The address is padded as for
/// [`insert_address`].
pub fn connect(endpoint: &Object, address: &[u8], parameter: &[u8]) -> Result<(), Errno> {
    // SAFETY: an open endpoint; the parameter is copied. On the address see `insert_address`.
    check(unsafe {
        rdmc_connect(endpoint.raw, address.as_ptr(), parameter.as_ptr(), parameter.len())
    })
}

pub fn accept(endpoint: &Object) -> Result<(), Errno> {
    // SAFETY: an open endpoint that was made of a request.
    check(unsafe { rdmc_accept(endpoint.raw) })
}

pub fn reject(passive: &Object, request: &Info) {
    // SAFETY: an open passive endpoint, and a request that came to it and was not answered.
    let _ = unsafe { rdmc_reject(passive.raw, request.raw) };
}

/// Ends the connection; what is posted is flushed.
pub fn shut_down(endpoint: &Object) {
    // SAFETY: an open endpoint.
    let _ = unsafe { rdmc_shutdown(endpoint.raw) };
}

/// Memory that the network may reach.
pub struct Registration {
    object: Arc<Object>,
    description: Handle,
    /// By which peers name it.
    pub key: u64,
}

// SAFETY: the description is a token of the provider's that is only handed back to it.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

/// Who may reach registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// This host's own sends and writes, and receives if `writable`.
    Local { writable: bool },
    /// Writes of peers, under this key unless the provider chooses.
    Peers { key: u64 },
}

/// Registers memory without touching it.
///
/// # Safety
/// The memory stays valid until the registration is dropped.
pub unsafe fn register(
    domain: &Arc<Object>,
    start: *const u8,
    bytes: usize,
    access: Access,
) -> Result<Registration, Errno> {
    let (for_peers, writable, wanted) = match access {
        Access::Local { writable } => (false, writable, 0),
        Access::Peers { key } => (true, true, key),
    };
    let (mut raw, mut description, mut key) = (ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: an open domain, and memory that is valid by the caller's promise.
    check(unsafe {
        rdmc_register(
            domain.raw,
            start,
            bytes,
            for_peers.into(),
            writable.into(),
            wanted,
            &mut raw,
            &mut description,
            &mut key,
        )
    })?;
    Ok(Registration { object: Object::new(raw, &[domain]), description, key })
}

/// A piece of memory for a post.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    pub start: *mut u8,
    pub bytes: usize,
    /// Where the provider asks for one.
    pub registration: Option<&'a Registration>,
}

impl Span<'_> {
    /// No memory at all.
    pub const EMPTY: Self = Self { start: ptr::null_mut(), bytes: 0, registration: None };

    fn description(&self) -> Handle {
        self.registration.map_or(ptr::null_mut(), |registration| {
            debug_assert!(!registration.object.raw.is_null());
            registration.description
        })
    }
}

/// Where a post goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To the one peer of a message endpoint.
    Connected,
    /// To or from this peer of an address vector, with a tag.
    Tagged { peer: u64, tag: u64 },
}

/// Posts a receive.
///
/// # Safety
/// The memory stays valid and is nobody else's until `context` completes or the endpoint is closed.
pub unsafe fn post_receive(
    endpoint: &Object,
    way: Way,
    span: Span<'_>,
    context: u64,
) -> Result<(), Errno> {
    let (start, bytes, description) = (span.start, span.bytes, span.description());
    // SAFETY: an open endpoint, and memory as the caller promises.
    posted(unsafe {
        match way {
            Way::Connected => rdmc_receive(endpoint.raw, start, bytes, description, context),
            Way::Tagged { peer, tag } => {
                rdmc_tagged_receive(endpoint.raw, start, bytes, description, peer, tag, context)
            }
        }
    })
}

/// Posts a send.
///
/// # Safety
/// The memory stays valid and unchanged until `context` completes or the endpoint is closed.
pub unsafe fn post_send(
    endpoint: &Object,
    way: Way,
    span: Span<'_>,
    data: u32,
    context: u64,
) -> Result<(), Errno> {
    let (start, bytes, description) = (span.start.cast_const(), span.bytes, span.description());
    let data = data.into();
    // SAFETY: an open endpoint, and memory as the caller promises.
    posted(unsafe {
        match way {
            Way::Connected => rdmc_send(endpoint.raw, start, bytes, description, data, context),
            Way::Tagged { peer, tag } => {
                rdmc_tagged_send(endpoint.raw, start, bytes, description, data, peer, tag, context)
            }
        }
    })
}

/// Posts a one-sided write into memory of the peer's, at `address` as the peer has told; the peer's
/// queue tells of it only if there is `data`.
///
/// # Safety
/// As for [`post_send`].
pub unsafe fn post_write(
    endpoint: &Object,
    span: Span<'_>,
    data: Option<u32>,
    address: u64,
    key: u64,
    context: u64,
) -> Result<(), Errno> {
    let (start, bytes, description) = (span.start.cast_const(), span.bytes, span.description());
    let data = data.map(u64::from);
    let data = data.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: an open, connected message endpoint, memory as the caller promises, and `data`, which
    // is read during the call.
    posted(unsafe {
        rdmc_write(endpoint.raw, start, bytes, description, data, address, key, context)
    })
}

/// Reads completions, those with an error one at a time. Errors: the queue itself failed.
pub fn read_completions(queue: &Object, into: &mut [RawCompletion]) -> Result<usize, Errno> {
    // SAFETY: an open queue, and room for that many entries.
    let count = unsafe { rdmc_cq_read(queue.raw, into.as_mut_ptr(), into.len()) };
    if count < 0 { Err(Errno(-count as i32)) } else { Ok(count as usize) }
}

/// What has happened to a connection.
pub enum Event {
    /// Somebody wants to connect.
    Request { info: Info, parameter: Vec<u8> },
    /// The connection of the endpoint with this address stands.
    Connected { endpoint: usize },
    /// The other end has closed it.
    ShutDown { endpoint: usize },
    /// It could not be made, or broke.
    Failed { endpoint: usize, error: Errno },
}

/// The next event of a queue. Errors: the queue itself failed.
pub fn next_event(queue: &Object) -> Result<Option<Event>, Errno> {
    const REQUEST: i32 = 1;
    const CONNECTED: i32 = 2;
    const SHUT_DOWN: i32 = 3;
    const FAILED: i32 = 4;
    let mut raw = std::mem::MaybeUninit::<RawEvent>::uninit();
    // SAFETY: an open queue; the shim fills all of `raw` before it does anything else.
    let (count, raw) = unsafe {
        let count = rdmc_eq_read(queue.raw, raw.as_mut_ptr());
        (count, raw.assume_init())
    };
    check(count)?;
    if count == 0 {
        return Ok(None);
    }
    let endpoint = raw.endpoint as usize;
    Ok(match raw.kind {
        REQUEST if !raw.info.is_null() => {
            // SAFETY: a request's description is the reader's to free.
            let info = unsafe { Info::adopt(raw.info) };
            let bytes = (raw.parameter_bytes as usize).min(raw.parameter.len());
            Some(Event::Request { info, parameter: raw.parameter[..bytes].to_vec() })
        }
        CONNECTED => Some(Event::Connected { endpoint }),
        SHUT_DOWN => Some(Event::ShutDown { endpoint }),
        FAILED => Some(Event::Failed { endpoint, error: Errno(raw.error) }),
        _ => None,
    })
}
