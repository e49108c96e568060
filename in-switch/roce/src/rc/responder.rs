//! The receiving end: takes packets in order, places their payload, and answers.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{Aeth, Headers, NakCode, Serial, Syndrome};

/// Memory that the peer may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// Its virtual address.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// Its key.
    pub key: u32,
}

/// Where a packet's bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Into a posted receive.
    Receive {
        /// The caller's name for it.
        id: u64,
        /// Where in it.
        offset: u32,
    },
    /// Into memory that was registered.
    Memory {
        /// The virtual address.
        address: u64,
    },
}

/// A message that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The receive that it consumed: of SENDs, and WRITEs with an immediate.
    pub receive: Option<u64>,
    /// Its length.
    pub bytes: u32,
    /// What came with it.
    pub immediate: Option<u32>,
    /// It was written to memory.
    pub is_write: bool,
}

/// The outcome of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reaction {
    /// Where its payload has to be written, before the answer is sent.
    pub place: Option<Place>,
    /// The message is complete.
    pub arrival: Option<Arrival>,
    /// The answer to send.
    pub answer: Option<(Serial, Aeth)>,
}

/// A message that is being received.
#[derive(Clone, Copy, Debug)]
struct Current {
    is_write: bool,
    /// Where a WRITE began.
    address: u64,
    /// Length of a WRITE, or room for a SEND.
    bytes: u32,
    done_bytes: u32,
}

/// The receiving end of a connection.
#[derive(Clone, Debug)]
pub struct Responder {
    mtu_bytes: u32,
    expected: Serial,
    msn: Serial,
    has_nakked: bool,
    has_ended: bool,
    current: Option<Current>,
    receives: VecDeque<(u64, u32)>,
    memories: Vec<MemoryRegion>,
    not_ready_timer: u8,
    notifies_ns: u64,
}

/// A congestion notification goes out at most once in this time (DCQCN, section 5.2).
const NOTIFICATION_NS: u64 = 50_000;
/// Credit code without a limit (IBA table 45).
const CREDITS_UNLIMITED: u8 = 31;

impl Responder {
    /// `psn_first`: number of the first packet. `not_ready_timer`: code of the time after which the
    /// peer should try again when no receive is posted (IBA table 46).
    #[must_use]
    pub const fn new(mtu_bytes: u32, psn_first: Serial, not_ready_timer: u8) -> Self {
        Self {
            mtu_bytes,
            expected: psn_first,
            msn: Serial::new(0),
            has_nakked: false,
            has_ended: false,
            current: None,
            receives: VecDeque::new(),
            memories: Vec::new(),
            not_ready_timer,
            notifies_ns: 0,
        }
    }

    /// Posts a receive, behind those that were posted before.
    pub fn post_receive(&mut self, id: u64, bytes: u32) {
        self.receives.push_back((id, bytes));
    }

    /// Registers memory that the peer may write.
    pub fn register(&mut self, memory: MemoryRegion) {
        self.memories.push(memory);
    }

    /// How many receives are posted.
    #[must_use]
    pub fn receives(&self) -> usize {
        self.receives.len()
    }

    /// The expected PSN.
    #[must_use]
    pub const fn expected(&self) -> Serial {
        self.expected
    }

    /// A packet was marked by ECN: whether a CNP is due.
    pub const fn congested(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.notifies_ns;
        if is_due {
            self.notifies_ns = now_ns + NOTIFICATION_NS;
        }
        is_due
    }

