//! Owners of libfabric's objects, and the functions that open them.

use super::*;

/// An object of libfabric, closed when dropped, and before the objects that it was made of.
pub struct Object {
    pub(super) raw: Handle,
    /// Dropped after the object itself is closed.
    _made_of: Vec<Arc<Object>>,
}

// SAFETY: domains are opened with FI_THREAD_SAFE, so any thread may call; the object is accessed
// only through this crate's calls.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    pub(super) fn new(raw: Handle, made_of: &[&Arc<Self>]) -> Arc<Self> {
        Arc::new(Self { raw, _made_of: made_of.iter().map(|&object| Arc::clone(object)).collect() })
    }

    /// Returns the address by which events identify it.
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
        // SAFETY: open, and closed once; everything made of it held an `Arc` of it and is closed.
        let result = unsafe { rdmc_fabric_close(self.raw) };
        if let Err(error) = check(result) {
            tracing::warn!(error = error.text(), "an object of libfabric was not closed");
        }
    }
}

/// Calls an opening function of the shim, and takes ownership of the object.
macro_rules! open {
    ($call:ident($($argument:expr),*), made of $($part:expr),*) => {{
        let mut raw: Handle = ptr::null_mut();
        // SAFETY: all arguments are open objects or existing descriptions, as their types ensure,
        // and the shim stores an object in `raw` only if it succeeds.
        check(unsafe { $call($($argument,)* &mut raw) })?;
        Object::new(raw, &[$($part),*])
    }};
}

pub fn open_fabric(info: &Info) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_fabric_open(info.raw), made of))
}

pub fn open_domain(fabric: &Arc<Object>, info: &Info) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_fabric_domain_open(fabric.raw, info.raw), made of fabric))
}

pub fn open_event_queue(fabric: &Arc<Object>) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_fabric_eq_open(fabric.raw), made of fabric))
}

pub fn open_completion_queue(
    domain: &Arc<Object>,
    entries: usize,
    with_wait: bool,
) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_fabric_cq_open(domain.raw, entries, with_wait.into()), made of domain))
}

pub fn open_address_vector(domain: &Arc<Object>) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_fabric_av_open(domain.raw), made of domain))
}

pub fn open_passive(
    fabric: &Arc<Object>,
    info: &Info,
    events: &Arc<Object>,
) -> Result<Arc<Object>, Errno> {
    Ok(open!(rdmc_fabric_passive_open(fabric.raw, info.raw, events.raw), made of fabric, events))
}

/// Opens and enables an endpoint, with connection events (message endpoints) or an address vector
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
        rdmc_fabric_endpoint_open(domain.raw, info.raw, completions.raw, eq, av),
        made of domain, completions, events.or(addresses).unwrap_or(domain)
    );
    Ok(endpoint)
}

/// Returns the file descriptor that is readable when a queue has an entry, if there is one.
pub fn wait_fd(queue: &Object) -> Option<RawFd> {
    let mut fd: c_int = -1;
    // SAFETY: an open queue; the shim stores a descriptor that the queue keeps.
    check(unsafe { rdmc_fabric_wait_fd(queue.raw, &mut fd) }).ok()?;
    (fd >= 0).then_some(fd)
}

/// Returns the descriptor of [`wait_fd`], borrowed from the queue that owns it.
pub fn borrow_fd(_queue: &Object, fd: RawFd) -> BorrowedFd<'_> {
    // SAFETY: the queue keeps the descriptor open until it is closed, and outlives the borrow.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Returns whether waiting on these queues' descriptors is safe: there is nothing to be read.
pub fn may_wait(fabric: &Object, queues: &[&Object]) -> bool {
    let mut raw: Vec<Handle> = queues.iter().map(|queue| queue.raw).collect();
    // SAFETY: open queues of this fabric.
    unsafe { rdmc_fabric_try_wait(fabric.raw, raw.as_mut_ptr(), raw.len() as c_int) == 0 }
}

pub fn insert_address(vector: &Object, address: &[u8]) -> Result<u64, Errno> {
    let mut peer = 0;
    // SAFETY: an open address vector. The provider reads as many bytes as its format has, or up to
    // a terminating zero: callers pass addresses padded with zeros (`offer`).
    check(unsafe { rdmc_fabric_av_insert(vector.raw, address.as_ptr(), &mut peer) })?;
    Ok(peer)
}

/// Returns the address of an endpoint, in the provider's format.
pub fn name_of(object: &Object) -> Result<Vec<u8>, Errno> {
    let mut address = vec![0_u8; 512];
    let mut bytes = address.len();
    // SAFETY: an open endpoint, and a buffer of that many bytes.
    check(unsafe { rdmc_fabric_name(object.raw, address.as_mut_ptr(), &mut bytes) })?;
    address.truncate(bytes);
    Ok(address)
}

/// Starts to connect; an event reports the outcome. The address is padded as for
/// [`insert_address`].
pub fn connect(endpoint: &Object, address: &[u8], parameter: &[u8]) -> Result<(), Errno> {
    // SAFETY: an open endpoint; the parameter is copied. On the address see `insert_address`.
    check(unsafe {
        rdmc_fabric_connect(endpoint.raw, address.as_ptr(), parameter.as_ptr(), parameter.len())
    })
}

pub fn accept(endpoint: &Object) -> Result<(), Errno> {
    // SAFETY: an open endpoint that was made of a request.
    check(unsafe { rdmc_fabric_accept(endpoint.raw) })
}

pub fn reject(passive: &Object, request: &Info) {
    // SAFETY: an open passive endpoint, and a request that came to it and was not answered.
    let _ = unsafe { rdmc_fabric_reject(passive.raw, request.raw) };
}

/// Ends the connection; posts are flushed.
pub fn shut_down(endpoint: &Object) {
    // SAFETY: an open endpoint.
    let _ = unsafe { rdmc_fabric_shutdown(endpoint.raw) };
}
