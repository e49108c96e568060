//! One-sided writes: memory exposed by either end, and writes that wait to be posted.

use std::collections::{HashMap, VecDeque};

use transport::{PeerMemory, ReadLease, Token};

use crate::native::{
    device::Device,
    lifeline::Lifeline,
    link::{
        ops::Op,
        posting::{CONTROL_TAG, Posting, Trouble, Written},
    },
    pinned, registration,
    ring::{Note, Ring},
    sys::{self, Access, Immediates, Object, Registration, Report},
};

/// The highest immediate that a write can carry itself by [`Immediates::Half`].
const HALF_MAX: u32 = u32::MAX >> 1;

/// Memory regions that one link may expose.
const EXPOSED_MAX: usize = 64;

/// The ring's name, outside the 32 bits of names of exposed memory.
pub const RING_NAME: u64 = 1 << 32;

/// Returns a key for memory of this link, for providers that do not choose keys.
pub fn wanted_key(number: u32, name: u64) -> u64 {
    u64::from(number) << 33 | name
}

/// A queued write.
pub struct Write {
    pub from: ReadLease,
    /// The name of the peer's memory that it writes to.
    pub name: u32,
    pub offset: u64,
    /// `None`: the peer does not report it.
    pub immediate: Option<u32>,
    pub token: Token,
}

/// Memory of the peer that this end may write.
struct Exposed {
    key: u64,
    address: u64,
    bytes: u64,
}

/// A write that is not known to be in the peer's memory.
struct Undelivered {
    context: u64,
    immediate: Option<u32>,
    is_done: bool,
}

/// Returns how the peer is to learn of a write of this many bytes with this immediate; `None` while it
/// cannot.
fn report(immediate: Option<u32>, bytes: usize, with: &Posting<'_>) -> Option<Report> {
    let info = &with.devices[0].info;
    let data = |immediate| {
        Report::Data(Written::Memory(immediate).encode(info, with.paths.their_number()))
    };
    match (immediate, info.immediates) {
        // Nothing is delivered of an empty write, for which libfabric 1.17's shm would wait for ever.
        (_, Some(Immediates::Behind)) if bytes == 0 => Some(Report::Nothing),
        (_, Some(Immediates::Behind)) => Some(Report::Delivery),
        (None, _) => Some(Report::Nothing),
        (Some(immediate), Some(Immediates::Whole)) => {
            with.ring.has_number().then(|| data(immediate))
        }
        (Some(immediate), _) => {
            let has_room = with.ring.has_number() && !with.ring.has_waiting_write();
            let is_short = immediate <= HALF_MAX;
            Some(if is_short && has_room { data(immediate) } else { Report::Nothing })
        }
    }
}

/// The writes of one link.
#[derive(Default)]
pub struct WriteQueue {
    exposed_here: HashMap<u32, (Registration, PeerMemory)>,
    exposed_there: HashMap<u32, Exposed>,
    waiting: VecDeque<Write>,
    /// Posted writes in order, where the peer learns of them only when they are in its memory.
    undelivered: VecDeque<Undelivered>,
    /// Name of the peer's memory whose address was requested.
    asked_where: Option<u32>,
}

impl WriteQueue {
    pub fn push(&mut self, write: Write) {
        self.waiting.push_back(write);
    }

    /// Lets the peer write into memory, under this end's own key if the provider does not choose
    /// one. Errors: as text.
    pub fn expose(
        &mut self,
        name: u32,
        memory: PeerMemory,
        key: u64,
        device: &Device,
        endpoint: Option<&Object>,
    ) -> Result<Lifeline, String> {
        if self.exposed_here.contains_key(&name) || self.exposed_here.len() >= EXPOSED_MAX {
            return Err(format!("memory is exposed as {name} already, or in too many pieces"));
        }
        let bytes = memory.len();
        let access = Access::Peers { key };
        let start = memory.pin().ok_or("the memory is shared with a process of this machine")?;
        // SAFETY: the memory is kept beside the registration and dropped after it.
        let registration = unsafe { sys::register(&device.domain, start, bytes, access) }
            .map_err(|error| registration::explain(error, bytes))?;
        if let Some(endpoint) = endpoint.filter(|_| device.info.binds_registrations) {
            sys::bind(&registration, endpoint)
                .map_err(|error| format!("binding memory to an endpoint: {}", error.text()))?;
        }
        let address = if device.info.virtual_addresses { start as u64 } else { 0 };
        let (key, bytes) = (registration.key, bytes as u64);
        self.exposed_here.insert(name, (registration, memory));
        Ok(Lifeline::Exposed { name, key, address, bytes })
    }

