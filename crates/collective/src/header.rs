//! What stands behind the contents of a slot.

use crate::{Call, Folding, Kind, Op, Type};

/// Length in bytes of a header.
pub const HEADER_BYTES: usize = 48;

/// Describes the contents of one slot: of which operation they are, and which part.
///
/// It is the end of the slot, and the contents are right before it (the paper, section 4.1.3: "bottom-fill"), so that its
/// last byte is always at the same place. That byte is the flag: 0 in a slot that was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Number of the operation; the first of a team is 0.
    pub operation: u64,
    /// The sender's call.
    pub call: Call,
    /// Position in bytes of the contents in what this link carries for the operation.
    pub offset: u64,
    /// Length in bytes of the contents.
    pub bytes: u32,
    /// 1 to 255.
    pub flag: u8,
}

/// A header that no member writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid header of a slot")]
pub struct InvalidHeader;

impl Header {
    /// Returns the header as it is written.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Call { kind, root, bytes, folding } = self.call;
        let (element, operator, function, element_bytes, commutes) =
            folding.map_or((0, 0, 0, 0, false), |it| {
                let codes = (it.element.map_or(0, Type::code), it.operator.map_or(0, Op::code));
                (codes.0, codes.1, it.function, it.element_bytes, it.is_commutative)
            });
        let mut encoded = [0; HEADER_BYTES];
        encoded[0..8].copy_from_slice(&self.operation.to_le_bytes());
        encoded[8..16].copy_from_slice(&bytes.to_le_bytes());
        encoded[16..24].copy_from_slice(&function.to_le_bytes());
        encoded[24..32].copy_from_slice(&self.offset.to_le_bytes());
        encoded[32..36].copy_from_slice(&root.to_le_bytes());
        encoded[36..40].copy_from_slice(&self.bytes.to_le_bytes());
        encoded[40..43].copy_from_slice(&[kind.code(), element, operator]);
        encoded[43..45].copy_from_slice(&element_bytes.to_le_bytes());
        encoded[45] = commutes.into();
        encoded[HEADER_BYTES - 1] = self.flag;
        encoded
    }

    /// Reads a header from a peer. Every header has one encoding.
    ///
    /// Errors: not an encoded header.
    pub fn decode(encoded: &[u8; HEADER_BYTES]) -> Result<Self, InvalidHeader> {
        let number = |start: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&encoded[start..start + 8]);
            u64::from_le_bytes(bytes)
        };
        let lengths = number(32);
        let element_bytes = u16::from_le_bytes([encoded[43], encoded[44]]);
        let call = Call {
            kind: Kind::from_code(encoded[40]).ok_or(InvalidHeader)?,
            root: lengths as u32,
            bytes: number(8),
            folding: (element_bytes > 0).then(|| Folding {
                element: Type::from_code(encoded[41]),
                operator: Op::from_code(encoded[42]),
                function: number(16),
                element_bytes,
                is_commutative: encoded[45] == 1,
            }),
        };
        let header = Self {
            operation: number(0),
            call,
            offset: number(24),
            bytes: (lengths >> 32) as u32,
            flag: encoded[HEADER_BYTES - 1],
        };
        let is_canonical = header.flag > 0 && header.encode() == *encoded;
        is_canonical.then_some(header).ok_or(InvalidHeader)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_header_has_one_encoding(bytes in any::<[u8; HEADER_BYTES]>(), kind in 0..12_u8, gap: bool) {
            let mut bytes = bytes;
            bytes[40] = kind;
            if gap {
                bytes[45] %= 2;
                bytes[46] = 0;
                bytes[41] %= 16;
                bytes[42] %= 10;
            }
            match Header::decode(&bytes) {
                Ok(header) => prop_assert_eq!(header.encode(), bytes),
                Err(InvalidHeader) => {
                    let is_folded = bytes[43..45] != [0; 2];
                    let codes_are_known = Type::from_code(bytes[41]).is_some() | (bytes[41] == 0)
                        && Op::from_code(bytes[42]).is_some() | (bytes[42] == 0);
                    let nothing_is_folded = bytes[41..43] == [0; 2]
                        && bytes[16..24] == [0; 8]
                        && bytes[45] == 0;
                    prop_assert!(
                        !(1..=9).contains(&kind)
                            || bytes[47] == 0
                            || bytes[45] > 1
                            || bytes[46] != 0
                            || !codes_are_known
                            || !is_folded && !nothing_is_folded
                    );
                }
            }
        }
    }
}
