//! Control words between linked members.

use collective::{Call, HEADER_BYTES, Header, Ring, model::WriteCosts};
use engine::{Fields, Notice};

use crate::ends::Marks;

/// One control word.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Word {
    /// Rings are exposed: writes may begin, and this member looks at these marks of them.
    Exposed(Marks),
    /// This member has seen this many writes to each ring, and waits in its transport for the next one.
    Sleeps { seen: [u64; 2] },
    /// Rank 0's costs, by which all choose ways.
    Costs(WriteCosts),
    /// Rank 0 measures how long a word takes to a member, which returns the same word.
    Probe,
    /// There are writes that a sleeping member had not seen.
    Wake,
    /// The number of slots of a ring that were freed in all.
    Freed { ring: Ring, count: u64 },
    /// The number of blocks of an operation that may be sent in all, and how this member has called it.
    Grant { operation: u64, call: Call, blocks: u32 },
    /// This member waits in an operation, which it has called like this, for the last of a chain of members that wait for
    /// each other. Also the answer to such a word by a member that cannot call it, since it has not received how ways are chosen.
    Waits { operation: u64, call: Call, held_by: u32 },
    /// This member has called this many operations.
    Called { operations: u64 },
    /// The team has failed.
    Failed(Notice),
    /// This member has called this many operations, completed them all, and closes its links.
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
const COSTS: u8 = 10;
const PROBE: u8 = 11;

impl Word {
    /// Encodes the word in at most [`transport::CONTROL_BYTES_MAX`] bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Exposed(marks) => vec![EXPOSED, marks.encode()],
            Self::Sleeps { seen } => {
                [&[SLEEPS], seen.map(u64::to_le_bytes).as_flattened()].concat()
            }
            Self::Costs(costs) => {
                [&[COSTS], costs.values().map(f32::to_le_bytes).as_flattened()].concat()
            }
            Self::Wake => vec![WAKE],
            Self::Probe => vec![PROBE],
            Self::Freed { ring, count } => {
                [&[FREED, *ring as u8][..], &count.to_le_bytes()].concat()
            }
            Self::Grant { operation, call, blocks } => {
                let call = encode_call(*operation, *call);
                [&[GRANT][..], &blocks.to_le_bytes(), &call].concat()
            }
            Self::Waits { operation, call, held_by } => {
                let call = encode_call(*operation, *call);
                [&[WAITS][..], &held_by.to_le_bytes(), &call].concat()
            }
            Self::Called { operations } => [&[CALLED][..], &operations.to_le_bytes()].concat(),
            Self::Failed(notice) => notice.encode(FAILED),
            Self::Bye { operations } => [&[BYE][..], &operations.to_le_bytes()].concat(),
        }
    }

    /// Decodes a word of a team of this many members; `None` for anything that [`Word::encode`] does not produce, and for ranks of no
    /// member.
    pub(crate) fn decode(bytes: &[u8], members: u32) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let word = match fields.u8()? {
            EXPOSED => Self::Exposed(Marks::decode(fields.u8()?)?),
            SLEEPS => Self::Sleeps { seen: [fields.u64()?, fields.u64()?] },
            WAKE => Self::Wake,
            PROBE => Self::Probe,
            COSTS => {
                let mut values = [0.0; WriteCosts::COUNT];
                for value in &mut values {
                    *value = f32::from_le_bytes(fields.array()?);
                }
                Self::Costs(WriteCosts::of_values(values)?)
            }
            FREED => {
                let ring = fields.u8()?;
                let ring = Ring::ALL.into_iter().find(|&known| known as u8 == ring)?;
                Self::Freed { ring, count: fields.u64()? }
            }
            GRANT => {
                let blocks = fields.u32()?;
                let (operation, call) = decode_call(fields.array()?)?;
                Self::Grant { operation, call, blocks }
            }
            WAITS => {
                let held_by = fields.u32().filter(|&held_by| held_by < members)?;
                let (operation, call) = decode_call(fields.array()?)?;
                Self::Waits { operation, call, held_by }
            }
            CALLED => Self::Called { operations: fields.u64()? },
            FAILED => Self::Failed(Notice::decode(&mut fields, members)?),
            BYE => Self::Bye { operations: fields.u64()? },
            _ => return None,
        };
        fields.are_read().then_some(word)
    }
}

/// A call is written as in the header of a slot without contents.
fn encode_call(operation: u64, call: Call) -> [u8; HEADER_BYTES] {
    Header { operation, call, offset: 0, bytes: 0, flag: 1 }.encode()
}

fn decode_call(encoded: [u8; HEADER_BYTES]) -> Option<(u64, Call)> {
    let header = Header::decode(&encoded).ok()?;
    let is_plain = (header.offset, header.bytes, header.flag) == (0, 0, 1);
    is_plain.then_some((header.operation, header.call))
}

#[cfg(test)]
mod tests {
    use collective::{Kind, MEMBERS_MAX, Op, Reduction, Type};
    use engine::FailureKind;
    use proptest::prelude::*;
    use transport::CONTROL_BYTES_MAX;

    use super::*;

    #[test]
    fn words_come_back() {
        let (member, kind, detail) = (None, FailureKind::Stalled, "why".into());
        let failed = Word::Failed(Notice { member, reporter: 7, kind, detail });
        let by = Reduction::new(Type::Bf16, Op::Max).unwrap();
        let call = Call::folding(Kind::Reduce, 4, 1 << 40, &by);
        for word in [
            Word::Exposed(Marks { last_byte: true, words: false }),
            Word::Exposed(Marks { last_byte: false, words: true }),
            Word::Sleeps { seen: [1 << 40, 3] },
            Word::Wake,
            Word::Probe,
            Word::Costs(WriteCosts::of_values(WriteCosts::PAPER.values()).unwrap()),
            Word::Freed { ring: Ring::Up, count: 7 },
            Word::Freed { ring: Ring::Down, count: u64::MAX },
            Word::Grant { operation: 6, call, blocks: 9 },
            Word::Waits { operation: 5, call, held_by: 65_000 },
            Word::Called { operations: 2 },
            failed,
            Word::Bye { operations: 1 << 50 },
        ] {
            let encoded = word.encode();
            assert!(encoded.len() <= CONTROL_BYTES_MAX);
            assert_eq!(Word::decode(&encoded, MEMBERS_MAX), Some(word));
        }
    }

    #[test]
    fn ranks_of_no_member_are_refused() {
        let call = Call::new(Kind::Barrier, 0, 0);
        let waits = Word::Waits { operation: 0, call, held_by: 4 };
        assert_eq!(Word::decode(&waits.encode(), 4), None);
        assert_eq!(Word::decode(&waits.encode(), 5), Some(waits));
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_is_encoded(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0..13_u8) {
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
