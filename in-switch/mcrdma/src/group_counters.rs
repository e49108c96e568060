//! Counters of one group.

use std::net::IpAddr;

use roce::{Aeth, Syndrome};

use crate::{Counter, Counters};

/// What was counted of a group since it was inserted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupCounters {
    /// Of [`Counter::OF_GROUPS`]; the others are 0.
    pub packets: Counters,
    /// Bytes of the packets that [`Counter::Request`] counts, from their IP headers to their ICRCs.
    pub request_bytes: u64,
    /// Where its answers are merged: those of each member, removed ones too, as they were inserted.
    pub members: Vec<(IpAddr, AnswerCounters)>,
}

/// Kinds of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum AnswerKind {
    /// ACK.
    Ack,
    /// NAK of any code.
    Nak,
    /// RNR NAK.
    RnrNak,
    /// Congestion notification packet.
    Cnp,
}

impl AnswerKind {
    /// Of an answer with this AETH; CNPs have none. A reserved syndrome is none of them.
    #[must_use]
    pub fn of(aeth: Option<Aeth>) -> Option<Self> {
        Some(match aeth.map(|aeth| aeth.syndrome) {
            None => Self::Cnp,
            Some(Syndrome::Ack(_)) => Self::Ack,
            Some(Syndrome::Nak(_)) => Self::Nak,
            Some(Syndrome::ReceiverNotReady(_)) => Self::RnrNak,
            Some(Syndrome::Reserved(_)) => return None,
        })
    }
}

const KINDS: usize = 4;

/// The answers of one member, by kind as the member sent them: an ACK may have been forwarded as another member's NAK,
/// which had waited for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AnswerCounters {
    /// Forwarded to the sender, by [`AnswerKind`].
    pub forwarded: [u64; KINDS],
    /// Merged and not forwarded, by [`AnswerKind`].
    pub suppressed: [u64; KINDS],
    /// Dropped: as [`Counter::AnswerDropped`].
    pub dropped: u64,
    /// Dropped: with a wrong ICRC.
    pub icrc_errors: u64,
}

impl AnswerCounters {
    const FORWARDED: [&'static str; KINDS] =
        ["acks_forwarded", "naks_forwarded", "rnr_naks_forwarded", "cnps_forwarded"];
    const SUPPRESSED: [&'static str; KINDS] =
        ["acks_suppressed", "naks_suppressed", "rnr_naks_suppressed", "cnps_suppressed"];

    /// All of them, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let forwarded = Self::FORWARDED.into_iter().zip(self.forwarded);
        let suppressed = Self::SUPPRESSED.into_iter().zip(self.suppressed);
        let dropped = [
            (Counter::AnswerDropped.name(), self.dropped),
            (Counter::IcrcError.name(), self.icrc_errors),
        ];
        forwarded.chain(suppressed).chain(dropped)
    }
}