    /// An intact request has come, with this many bytes of payload.
    pub fn receive(&mut self, headers: &Headers, payload_bytes: u32) -> Reaction {
        let bth = headers.bth;
        let ahead = bth.psn.ahead_of(self.expected);
        if self.has_ended || !bth.opcode.has_payload() {
            return Reaction::default();
        }
        if ahead < 0 {
            // A duplicate: its answer was lost.
            return self.answer(self.expected.minus(1), Syndrome::Ack(CREDITS_UNLIMITED));
        }
        if ahead > 0 {
            if self.has_nakked {
                return Reaction::default();
            }
            self.has_nakked = true;
            return self.answer(self.expected, Syndrome::Nak(NakCode::Sequence));
        }
        match self.take(headers, payload_bytes) {
            Ok((place, arrival)) => {
                self.has_nakked = false;
                self.expected = self.expected.plus(1);
                let mut reaction = Reaction::default();
                if bth.ack_requested {
                    reaction = self.answer(bth.psn, Syndrome::Ack(CREDITS_UNLIMITED));
                }
                Reaction { place, arrival, ..reaction }
            }
            Err(syndrome) => {
                self.has_ended = matches!(syndrome, Syndrome::Nak(_));
                // No NAK for packets that arrive before the peer goes back.
                self.has_nakked = true;
                self.answer(bth.psn, syndrome)
            }
        }
    }

    fn answer(&self, psn: Serial, syndrome: Syndrome) -> Reaction {
        let aeth = Aeth { syndrome, msn: self.msn };
        Reaction { answer: Some((psn, aeth)), ..Reaction::default() }
    }

    fn take(
        &mut self,
        headers: &Headers,
        payload_bytes: u32,
    ) -> Result<(Option<Place>, Option<Arrival>), Syndrome> {
        const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);
        let opcode = headers.bth.opcode;
        let current = match self.current {
            _ if opcode.is_unicast() => return Err(INVALID),
            None if opcode.begins() => self.begin(headers)?,
            Some(current) if !opcode.begins() && current.is_write == opcode.is_write() => current,
            _ => return Err(INVALID),
        };
        let done_bytes = current.done_bytes.checked_add(payload_bytes).ok_or(INVALID)?;
        let is_short = payload_bytes < self.mtu_bytes && !opcode.ends();
        let is_wrong_end = current.is_write && opcode.ends() && done_bytes != current.bytes;
        if is_short || is_wrong_end || payload_bytes > self.mtu_bytes || done_bytes > current.bytes
        {
            return Err(INVALID);
        }
        let takes_receive = opcode.ends() && (!current.is_write || opcode.has_immediate());
        if takes_receive && self.receives.is_empty() {
            return Err(Syndrome::ReceiverNotReady(self.not_ready_timer));
        }
        let place = match self.receives.front() {
            _ if payload_bytes == 0 => None,
            _ if current.is_write => {
                let address = current.address.wrapping_add(current.done_bytes.into());
                Some(Place::Memory { address })
            }
            Some(&(id, _)) => Some(Place::Receive { id, offset: current.done_bytes }),
            None => None,
        };
        self.current = (!opcode.ends()).then_some(Current { done_bytes, ..current });
        let arrival = opcode.ends().then(|| {
            self.msn = self.msn.plus(1);
            let receive = takes_receive.then(|| self.receives.pop_front()).flatten();
            Arrival {
                receive: receive.map(|(id, _)| id),
                bytes: done_bytes,
                immediate: headers.immediate,
                is_write: current.is_write,
            }
        });
        Ok((place, arrival))
    }

    fn begin(&self, headers: &Headers) -> Result<Current, Syndrome> {
        if let Some(reth) = headers.reth {
            let is_known = reth.bytes == 0
                || self.memories.iter().any(|memory| {
                    let offset = reth.address.checked_sub(memory.start);
                    memory.key == reth.key
                        && offset.is_some_and(|offset| {
                            offset <= memory.bytes && u64::from(reth.bytes) <= memory.bytes - offset
                        })
                });
            if !is_known {
                return Err(Syndrome::Nak(NakCode::RemoteAccess));
            }
            let (address, bytes) = (reth.address, reth.bytes);
            return Ok(Current { is_write: true, address, bytes, done_bytes: 0 });
        }
        match self.receives.front() {
            Some(&(_, bytes)) => Ok(Current { is_write: false, address: 0, bytes, done_bytes: 0 }),
            None => Err(Syndrome::ReceiverNotReady(self.not_ready_timer)),
        }
    }
}