    pub fn exposes(&self, name: u32) -> bool {
        self.exposed_here.contains_key(&name)
    }

    /// Stores the address of memory that the peer has exposed. Returns false if it is impossible.
    pub fn learn(&mut self, name: u32, key: u64, address: u64, bytes: u64) -> bool {
        if self.exposed_there.len() >= EXPOSED_MAX || address.checked_add(bytes).is_none() {
            return false;
        }
        self.exposed_there.insert(name, Exposed { key, address, bytes });
        true
    }

    /// Posts as many as the provider accepts. Returns the name of memory whose address to request.
    pub fn post(&mut self, with: &mut Posting<'_>) -> Result<Option<u32>, Trouble> {
        while let Some(Write { from, name, offset, immediate, token }) = self.waiting.pop_front() {
            let again = |from| Write { from, name, offset, immediate, token };
            let Some(exposed) = self.exposed_there.get(&name) else {
                // The announcement, on the lifeline, may not have arrived yet.
                self.waiting.push_front(again(from));
                let is_new = self.asked_where.replace(name) != Some(name);
                return Ok(is_new.then_some(name));
            };
            let (start, bytes) = (from.as_ptr().cast_mut(), from.bytes());
            let end = offset.checked_add(bytes as u64);
            if end.is_none_or(|end| end > exposed.bytes) {
                self.waiting.push_front(again(from));
                let what = format!("exposed {} bytes; a write ends beyond", exposed.bytes);
                return Err(Trouble::Protocol(what));
            }
            let (address, key) = (exposed.address + offset, exposed.key);
            let Some(endpoint) = with.paths.endpoint(0) else { return Ok(None) };
            let registration = match with.devices[0].registrar.cover_to_read(&from) {
                Ok(registration) => registration,
                Err(error) => {
                    self.waiting.push_front(again(from));
                    return Err(Trouble::Memory(error));
                }
            };
            let Some(report) = report(immediate, bytes, with) else {
                self.waiting.push_front(again(from));
                return Ok(None);
            };
            let way = with.paths.way(0, CONTROL_TAG, false);
            let context = with.ops.add(Op::Write(registration.clone(), token, from));
            let span = pinned::span(start, bytes, registration.as_deref());
            // SAFETY: the op holds the read lease until the write completes, or its endpoint is
            // closed (`Ops::clear`).
            let posted =
                unsafe { sys::post_write(&endpoint, way, span, report, address, key, context) };
            if let Err(error) = posted {
                if let Some(Op::Write(.., from)) = with.ops.take(context) {
                    self.waiting.push_front(again(from));
                }
                return Err(Trouble::Refused(error));
            }
            match (with.devices[0].info.immediates, report, immediate) {
                (Some(Immediates::Behind), ..) => {
                    self.undelivered.push_back(Undelivered { context, immediate, is_done: false });
                }
                (_, Report::Data(_), _) => with.ring.wrote_memory(),
                // Posted on the same endpoint behind the write itself: writes arrive in order.
                (_, _, Some(immediate)) => drop(with.ring.push(Note::Written(immediate))),
                (_, _, None) => {}
            }
        }
        Ok(None)
    }

    /// Records that a post was completed. The peer is notified of writes once those before them are in its
    /// memory, too.
    pub fn completed(&mut self, context: u64, ring: &mut Ring) {
        let done = self.undelivered.iter_mut().find(|write| write.context == context);
        if let Some(write) = done {
            write.is_done = true;
        }
        while self.undelivered.front().is_some_and(|write| write.is_done)
            && let Some(write) = self.undelivered.pop_front()
        {
            if let Some(immediate) = write.immediate {
                ring.push(Note::Written(immediate));
            }
        }
    }

    /// Removes the writes that the provider does not have.
    pub fn cancel(&mut self) -> impl Iterator<Item = Token> + '_ {
        self.waiting.drain(..).map(|write| write.token)
    }
}
