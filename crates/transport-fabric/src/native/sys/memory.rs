//! Registered memory, and posts that use it.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that are not sent to peers, for providers that do not choose keys: above all others, each
/// used once.
static LOCAL_KEYS: AtomicU64 = AtomicU64::new(1 << 63);

/// Memory that the network may access.
pub struct Registration {
    object: Arc<Object>,
    description: Handle,
    /// The key by which peers name it.
    pub key: u64,
}

// SAFETY: the description is a token of the provider that is only passed back to it.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

/// The accesses for which memory is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// This host's own sends and writes, and receives if `writable`.
    Local { writable: bool },
    /// Writes of peers, under this key unless the provider chooses one.
    Peers { key: u64 },
}

/// Registers memory without accessing it.
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
        Access::Local { writable } => (false, writable, LOCAL_KEYS.fetch_add(1, Ordering::Relaxed)),
        Access::Peers { key } => (true, true, key),
    };
    let (mut raw, mut description, mut key) = (ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: an open domain, and memory that is valid, as the caller ensures.
    check(unsafe {
        rdmc_fabric_register(
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

/// Lets peers write memory that was registered for them through this endpoint, where the domain
/// requires that.
pub fn bind(registration: &Registration, endpoint: &Object) -> Result<(), Errno> {
    // SAFETY: an open registration and an open endpoint of its domain.
    check(unsafe { rdmc_fabric_bind_registration(registration.object.raw, endpoint.raw) })
}

/// A part of memory for a post.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    pub start: *mut u8,
    pub bytes: usize,
    /// Set if the provider requires it.
    pub registration: Option<&'a Registration>,
}

impl Span<'_> {
    /// No memory.
    pub const EMPTY: Self = Self { start: ptr::null_mut(), bytes: 0, registration: None };

    pub(super) fn description(&self) -> Handle {
        self.registration.map_or(ptr::null_mut(), |registration| {
            debug_assert!(!registration.object.raw.is_null());
            registration.description
        })
    }
}

/// The destination or source of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The one peer of a message endpoint.
    Connected,
    /// This peer of an address vector, with a tag.
    Tagged { peer: u64, tag: u64 },
}

/// The peer of a message endpoint, which has only one (`FI_ADDR_UNSPEC`).
const UNSPECIFIED: u64 = u64::MAX;

/// Posts a receive.
///
/// # Safety
/// The memory stays valid and is not accessed otherwise until `context` completes or the endpoint is
/// closed.
pub unsafe fn post_receive(
    endpoint: &Object,
    way: Way,
    span: Span<'_>,
    context: u64,
) -> Result<(), Errno> {
    let (start, bytes, description) = (span.start, span.bytes, span.description());
    // SAFETY: an open endpoint, and memory as the caller ensures.
    posted(unsafe {
        match way {
            Way::Connected => rdmc_fabric_receive(endpoint.raw, start, bytes, description, context),
            Way::Tagged { peer, tag } => rdmc_fabric_tagged_receive(
                endpoint.raw,
                start,
                bytes,
                description,
                peer,
                tag,
                context,
            ),
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
    // SAFETY: an open endpoint, and memory as the caller ensures.
    posted(unsafe {
        match way {
            Way::Connected => {
                rdmc_fabric_send(endpoint.raw, start, bytes, description, data, context)
            }
            Way::Tagged { peer, tag } => rdmc_fabric_tagged_send(
                endpoint.raw,
                start,
                bytes,
                description,
                data,
                peer,
                tag,
                context,
            ),
        }
    })
}

/// What is reported of a write besides that its memory is free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    Nothing,
    /// The peer's queue reports it with this data.
    Data(u64),
    /// This end's queue reports it only when it is in the peer's memory.
    Delivery,
}

/// Posts a one-sided write into memory of the peer, at `address` as the peer has sent it.
///
/// # Safety
/// As for [`post_send`].
pub unsafe fn post_write(
    endpoint: &Object,
    way: Way,
    span: Span<'_>,
    report: Report,
    address: u64,
    key: u64,
    context: u64,
) -> Result<(), Errno> {
    let (start, bytes, description) = (span.start.cast_const(), span.bytes, span.description());
    let (data, delivered) = match &report {
        Report::Nothing => (ptr::null(), 0),
        Report::Data(data) => (ptr::from_ref(data), 0),
        Report::Delivery => (ptr::null(), 1),
    };
    let peer = match way {
        Way::Connected => UNSPECIFIED,
        Way::Tagged { peer, .. } => peer,
    };
    // SAFETY: an open endpoint with a peer, memory as the caller ensures, and `data`, which is read
    // during the call.
    posted(unsafe {
        rdmc_fabric_write(
            endpoint.raw,
            start,
            bytes,
            description,
            data,
            delivered,
            peer,
            address,
            key,
            context,
        )
    })
}

/// A short post that has no completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injection {
    /// A write at this address and key of the only peer, whose queue reports it with the data.
    Write { address: u64, key: u64, data: u64 },
    /// A message to this peer of an address vector.
    Tagged { peer: u64, tag: u64, data: u32 },
}

/// Posts at most [`Info::inject_bytes_max`] bytes, which are free again when this returns. Failures after that
/// are reported as the end of the connection, if at all.
pub fn inject(endpoint: &Object, bytes: &[u8], injection: Injection) -> Result<(), Errno> {
    let start = bytes.as_ptr();
    // SAFETY: an open endpoint with a peer, and bytes that are read during the call only.
    posted(unsafe {
        match injection {
            Injection::Write { address, key, data } => rdmc_fabric_inject_write(
                endpoint.raw,
                start,
                bytes.len(),
                data,
                UNSPECIFIED,
                address,
                key,
            ),
            Injection::Tagged { peer, tag, data } => rdmc_fabric_inject_tagged_send(
                endpoint.raw,
                start,
                bytes.len(),
                data.into(),
                peer,
                tag,
            ),
        }
    })
}
