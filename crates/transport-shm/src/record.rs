//! Records in a ring: what an end tells the other one.

use transport::{CONTROL_BYTES_MAX, PROOF_BYTES};

/// The length of a record without its payload.
pub(crate) const RECORD_BYTES: usize = 32;

/// A record. The payload of words and chunks follows it, padded to a multiple of eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// A control word of 1 to [`CONTROL_BYTES_MAX`] bytes.
    Word { bytes: usize },
    /// A block begins: the next one that was posted for.
    Block { immediate: u32, bytes: u64 },
    /// The next bytes of the block that has begun.
    BlockChunk { bytes: usize },
    /// A one-sided write begins that has to be copied.
    Write { key: u32, offset: u64, bytes: u64, immediate: Option<u32> },
    /// The next bytes of that write.
    WriteChunk { bytes: usize },
    /// A one-sided write was placed.
    Written { immediate: u32 },
    /// The end has closed; nothing follows.
    Farewell,
    /// The peer is to place these bytes in its memory, to show that it may be read.
    Challenge { proof: [u8; PROOF_BYTES] },
    /// They are at this address.
    Proof { address: u64 },
    /// They were found there: blocks may be referred to.
    Readable,
    /// A block that is to be copied out of the memory of the end's process: the next one that was posted for.
    Reference { immediate: u32, address: u64, bytes: usize },
    /// The first block of which that is true was copied.
    Copied,
}

/// The fields of a record, in their order.
#[derive(Default)]
struct Fields {
    code: u32,
    immediate: u32,
    has_immediate: u32,
    key: u32,
    offset: u64,
    bytes: u64,
}

impl Record {
    /// Returns the length in bytes of the payload that follows.
    pub(crate) fn payload_bytes(&self) -> usize {
        match *self {
            Self::Word { bytes } | Self::BlockChunk { bytes } | Self::WriteChunk { bytes } => bytes,
            _ => 0,
        }
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let fields = match *self {
            Self::Word { bytes } => Fields { code: 1, bytes: bytes as u64, ..Fields::default() },
            Self::Block { immediate, bytes } => {
                Fields { code: 2, immediate, bytes, ..Fields::default() }
            }
            Self::BlockChunk { bytes } => {
                Fields { code: 3, bytes: bytes as u64, ..Fields::default() }
            }
            Self::Write { key, offset, bytes, immediate } => Fields {
                code: 4,
                immediate: immediate.unwrap_or_default(),
                has_immediate: immediate.is_some().into(),
                key,
                offset,
                bytes,
            },
            Self::WriteChunk { bytes } => {
                Fields { code: 5, bytes: bytes as u64, ..Fields::default() }
            }
            Self::Written { immediate } => Fields { code: 6, immediate, ..Fields::default() },
            Self::Farewell => Fields { code: 7, ..Fields::default() },
            Self::Challenge { proof } => {
                let number = u128::from_le_bytes(proof);
                let (offset, bytes) = (number as u64, (number >> 64) as u64);
                Fields { code: 8, offset, bytes, ..Fields::default() }
            }
            Self::Proof { address } => Fields { code: 9, offset: address, ..Fields::default() },
            Self::Readable => Fields { code: 10, ..Fields::default() },
            Self::Reference { immediate, address, bytes } => {
                let (offset, bytes) = (address, bytes as u64);
                Fields { code: 11, immediate, offset, bytes, ..Fields::default() }
            }
            Self::Copied => Fields { code: 12, ..Fields::default() },
        };
        let mut encoded = [0; RECORD_BYTES];
        let numbers = [fields.code, fields.immediate, fields.has_immediate, fields.key];
        for (place, number) in encoded.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        encoded[16..24].copy_from_slice(&fields.offset.to_le_bytes());
        encoded[24..].copy_from_slice(&fields.bytes.to_le_bytes());
        encoded
    }

    /// Decodes a record; `None` for anything that [`Record::encode`] does not make.
    pub(crate) fn decode(encoded: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (words, _) = encoded.as_chunks::<8>();
        let [first, second, offset, bytes] = words else { return None };
        let [first, second, offset, bytes] =
            [first, second, offset, bytes].map(|word| u64::from_le_bytes(*word));
        let (code, immediate, key) = (first as u32, (first >> 32) as u32, (second >> 32) as u32);
        let length = usize::try_from(bytes).ok()?;
        let record = match code {
            1 if (1..=CONTROL_BYTES_MAX).contains(&length) => Self::Word { bytes: length },
            2 => Self::Block { immediate, bytes },
            3 if length > 0 => Self::BlockChunk { bytes: length },
            4 => {
                let immediate = (second as u32 == 1).then_some(immediate);
                Self::Write { key, offset, bytes, immediate }
            }
            5 if length > 0 => Self::WriteChunk { bytes: length },
            6 => Self::Written { immediate },
            7 => Self::Farewell,
            8 => {
                let number = u128::from(bytes) << 64 | u128::from(offset);
                Self::Challenge { proof: number.to_le_bytes() }
            }
            9 => Self::Proof { address: offset },
            10 => Self::Readable,
            11 if length > 0 => Self::Reference { immediate, address: offset, bytes: length },
            12 => Self::Copied,
            _ => return None,
        };
        (record.encode() == *encoded).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Record> {
        let bytes = || 1..usize::MAX;
        prop_oneof![
            (1..=CONTROL_BYTES_MAX).prop_map(|bytes| Record::Word { bytes }),
            (any::<u32>(), any::<u64>())
                .prop_map(|(immediate, bytes)| Record::Block { immediate, bytes }),
            bytes().prop_map(|bytes| Record::BlockChunk { bytes }),
            (any::<u32>(), any::<u64>(), any::<u64>(), any::<Option<u32>>()).prop_map(
                |(key, offset, bytes, immediate)| Record::Write { key, offset, bytes, immediate }
            ),
            bytes().prop_map(|bytes| Record::WriteChunk { bytes }),
            any::<u32>().prop_map(|immediate| Record::Written { immediate }),
            Just(Record::Farewell),
            any::<[u8; PROOF_BYTES]>().prop_map(|proof| Record::Challenge { proof }),
            any::<u64>().prop_map(|address| Record::Proof { address }),
            Just(Record::Readable),
            (any::<u32>(), any::<u64>(), bytes()).prop_map(|(immediate, address, bytes)| {
                Record::Reference { immediate, address, bytes }
            }),
            Just(Record::Copied),
        ]
    }

    proptest! {
        #[test]
        fn records_come_back(record in records()) {
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }

        /// What is decoded is what would be encoded.
        #[test]
        fn other_bytes_are_refused(encoded in any::<[u8; RECORD_BYTES]>(), code in 0_u8..15) {
            let mut encoded = encoded;
            encoded[..4].copy_from_slice(&[code, 0, 0, 0]);
            if let Some(record) = Record::decode(&encoded) {
                prop_assert_eq!(record.encode(), encoded);
            }
        }
    }
}
