//! Ways by fixed thresholds.

use std::{fmt, str::FromStr};

use crate::{Call, Choice, Kind, Way, links::ALL_PAIRS_MAX};

/// On a ring each member has a part of at least this many bytes of its own: below, the number of steps counts.
const CHUNK_BYTES_MIN: u64 = 4096;

/// Lengths from which on other ways are taken.
///
/// As text, as [`fmt::Display`] writes and [`FromStr`] reads them: names and numbers, separated by commas, such as
/// `degree=3,exchange=0`. Those that are left out are the default's: degree 3, exchange up to 16 KiB, and blocks of 128 KiB from
/// 128 KiB on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// `degree`: that of reductions along trees; 1 to 65,536.
    pub degree: u32,
    /// `exchange`: all-reduces, reduce-scatters and barriers of at most this many bytes go by exchange; with two members, all
    /// that are not long.
    pub exchange_bytes: u64,
    /// `long`: messages of at least this many bytes are long: they go from memory to memory, in blocks.
    pub long_bytes: u64,
    /// `block`: length in bytes of these blocks; 1 to 1 GiB.
    pub block_bytes: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { degree: 3, exchange_bytes: 16 << 10, long_bytes: 128 << 10, block_bytes: 128 << 10 }
    }
}

impl Thresholds {
    /// Returns thresholds by which everything goes along trees, through slots.
    pub fn trees(degree: u32) -> Self {
        Self { degree, exchange_bytes: 0, long_bytes: u64::MAX, ..Self::default() }
    }

    const NAMES: [&'static str; 4] = ["degree", "exchange", "long", "block"];

    /// Returns whether a text begins with one of the names.
    pub(crate) fn are_meant(text: &str) -> bool {
        let name = text.split('=').next().unwrap_or_default();
        Self::NAMES.contains(&name.trim())
    }

    /// Returns whether a call goes from memory to memory.
    fn are_long(&self, call: &Call, members: u32) -> bool {
        let bytes = match call.kind {
            Kind::Barrier | Kind::Close => return false,
            _ => call.all_bytes(members),
        };
        // A chain has as many hops as a ring, and a whole block on each.
        let is_chain =
            matches!(call.kind, Kind::AllReduce | Kind::ReduceScatter) && !call.is_commutative();
        let is_divided = !is_chain || self.have_chunks(call, members);
        members > 1 && bytes > 0 && bytes >= self.long_bytes && is_divided
    }

    /// Returns whether parts of a long call are long enough for a ring.
    fn have_chunks(&self, call: &Call, members: u32) -> bool {
        let chunk_bytes = match call.kind {
            Kind::AllReduce => call.bytes / u64::from(members),
            _ => call.bytes,
        };
        chunk_bytes >= CHUNK_BYTES_MIN.min(self.long_bytes)
    }

    /// Returns the way of a call, with slots that have room for this many bytes.
    pub(crate) fn choose(&self, call: &Call, members: u32, slot_room_bytes: u32) -> Choice {
        if self.are_long(call, members) {
            let way = match call.kind {
                Kind::Broadcast => Way::Circulant,
                _ if !call.is_commutative() => Way::Chain,
                Kind::Reduce => Way::Ring,
                Kind::Scatter | Kind::Gather => match members {
                    0..=ALL_PAIRS_MAX if self.have_chunks(call, members) => Way::Direct,
                    _ => Way::Circulant,
                },
                _ if self.have_chunks(call, members) => Way::Ring,
                _ => Way::Halving,
            };
            return Choice::in_blocks(way, self.block_bytes.into(), call);
        }
        let can_exchange =
            matches!(call.kind, Kind::AllReduce | Kind::ReduceScatter) || call.kind.is_barrier();
        let is_short = members == 2 || call.all_bytes(members) <= self.exchange_bytes;
        let way = if can_exchange && members > 1 && is_short {
            Way::Exchange
        } else {
            Way::Trees { degree: call.kind.goes_up().then_some(self.degree) }
        };
        Choice { way, block_bytes: slot_room_bytes.into() }
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { degree, exchange_bytes, long_bytes, block_bytes } = self;
        write!(f, "degree={degree},exchange={exchange_bytes},long={long_bytes},block={block_bytes}")
    }
}

/// A text that is not [`Thresholds`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidThresholds {
    /// A part without a known name and `=`.
    #[error(
        "\"{0}\" is none of degree, exchange, long and block with a number; use for example degree=3,exchange=0"
    )]
    Unknown(String),
    /// A number that is out of range, or none.
    #[error("{name} is \"{value}\"; use {range}")]
    Value {
        /// The name.
        name: &'static str,
        /// What stands in place of a number.
        value: String,
        /// What it may be.
        range: &'static str,
    },
}

impl FromStr for Thresholds {
    type Err = InvalidThresholds;

    fn from_str(text: &str) -> Result<Self, InvalidThresholds> {
        let mut thresholds = Self::default();
        for part in text.split(',') {
            let unknown = || InvalidThresholds::Unknown(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(unknown)?;
            let name = Self::NAMES.into_iter().find(|known| *known == name.trim());
            let name = name.ok_or_else(unknown)?;
            let (most, range) = match name {
                "degree" => (crate::MEMBERS_MAX.into(), "1 to 65536"),
                "block" => (1 << 30, "1 to 1073741824"),
                _ => (u64::MAX, "a number of bytes"),
            };
            let least = u64::from(most < u64::MAX);
            let number = value.trim().parse().ok();
            let number = number.filter(|number| (least..=most).contains(number));
            let value = || InvalidThresholds::Value { name, value: value.trim().to_owned(), range };
            let number = number.ok_or_else(value)?;
            match name {
                // The casts are lossless: the numbers are in range.
                "degree" => thresholds.degree = number as u32,
                "block" => thresholds.block_bytes = number as u32,
                "exchange" => thresholds.exchange_bytes = number,
                _ => thresholds.long_bytes = number,
            }
        }
        Ok(thresholds)
    }
}
