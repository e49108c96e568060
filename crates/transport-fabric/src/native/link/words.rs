//! Control words: the ring of slots, its memory, and how slots are written and read.

use std::ops::Range;

use crate::native::{
    buffer::Buffer,
    device::Device,
    lifeline::Lifeline,
    link::{
        ops::{Op, Ops},
        paths::Paths,
        posting::{CONTROL_TAG, Trouble, Written},
        receives::ReceiveQueue,
    },
    ring::{Note, Ring, SLOT_BYTES, SLOTS, Slot, used_bytes},
    sys::{self, Errno, Info, Injection, Object, Report, Span, Way},
};

/// One in this many words has a completion, by which a fabric that carries nothing is noticed.
const CONFIRMED_EVERY: u64 = 16;

/// The control words of one link.
pub struct Words {
    /// The slots that the peer writes.
    slots: Buffer,
    staging: Buffer,
    pub ring: Ring,
    /// Messages that have taken a place, where they are sent instead of written.
    taken: u64,
    /// Words posted since the last one with a completion.
    unconfirmed: u64,
    /// The next word has to have a completion.
    confirms_next: bool,
    /// The provider does not inject, whatever it says.
    refuses_injection: bool,
    /// The address of the peer's slots, once its hello was received.
    peer_slots: Option<(u64, u64)>,
}

fn slot_range(slot: u64) -> Range<usize> {
    let start = slot as usize * SLOT_BYTES;
    start..start + SLOT_BYTES
}

impl Words {
    /// Registers the slots, with `key` for the peer if the provider does not choose one. Errors:
    /// memory for slots cannot be registered.
    pub fn new(device: &Device, key: Option<u64>) -> Result<Self, Errno> {
        let bytes = SLOTS as usize * SLOT_BYTES;
        let buffer = |peer_key| {
            Buffer::new(bytes, &device.domain, device.info.needs_local_registration, peer_key)
        };
        Ok(Self {
            slots: buffer(key)?,
            staging: buffer(None)?,
            ring: Ring::default(),
            taken: 0,
            unconfirmed: 0,
            confirms_next: false,
            refuses_injection: false,
            peer_slots: None,
        })
    }

    /// Returns the first message: the address of this end's control slots.
    pub fn hello(&self, device: &Device) -> Lifeline {
        let (key, address) = self.slots.for_peer(device.info.virtual_addresses);
        Lifeline::Hello { key, address }
    }

    /// Stores the address of the peer's slots. Returns false for a second hello, or an impossible
    /// address.
    pub fn learn(&mut self, key: u64, address: u64) -> bool {
        if self.knows_peer() || address.checked_add(SLOTS * SLOT_BYTES as u64).is_none() {
            return false;
        }
        self.peer_slots = Some((key, address));
        true
    }

    /// Returns whether the peer's hello was received.
    pub fn knows_peer(&self) -> bool {
        self.peer_slots.is_some()
    }

    /// Posts a receive for a control word.
    pub fn post_place(&self, slot: u64, paths: &Paths, ops: &mut Ops) -> Result<(), Errno> {
        let Some(endpoint) = paths.endpoint(0) else { return Ok(()) };
        let way = paths.way(0, CONTROL_TAG, true);
        let context = ops.add(Op::Place);
        let span = match way {
            Way::Connected => Span::EMPTY,
            Way::Tagged { .. } => self.slots.span(slot_range(slot)),
        };
        // SAFETY: this object's buffer, which outlives the endpoint; a slot is read only between
        // its completion and the next post.
        let posted = unsafe { sys::post_receive(&endpoint, way, span, context) };
        if posted.is_err() {
            ops.take(context);
        }
        posted
    }

    /// Queues a word. Returns false if megabytes of words wait for the peer.
    pub fn push(&mut self, word: &[u8]) -> bool {
        self.ring.push(Note::Word(word.to_vec()))
    }

