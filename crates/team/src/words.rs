//! Control words between linked members.

use collective::{Call, HEADER_BYTES, Header, Ring};
use engine::FailureKind;
use transport::CONTROL_BYTES_MAX;

use crate::{Failure, ends::Marks};

/// One control word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Rings are exposed: writes may begin, and this member looks at these marks of them.
    Exposed(Marks),
    /// This member has seen so many writes to each ring, and waits in its transport for the next one.
    Sleeps { seen: [u64; 2] },
    /// There are writes that a sleeping member had not seen.
    Wake,
    /// So many slots of a ring were freed in all.
    Freed { ring: Ring, count: u64 },
    /// So many blocks of an operation may be sent in all, which this member has called like this.
    Grant { operation: u64, call: Call, blocks: u32 },
    /// This member waits in an operation, which it has called like this, for the last of a chain of members that wait for
    /// each other.
    Waits { operation: u64, call: Call, held_by: u32 },
    /// This member has called so many operations.
    Called { operations: u64 },
    /// The team has failed.
    Failed { member: Option<u32>, reporter: u32, kind: FailureKind, detail: String },
    /// This member has called so many operations, completed them all, and closes its links.
    Bye { operations: u64 },
}

const EXPOSED: u8 = 1;
const FREED: u8 = 2;
const WAITS: u8 = 3;
const CALLED: u8 = 4;
const FAILED: u8 = 5;
const BYE: u8 = 6;
const SLEEPS: u8 = 7;
const WAKE: u8 = 8;
const GRANT: u8 = 9;

/// Stands for "no member" where a rank is written.
const NO_MEMBER: u32 = u32::MAX;

impl Word {
    /// Encodes the word in at most [`CONTROL_BYTES_MAX`] bytes; the detail of a failure is cut to fit.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        match self {
            Self::Exposed(marks) => bytes.extend([EXPOSED, marks.encode()]),
            Self::Sleeps { seen } => {
                bytes.push(SLEEPS);
                bytes.extend(seen.map(u64::to_le_bytes).as_flattened());
            }
            Self::Wake => bytes.push(WAKE),
            Self::Freed { ring, count } => {
                bytes.extend([FREED, *ring as u8]);
                bytes.extend(count.to_le_bytes());
            }
            Self::Grant { operation, call, blocks } => {
                bytes.push(GRANT);
                bytes.extend(blocks.to_le_bytes());
                bytes.extend(encode_call(*operation, *call));
            }
            Self::Waits { operation, call, held_by } => {
                bytes.push(WAITS);
                bytes.extend(held_by.to_le_bytes());
                bytes.extend(encode_call(*operation, *call));
            }
            Self::Called { operations } => {
                bytes.push(CALLED);
                bytes.extend(operations.to_le_bytes());
            }
            Self::Failed { member, reporter, kind, detail } => {
                bytes.extend([FAILED, kind.code()]);
                bytes.extend(member.unwrap_or(NO_MEMBER).to_le_bytes());
                bytes.extend(reporter.to_le_bytes());
                let room = CONTROL_BYTES_MAX - bytes.len();
                bytes.extend(&detail.as_bytes()[..detail.floor_char_boundary(room)]);
            }
            Self::Bye { operations } => {
                bytes.push(BYE);
                bytes.extend(operations.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes a word of a team of so many members; `None` for anything that [`Word::encode`] does not produce, and for ranks of no
    /// member.
    pub(crate) fn decode(bytes: &[u8], members: u32) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            EXPOSED => match rest {
                [marks] => Marks::decode(*marks).map(Self::Exposed),
                _ => None,
            },
            SLEEPS => {
                let (up, down) = rest.split_first_chunk()?;
                let seen = [*up, down.try_into().ok()?].map(u64::from_le_bytes);
                Some(Self::Sleeps { seen })
            }
            WAKE if rest.is_empty() => Some(Self::Wake),
            FREED => {
                let (&ring, count) = rest.split_first()?;
                let ring = Ring::ALL.into_iter().find(|&known| known as u8 == ring)?;
                Some(Self::Freed { ring, count: u64::from_le_bytes(count.try_into().ok()?) })
            }
            WAITS => {
                let (held_by, rest) = rest.split_first_chunk()?;
                let (operation, call) = decode_call(rest)?;
                let held_by = u32::from_le_bytes(*held_by);
                (held_by < members).then_some(Self::Waits { operation, call, held_by })
            }
            GRANT => {
                let (blocks, rest) = rest.split_first_chunk()?;
                let (operation, call) = decode_call(rest)?;
                Some(Self::Grant { operation, call, blocks: u32::from_le_bytes(*blocks) })
            }
            CALLED => Some(Self::Called { operations: u64::from_le_bytes(rest.try_into().ok()?) }),
            FAILED => {
                let (&kind, rest) = rest.split_first()?;
                let (member, rest) = rest.split_first_chunk()?;
                let (reporter, detail) = rest.split_first_chunk()?;
                let (member, reporter) =
                    (u32::from_le_bytes(*member), u32::from_le_bytes(*reporter));
                let are_ranks = (member < members || member == NO_MEMBER) && reporter < members;
                let failed = Self::Failed {
                    member: (member != NO_MEMBER).then_some(member),
                    reporter,
                    kind: FailureKind::from_code(kind)?,
                    detail: std::str::from_utf8(detail).ok()?.to_owned(),
                };
                are_ranks.then_some(failed)
            }
            BYE => Some(Self::Bye { operations: u64::from_le_bytes(rest.try_into().ok()?) }),
            _ => None,
        }
    }

