//! Control words between neighbours of a group.

use std::borrow::Cow;

use transport::CONTROL_BYTES_MAX;

use crate::{
    failure::{Failure, FailureKind},
    jobs::Digest,
};

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
    Failed { member: Option<u32>, reporter: u32, kind: FailureKind, detail: String },
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

/// Stands for "no member" where a rank is written; ranks end at 2^20.
const NO_MEMBER: u32 = u32::MAX;

impl Word {
    /// Encodes the word in at most [`CONTROL_BYTES_MAX`] bytes; the detail of a failure is cut to
    /// fit.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        match self {
            Self::Announce { number, bytes: length, delivered } => {
                bytes.push(ANNOUNCE);
                bytes.extend(number.to_le_bytes());
                bytes.extend(length.to_le_bytes());
                bytes.extend(delivered.to_le_bytes());
            }
            Self::Grant { count, received } => {
                bytes.push(GRANT);
                bytes.extend(count.to_le_bytes());
                bytes.extend(received.to_le_bytes());
            }
            Self::Freed { count } => {
                bytes.push(FREED);
                bytes.extend(count.to_le_bytes());
            }
            Self::Failed { member, reporter, kind, detail } => {
                bytes.extend([FAILED, kind.code()]);
                bytes.extend(member.unwrap_or(NO_MEMBER).to_le_bytes());
                bytes.extend(reporter.to_le_bytes());
                bytes.extend(cut(detail, CONTROL_BYTES_MAX - bytes.len()).as_bytes());
            }
            Self::Closing { messages } => {
                bytes.push(CLOSING);
                bytes.extend(messages.to_le_bytes());
            }
            Self::Counted { received } => {
                bytes.push(COUNTED);
                bytes.extend(received.to_le_bytes());
            }
            Self::Settled { delivered } => {
                bytes.push(SETTLED);
                bytes.extend(delivered.to_le_bytes());
            }
            Self::Ask { messages } => {
                bytes.push(ASK);
                bytes.extend(messages.to_le_bytes());
            }
            Self::Has { received } => {
                bytes.push(HAS);
                bytes.extend(received.to_le_bytes());
            }
            Self::Digest { message, digest } => {
                bytes.push(DIGEST);
                bytes.extend(message.to_le_bytes());
                bytes.extend(digest);
            }
            Self::Moving { idle_ms } => {
                bytes.push(MOVING);
                bytes.extend(idle_ms.to_le_bytes());
            }
            Self::Held { by } => {
                bytes.push(HELD);
                bytes.extend(by.to_le_bytes());
            }
            Self::Delivered => bytes.push(DELIVERED),
            Self::Confirmed => bytes.push(CONFIRMED),
        }
        bytes
    }

    /// Decodes a word; `None` for anything that [`Word::encode`] does not produce.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let number = || Some(u64::from_le_bytes(rest.try_into().ok()?));
        match kind {
            ANNOUNCE => {
                let (number, rest) = rest.split_first_chunk()?;
                let (bytes, delivered) = rest.split_first_chunk()?;
                Some(Self::Announce {
                    number: u64::from_le_bytes(*number),
                    bytes: u64::from_le_bytes(*bytes),
                    delivered: u64::from_le_bytes(delivered.try_into().ok()?),
                })
            }
            FREED => Some(Self::Freed { count: number()? }),
            CLOSING => Some(Self::Closing { messages: number()? }),
            COUNTED => Some(Self::Counted { received: number()? }),
            SETTLED => Some(Self::Settled { delivered: number()? }),
            ASK => Some(Self::Ask { messages: number()? }),
            HAS => Some(Self::Has { received: number()? }),
            DIGEST => {
                let (message, digest) = rest.split_first_chunk()?;
                let message = u64::from_le_bytes(*message);
                Some(Self::Digest { message, digest: digest.try_into().ok()? })
            }
            MOVING => Some(Self::Moving { idle_ms: number()? }),
            FAILED => Self::decode_failed(rest),
            GRANT => {
                let (count, received) = rest.split_first_chunk()?;
                let count = u32::from_le_bytes(*count);
                let received = u64::from_le_bytes(received.try_into().ok()?);
                (count > 0).then_some(Self::Grant { count, received })
            }
            HELD => Some(Self::Held { by: u32::from_le_bytes(rest.try_into().ok()?) }),
            DELIVERED if rest.is_empty() => Some(Self::Delivered),
            CONFIRMED if rest.is_empty() => Some(Self::Confirmed),
            _ => None,
        }
    }

    fn decode_failed(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let (member, rest) = rest.split_first_chunk::<4>()?;
        let (reporter, detail) = rest.split_first_chunk::<4>()?;
        let member = u32::from_le_bytes(*member);
        Some(Self::Failed {
            member: (member != NO_MEMBER).then_some(member),
            reporter: u32::from_le_bytes(*reporter),
            kind: FailureKind::from_code(kind)?,
            detail: std::str::from_utf8(detail).ok()?.to_owned(),
        })
    }

    pub(crate) fn of_failure(failure: &Failure) -> Self {
        Self::Failed {
            member: failure.member,
            reporter: failure.reporter,
            kind: failure.kind,
            detail: failure.detail.clone(),
        }
    }
}

/// Returns at most this many bytes of a text, ending in "…" if it was cut.
fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    const REST: &str = "…";
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text[..text.floor_char_boundary(bytes_max - REST.len())].to_owned() + REST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_come_back() {
        let failed = Word::Failed {
            member: None,
            reporter: 7,
            kind: FailureKind::Stalled,
            detail: "why".into(),
        };
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
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
    }

    #[test]
    fn a_long_detail_is_cut_between_characters() {
        let detail = "ä".repeat(100);
        let kind = FailureKind::Memory;
        let bytes = Word::Failed { member: Some(1), reporter: 2, kind, detail }.encode();
        assert!(bytes.len() <= CONTROL_BYTES_MAX);
        let Some(Word::Failed { detail, .. }) = Word::decode(&bytes) else { panic!() };
        let begins = detail.strip_suffix('…').expect("a sign that something is missing");
        assert!(begins.len() > 40 && begins.chars().all(|letter| letter == 'ä'));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_themselves_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..=64)) {
            if let Some(word) = Word::decode(&bytes) {
                prop_assert_eq!(word.encode(), bytes);
            }
        }
    }
}
