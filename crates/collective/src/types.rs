//! The element types of reductions.

use std::{fmt, str::FromStr};

/// The type of the elements that a reduction combines.
///
/// Elements are in the host's byte order, in memory and on the network: all hosts of a team must have the same byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of Rust's types")]
pub enum Type {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    /// IEEE 754 binary16: 5 exponent bits, 10 fraction bits.
    F16,
    /// bfloat16, the upper half of an [`F32`](Self::F32): 8 exponent bits, 7 fraction bits.
    Bf16,
    F32,
    F64,
}

impl Type {
    /// Every type, in the order of their codes.
    pub const ALL: [Self; 12] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// Returns the length of an element in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns whether elements are integers, which all operators support.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        !matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Returns the number that identifies this type in the protocol: 1 to 12, never 0, never reused.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 3,
            Self::U64 => 4,
            Self::I8 => 5,
            Self::I16 => 6,
            Self::I32 => 7,
            Self::I64 => 8,
            Self::F16 => 9,
            Self::Bf16 => 10,
            Self::F32 => 11,
            Self::F64 => 12,
        }
    }

    /// Returns the type with this [`code`](Self::code), or `None` if no type has this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.code() == code)
    }

    /// Returns the name in lower case, as it is displayed and parsed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Type {
    type Err = UnknownType;

    fn from_str(name: &str) -> Result<Self, UnknownType> {
        Self::ALL.into_iter().find(|element| element.name() == name).ok_or(UnknownType)
    }
}

/// The error for an unknown name of a [`Type`]; displayed with the list of valid names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown element type; choose one of {}", names(&Type::ALL))]
pub struct UnknownType;

/// Lists the valid names.
pub(crate) fn names(all: &[impl ToString]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for element in Type::ALL {
            assert_eq!(element.to_string().parse(), Ok(element));
            assert_eq!(Type::from_code(element.code()), Some(element));
        }
        assert_eq!((0..=u8::MAX).filter_map(Type::from_code).count(), Type::ALL.len());
        assert_eq!(Type::from_code(0), None);
        assert!(Type::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    #[test]
    fn the_error_names_all_types() {
        let error = "float".parse::<Type>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown element type; choose one of u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64"
        );
    }
}
