//! Context for posting, and the reasons why posting stops.

use transport::Cause;

use crate::native::{
    device::Device,
    link::{ops::Ops, paths::Paths},
    offer::LINK_NUMBER_BITS,
    ring::Ring,
    sys::{self, Errno, RawCompletion},
};

/// The part of a datagram's tag besides the link's number.
pub const DATA_TAG: u64 = 1;
pub const CONTROL_TAG: u64 = 2;
/// The same for an offloaded block, whose tag also has its immediate.
pub const OFFLOAD_TAG: u64 = 3;

/// The verbs provider's error for a block that is longer than the posted memory
/// (`IBV_WC_LOC_LEN_ERR`).
const VERBS_LENGTH_ERROR: i32 = 1;

/// In a write's data where receives tell the link ([`sys::Immediates::Half`]): it wrote a control
/// slot. Otherwise the data is the immediate.
const CONTROL_BIT: u64 = 1 << 31;
/// In place of the number of a control slot: the upper half of the data is the immediate.
const MEMORY: u64 = 0xff;

/// What a peer has written, by the data that its write carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// This control slot.
    Slot(u64),
    /// Exposed memory, with this immediate.
    Memory(u32),
}

impl Written {
    /// Returns the data of a write to the link of this number at the peer.
    pub fn encode(self, info: &sys::Info, number: u32) -> u64 {
        let number = u64::from(number) << 8;
        match (self, info.writes_consume_receives) {
            (Self::Slot(slot), true) => CONTROL_BIT | slot,
            (Self::Memory(immediate), true) => u64::from(immediate),
            (Self::Slot(slot), false) => number | slot,
            (Self::Memory(immediate), false) => u64::from(immediate) << 32 | number | MEMORY,
        }
    }

    /// Decodes the data of a write that has consumed a receive.
    pub fn of_receive(data: u64) -> Self {
        match data & CONTROL_BIT {
            0 => Self::Memory(data as u32),
            _ => Self::Slot(data & 0xff),
        }
    }

    /// Decodes the data of another write, and returns the number of the link.
    pub fn of_link(data: u64) -> (u32, Self) {
        let number = (data >> 8) as u32 & ((1 << LINK_NUMBER_BITS) - 1);
        let written = match data & 0xff {
            MEMORY => Self::Memory((data >> 32) as u32),
            slot => Self::Slot(slot),
        };
        (number, written)
    }
}

/// Context for posting blocks and writes.
pub struct Posting<'a> {
    pub paths: &'a Paths,
    pub ops: &'a mut Ops,
    /// For notes to the peer.
    pub ring: &'a mut Ring,
    pub devices: &'a [Device],
}

/// Why nothing more could be posted.
pub enum Trouble {
    /// The provider has refused the post, temporarily or permanently.
    Refused(Errno),
    /// Memory cannot be registered; the reason.
    Memory(String),
    /// The post violates the protocol; how.
    Protocol(String),
}

/// Returns why a link breaks, by the error of one of its posts.
pub fn cause_of(raw: &RawCompletion, receiving: bool, info: &sys::Info) -> Cause {
    let error = Errno(raw.error);
    let is_verbs = info.provider == "verbs";
    let too_long =
        error == Errno::TRUNCATED || (is_verbs && raw.provider_error == VERBS_LENGTH_ERROR);
    if receiving && too_long {
        Cause::Protocol("sent a block that is longer than the memory for it".into())
    } else {
        Cause::Lost(format!("{} ({})", error.text(), raw.provider_error))
    }
}
