//! Devices, in libfabric's descriptions.

use super::*;

/// How a peer learns that a write has arrived, and the write's immediate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Immediates {
    /// The write carries data for the peer's queue: the immediate and the link's number.
    Whole,
    /// The write carries an immediate without its highest bit; the receive that it consumes tells the
    /// link. Others are in a control slot, which is written behind it.
    Half,
    /// In a control slot, once this end's queue reports that the write is in the peer's memory. For
    /// networks that report no writes at the peer, or do not order them.
    Behind,
}

/// One way to use one device: libfabric's own description, and the values that rdmc reads from it.
pub struct Info {
    pub(super) raw: Handle,
    pub provider: String,
    pub domain: String,
    pub max_message_bytes: u64,
    pub receives_max: usize,
    pub sends_max: usize,
    /// The longest post that [`inject`] takes.
    pub inject_bytes_max: usize,
    pub link_bits_per_second: Option<u64>,
    pub is_message_endpoint: bool,
    pub needs_local_registration: bool,
    pub writes_consume_receives: bool,
    pub virtual_addresses: bool,
    /// Memory that peers write belongs to one endpoint.
    pub binds_registrations: bool,
    /// Sends match receives in the order of posts.
    pub orders_sends: bool,
    /// Sends and receives can wait for counters.
    pub has_triggers: bool,
    /// `None`: it has no writes.
    pub immediates: Option<Immediates>,
    pub link_is_up: Option<bool>,
}

// SAFETY: the description is plain memory of libfabric that only its owner accesses; the calls that
// read it take it as constant.
unsafe impl Send for Info {}
// SAFETY: as above.
unsafe impl Sync for Info {}

impl Info {
    /// Takes ownership of a description that libfabric made.
    ///
    /// # Safety
    /// `raw` is a valid `fi_info` that is not freed elsewhere.
    pub(super) unsafe fn adopt(raw: Handle) -> Self {
        let mut read = std::mem::MaybeUninit::<RawInfo>::uninit();
        // SAFETY: valid, as the caller ensures; the shim fills all of `read`.
        let read = unsafe {
            rdmc_fabric_info_read(raw, read.as_mut_ptr());
            read.assume_init()
        };
        let text = |start: *const c_char| {
            if start.is_null() {
                return String::new();
            }
            // SAFETY: a terminated string inside the description, which exists.
            unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned()
        };
        Self {
            raw,
            provider: text(read.provider),
            domain: text(read.domain),
            max_message_bytes: read.max_message_bytes,
            receives_max: read.receives_max as usize,
            sends_max: read.sends_max as usize,
            inject_bytes_max: read.inject_bytes_max as usize,
            link_bits_per_second: Some(read.link_bits_per_second).filter(|&speed| speed > 0),
            is_message_endpoint: read.is_message_endpoint != 0,
            needs_local_registration: read.needs_local_registration != 0,
            writes_consume_receives: read.writes_consume_receives != 0,
            virtual_addresses: read.virtual_addresses != 0,
            binds_registrations: read.binds_registrations != 0,
            orders_sends: read.orders_sends != 0,
            has_triggers: read.has_triggers != 0,
            immediates: immediates(&read, &text(read.provider)),
            link_is_up: (read.link_is_up >= 0).then_some(read.link_is_up != 0),
        }
    }
}

fn immediates(read: &RawInfo, provider: &str) -> Option<Immediates> {
    // It refuses writes with data, and does not say so.
    let is_cxi = provider == "cxi";
    let consumes = read.writes_consume_receives != 0;
    let follow = read.orders_sends_behind_writes != 0 && read.is_message_endpoint != 0;
    let way = match read.data_bytes {
        _ if read.orders_writes == 0 || is_cxi => Immediates::Behind,
        _ if consumes && follow => Immediates::Half,
        8.. if !consumes => Immediates::Whole,
        _ => Immediates::Behind,
    };
    (read.has_writes != 0).then_some(way)
}

impl Info {
    /// Copies the description.
    pub fn duplicate(&self) -> Self {
        // SAFETY: a valid description, copied into memory of its own.
        unsafe { Self::adopt(rdmc_fabric_info_copy(self.raw)) }
    }

    /// Copies the description for an endpoint that will connect to this address: verbs chooses the
    /// device's port by it when the endpoint is opened.
    pub fn toward(&self, address: &[u8]) -> Self {
        // SAFETY: a valid description, which is copied; of the address at most its length is read.
        unsafe { Self::adopt(rdmc_fabric_info_toward(self.raw, address.as_ptr(), address.len())) }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: owned by this object, and freed once.
        unsafe { rdmc_fabric_info_free(self.raw) }
    }
}

/// Lists what libfabric offers: for a provider or all, with message endpoints or reliable
/// datagrams, at this source address (a name or number) or all. Empty if there is nothing.
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
        rdmc_fabric_getinfo(
            pointer(&provider),
            message_endpoints.into(),
            pointer(&source),
            &mut first,
        )
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
            infos.push(Info::adopt(rdmc_fabric_info_copy(next)));
            next = rdmc_fabric_info_next(next);
        }
    }
    // SAFETY: the whole list, to which there are no references any more.
    unsafe { rdmc_fabric_info_free(first) };
    Ok(infos)
}
