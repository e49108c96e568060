//! Control words between neighbours of a group.

use relay::RelayError;

use crate::{fields::Fields, jobs::Digest, notice::Notice};

/// One control word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Announces the next relayed message, with its number among all messages and its length in
    /// bytes; `delivered` messages are in place at every member.
    Announce { number: u64, bytes: u64, delivered: u64 },
    /// Grants `count` more posted receives, at least one (`ready_for_block`, DSN 2018 section 4.2);
    /// `received` messages are in place here and in the subtree of the announcement tree.
    Grant { count: u32, received: u64 },
    /// This many slots of the ring of small messages have been freed so far; the first of these
    /// words announces the ring.
    Freed { count: u64 },
    /// The group has failed.
    Failed(Notice),
    /// From the root down: there are this many messages, and no more will follow.
    Closing { messages: u64 },
    /// From the leaves up: every message is complete here and in the subtree.
    Delivered,
    /// From the root down: every message is complete at every member.
    Confirmed,
    /// After a failure, from the leaves up: this many messages are in place here and in the
    /// subtree.
    Counted { received: u64 },
    /// After a failure, from the root down: this many messages are in place at every member.
    Settled { delivered: u64 },
    /// From the root down: reply once this many messages are in place here and in the subtree.
    Ask { messages: u64 },
    /// From the leaves up: this many messages are in place here and in the subtree.
    Has { received: u64 },
    /// From the root down: the digest of a message, which was announced before.
    Digest { message: u64, digest: Digest },
    /// How long ago this member, or one that it waits for, has made progress.
    Moving { idle_ms: u64 },
    /// The member that has to act before this one can make progress.
    Held { by: u32 },
}

const ANNOUNCE: u8 = 1;
const GRANT: u8 = 2;
const FAILED: u8 = 3;
const CLOSING: u8 = 4;
const DELIVERED: u8 = 5;
const CONFIRMED: u8 = 6;
const FREED: u8 = 9;
const MOVING: u8 = 10;
const HELD: u8 = 11;
const COUNTED: u8 = 12;
const SETTLED: u8 = 13;
const ASK: u8 = 14;
const HAS: u8 = 15;
const DIGEST: u8 = 16;

impl Word {
    /// Encodes the word in at most [`transport::CONTROL_BYTES_MAX`] bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let counted = |kind: u8, count: &u64| [&[kind][..], &count.to_le_bytes()].concat();
        match self {
            Self::Announce { number, bytes, delivered } => {
                let numbers = [number, bytes, delivered].map(|number| number.to_le_bytes());
                [&[ANNOUNCE], numbers.as_flattened()].concat()
            }
            // One for each block or two: faster than by joining slices.
            Self::Grant { count, received } => {
                let mut bytes = Vec::with_capacity(13);
                bytes.push(GRANT);
                bytes.extend(count.to_le_bytes());
                bytes.extend(received.to_le_bytes());
                bytes
            }
            Self::Freed { count } => counted(FREED, count),
            Self::Failed(notice) => notice.encode(FAILED),
            Self::Closing { messages } => counted(CLOSING, messages),
            Self::Delivered => vec![DELIVERED],
            Self::Confirmed => vec![CONFIRMED],
            Self::Counted { received } => counted(COUNTED, received),
            Self::Settled { delivered } => counted(SETTLED, delivered),
            Self::Ask { messages } => counted(ASK, messages),
            Self::Has { received } => counted(HAS, received),
            Self::Digest { message, digest } => {
                [&[DIGEST][..], &message.to_le_bytes(), digest].concat()
            }
            Self::Moving { idle_ms } => counted(MOVING, idle_ms),
            Self::Held { by } => [&[HELD][..], &by.to_le_bytes()].concat(),
        }
    }

    /// Decodes a word of a group of this many members; `None` for anything that [`Word::encode`] does not
    /// produce, and for ranks of no member.
    pub(crate) fn decode(bytes: &[u8], members: u32) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let word = match fields.u8()? {
            ANNOUNCE => Self::Announce {
                number: fields.u64()?,
                bytes: fields.u64()?,
                delivered: fields.u64()?,
            },
            GRANT => {
                let count = fields.u32().filter(|&count| count > 0)?;
                Self::Grant { count, received: fields.u64()? }
            }
            FREED => Self::Freed { count: fields.u64()? },
            FAILED => Self::Failed(Notice::decode(&mut fields, members)?),
            CLOSING => Self::Closing { messages: fields.u64()? },
            DELIVERED => Self::Delivered,
            CONFIRMED => Self::Confirmed,
            COUNTED => Self::Counted { received: fields.u64()? },
            SETTLED => Self::Settled { delivered: fields.u64()? },
            ASK => Self::Ask { messages: fields.u64()? },
            HAS => Self::Has { received: fields.u64()? },
            DIGEST => Self::Digest { message: fields.u64()?, digest: fields.array()? },
            MOVING => Self::Moving { idle_ms: fields.u64()? },
            HELD => Self::Held { by: fields.u32().filter(|&by| by < members)? },
            _ => return None,
        };
        fields.are_read().then_some(word)
    }

    /// Returns the error of a neighbour that has written this word when it was not its turn.
    pub(crate) fn out_of_turn(&self, rank: u32) -> RelayError {
        RelayError::peer(rank, format!("wrote {self:?} out of turn"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use schedule::MAX_MEMBERS;

    use super::*;
    use crate::FailureKind;

    #[test]
    fn words_come_back() {
        let (member, kind, detail) = (None, FailureKind::Stalled, "why".into());
        let failed = Word::Failed(Notice { member, reporter: 7, kind, detail });
        for word in [
            Word::Announce { number: 3, bytes: u64::MAX, delivered: 2 },
            Word::Freed { count: 7 },
            Word::Grant { count: 1, received: 0 },
            Word::Grant { count: u32::MAX, received: u64::MAX },
            failed,
            Word::Closing { messages: 3 },
            Word::Delivered,
            Word::Confirmed,
            Word::Counted { received: 5 },
            Word::Settled { delivered: 4 },
            Word::Ask { messages: 6 },
            Word::Has { received: 7 },
            Word::Digest { message: 8, digest: [9; 32] },
            Word::Moving { idle_ms: 250 },
            Word::Held { by: 1_000 },
        ] {
            assert_eq!(Word::decode(&word.encode(), MAX_MEMBERS), Some(word));
        }
    }

    #[test]
    fn nobody_is_held_up_by_no_member() {
        let held = Word::Held { by: 5 };
        assert_eq!(Word::decode(&held.encode(), 5), None);
        assert_eq!(Word::decode(&held.encode(), 6), Some(held));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_themselves_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..=64)) {
            if let Some(word) = Word::decode(&bytes, MAX_MEMBERS) {
                prop_assert_eq!(word.encode(), bytes);
            }
        }
    }
}