    /// Writes as many words as the peer has free slots; each also announces receives.
    pub fn post(
        &mut self,
        receives: &mut ReceiveQueue,
        info: &Info,
        paths: &Paths,
        ops: &mut Ops,
    ) -> Result<(), Trouble> {
        if !self.knows_peer() {
            return Ok(());
        }
        loop {
            let tell = receives.to_tell();
            let told_until = tell.first + tell.lengths.len() as u64;
            let Some((slot, bytes)) = self.ring.next(tell) else { return Ok(()) };
            let Some(endpoint) = paths.endpoint(0) else { return Ok(()) };
            self.post_slot(slot, &bytes, info, paths, &endpoint, ops).map_err(Trouble::Refused)?;
            receives.told(told_until);
            self.ring.wrote();
        }
    }

    /// Posts a slot, with a completion if one is due or it cannot be injected.
    fn post_slot(
        &mut self,
        slot: u64,
        bytes: &[u8; SLOT_BYTES],
        info: &Info,
        paths: &Paths,
        endpoint: &Object,
        ops: &mut Ops,
    ) -> Result<(), Errno> {
        let used = used_bytes(bytes);
        let start = slot_range(slot).start;
        let way = paths.way(0, CONTROL_TAG, false);
        let (key, address) = self.peer_slots.unwrap_or_default();
        let address = address + start as u64;
        let data = Written::Slot(slot).encode(info, paths.their_number());
        let is_due = self.confirms_next || self.unconfirmed + 1 >= CONFIRMED_EVERY;
        if !is_due && used <= info.inject_bytes_max && !self.refuses_injection {
            let injection = match way {
                Way::Connected => Injection::Write { address, key, data },
                Way::Tagged { peer, tag } => Injection::Tagged { peer, tag, data: slot as u32 },
            };
            if self.inject(endpoint, &bytes[..used], injection)? {
                return Ok(());
            }
        }
        self.staging.copy_in(start, &bytes[..used]);
        let span = self.staging.span(start..start + used);
        let context = ops.add(Op::Word);
        // SAFETY: this object's buffer, which outlives the endpoint, and whose slot does not
        // change before the peer has read it.
        let posted = unsafe {
            match way {
                Way::Connected => {
                    sys::post_write(endpoint, way, span, Report::Data(data), address, key, context)
                }
                Way::Tagged { .. } => sys::post_send(endpoint, way, span, slot as u32, context),
            }
        };
        if posted.is_err() {
            ops.take(context);
            return posted;
        }
        (self.unconfirmed, self.confirms_next) = (0, false);
        Ok(())
    }

    /// Returns false if it has to be posted with a completion instead.
    fn inject(
        &mut self,
        endpoint: &Object,
        bytes: &[u8],
        injection: Injection,
    ) -> Result<bool, Errno> {
        match sys::inject(endpoint, bytes, injection) {
            Ok(()) => self.unconfirmed += 1,
            Err(Errno::AGAIN) => return Err(Errno::AGAIN),
            // If it is the link that has failed, the post with a completion reports it.
            Err(error) => {
                let bytes = bytes.len();
                tracing::debug!(error = error.text(), bytes, "control words are not injected");
                self.refuses_injection = true;
            }
        }
        Ok(!self.refuses_injection)
    }

    /// Has a word posted with a completion if the last one had none. Returns whether there is one to post.
    pub fn confirm(&mut self) -> bool {
        if self.unconfirmed == 0 || self.confirms_next {
            return false;
        }
        self.confirms_next = true;
        if self.ring.is_idle() {
            self.ring.push(Note::Consumed);
        }
        true
    }

    /// Reads the slot that the peer has written. Errors: how the peer broke the protocol.
    pub fn read(&mut self, slot: u64) -> Result<Slot, String> {
        self.read_at(slot, slot)
    }

    /// Returns the place into which the peer's next slot is sent.
    pub fn next_place(&self) -> u64 {
        self.taken % SLOTS
    }

    /// Reads the slot that the peer has sent. Errors: as [`Words::read`].
    pub fn read_sent(&mut self) -> Result<Slot, String> {
        let place = self.next_place();
        self.taken += 1;
        self.read_at(place, self.ring.next_slot())
    }

    fn read_at(&mut self, place: u64, slot: u64) -> Result<Slot, String> {
        let bytes = self.slots.copy_out::<SLOT_BYTES>(slot_range(place % SLOTS).start);
        self.ring.read(slot, &bytes).map_err(Into::into)
    }
}