    pub(crate) fn of_failure(failure: &Failure) -> Self {
        let Failure { member, reporter, kind, detail, .. } = failure.clone();
        Self::Failed { member, reporter, kind, detail }
    }
}

/// A call is written as in the header of a slot without contents.
fn encode_call(operation: u64, call: Call) -> [u8; HEADER_BYTES] {
    Header { operation, call, offset: 0, bytes: 0, flag: 1 }.encode()
}

fn decode_call(encoded: &[u8]) -> Option<(u64, Call)> {
    let header = Header::decode(encoded.try_into().ok()?).ok()?;
    let is_plain = (header.offset, header.bytes, header.flag) == (0, 0, 1);
    is_plain.then_some((header.operation, header.call))
}

#[cfg(test)]
mod tests {
    use collective::{Kind, MEMBERS_MAX, Op, Reduction, Type};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_come_back() {
        let failed = |detail: &str| Word::Failed {
            member: None,
            reporter: 7,
            kind: FailureKind::Stalled,
            detail: detail.into(),
        };
        let by = Reduction::new(Type::Bf16, Op::Max).unwrap();
        let call = Call::folding(Kind::Reduce, 4, 1 << 40, &by);
        for word in [
            Word::Exposed(Marks { last_byte: true, words: false }),
            Word::Exposed(Marks { last_byte: false, words: true }),
            Word::Sleeps { seen: [1 << 40, 3] },
            Word::Wake,
            Word::Freed { ring: Ring::Up, count: 7 },
            Word::Freed { ring: Ring::Down, count: u64::MAX },
            Word::Grant { operation: 6, call, blocks: 9 },
            Word::Waits { operation: 5, call, held_by: 65_000 },
            Word::Called { operations: 2 },
            failed("why"),
            Word::Bye { operations: 1 << 50 },
        ] {
            let encoded = word.encode();
            assert!(encoded.len() <= CONTROL_BYTES_MAX);
            assert_eq!(Word::decode(&encoded, MEMBERS_MAX), Some(word));
        }
        assert!(failed(&"ä".repeat(100)).encode().len() <= CONTROL_BYTES_MAX);
    }

    #[test]
    fn ranks_of_no_member_are_refused() {
        let call = Call::new(Kind::Barrier, 0, 0);
        let waits = |held_by| Word::Waits { operation: 0, call, held_by };
        let failed = |member, reporter| {
            let (kind, detail) = (FailureKind::Lost, String::new());
            Word::Failed { member: Some(member), reporter, kind, detail }
        };
        for word in [waits(4), failed(4, 4)] {
            assert_eq!(Word::decode(&word.encode(), 5), Some(word));
        }
        for word in [waits(5), failed(5, 0), failed(0, 5)] {
            assert_eq!(Word::decode(&word.encode(), 5), None);
        }
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_is_encoded(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0..11_u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Some(word) = Word::decode(&bytes, MEMBERS_MAX) {
                prop_assert_eq!(word.encode(), bytes);
            }
        }
    }
}
