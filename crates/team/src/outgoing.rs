//! What this member writes to a linked one, and whether that is reported there.

use collective::{Header, Ring};
use transport::{EndpointId, PostError, Token, Transport};

use crate::{
    TeamSettings,
    ends::Marks,
    flags::Flags,
    slots::{self, as_words},
    staging::Staging,
};

/// The writes to both rings that a linked member exposes.
pub(crate) struct Outgoing {
    flags: Flags,
    slot_bytes: usize,
    /// What the member looks at.
    pub(crate) marks: Marks,
    /// Writes to each ring.
    written: [u64; 2],
    /// The member waits in its transport for the next write, which has to be reported.
    sleeps: bool,
}

impl Outgoing {
    pub(crate) fn new(settings: &TeamSettings) -> Self {
        Self {
            flags: Flags::new(settings.core.slots, settings.planted),
            slot_bytes: settings.core.slot_bytes as usize,
            marks: Marks::default(),
            written: [0; 2],
            sleeps: false,
        }
    }

    /// Writes contents with their header to the next slot of a ring. `staging` has room.
    ///
    /// Errors: of the transport; nothing is staged.
    pub(crate) fn write<T: Transport>(
        &mut self,
        transport: &mut T,
        endpoint: EndpointId,
        staging: &mut Staging,
        ring: Ring,
        contents: &[u8],
        mut header: Header,
    ) -> Result<(), PostError> {
        let number = self.written[ring as usize];
        header.flag = self.flags.byte(number);
        let in_words = self.marks.words && as_words(contents.len(), self.slot_bytes).is_some();
        let is_seen = (in_words || self.marks.last_byte) && !self.sleeps;
        let (staged, lease) =
            staging.stage(contents, &header, in_words.then_some((self.flags, number)));
        let offset = self.flags.end(number, self.slot_bytes) - lease.bytes() as u64;
        let immediate = (!is_seen).then_some(slots::immediate(ring, number));
        let (key, token) = (slots::key(ring), Token(u64::from(staged)));
        let writes = transport.one_sided().ok_or(PostError::Unsupported("one-sided writes"));
        let posted = writes
            .and_then(|writes| writes.post_write(endpoint, lease, key, offset, immediate, token));
        match posted {
            Ok(()) => {
                self.written[ring as usize] += 1;
                self.sleeps &= is_seen;
            }
            Err(_) => staging.free(staged),
        }
        posted
    }

    /// Notes that the member sleeps until the next write, having seen this many of each ring. Returns
    /// whether it has to be woken at once, since there are more. Errors: there were not that many.
    pub(crate) fn note_sleep(&mut self, seen: [u64; 2]) -> Result<bool, &'static str> {
        if seen.iter().zip(self.written).any(|(&seen, written)| seen > written) {
            return Err("it has seen writes that were not made");
        }
        self.sleeps = seen == self.written;
        Ok(!self.sleeps)
    }
}
