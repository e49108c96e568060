//! Conversion between typed slices and the bytes that reductions work on.

use half::{bf16, f16};
use zerocopy::{FromBytes, IntoBytes};

use crate::types::Type;

mod sealed {
    pub trait Sealed: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable {}
}

/// A Rust type whose slices can be reduced; one for each [`Type`]. Sealed.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The element type on which members agree.
    const TYPE: Type;
}

macro_rules! elements {
    ($($element:ty = $name:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $element {}
            impl Element for $element {
                const TYPE: Type = Type::$name;
            }
            const _: () = assert!(size_of::<$element>() == Type::$name.bytes());
        )*

        #[cfg(test)]
        const TYPES: &[Type] = &[$(<$element>::TYPE),*];
    };
}

elements! {
    u8 = U8, u16 = U16, u32 = U32, u64 = U64, i8 = I8, i16 = I16, i32 = I32, i64 = I64,
    f16 = F16, bf16 = Bf16, f32 = F32, f64 = F64,
}

/// Returns the bytes of elements, without a copy.
#[must_use]
pub fn bytes_of<E: Element>(elements: &[E]) -> &[u8] {
    elements.as_bytes()
}

/// Returns the bytes of elements, without a copy.
#[must_use]
pub fn bytes_of_mut<E: Element>(elements: &mut [E]) -> &mut [u8] {
    elements.as_mut_bytes()
}

/// Returns bytes as elements, without a copy: `None` if the bytes are not aligned for the elements or their length is not
/// a multiple of an element's. An empty slice is valid at any address.
#[must_use]
pub fn elements_of<E: Element>(bytes: &[u8]) -> Option<&[E]> {
    if bytes.is_empty() { Some(&[]) } else { <[E]>::ref_from_bytes(bytes).ok() }
}

/// Returns bytes as elements, without a copy: `None` as for [`elements_of`].
#[must_use]
pub fn elements_of_mut<E: Element>(bytes: &mut [u8]) -> Option<&mut [E]> {
    if bytes.is_empty() { Some(&mut []) } else { <[E]>::mut_from_bytes(bytes).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_an_element() {
        assert_eq!(TYPES, Type::ALL);
    }

    #[test]
    fn elements_are_their_bytes() {
        let mut elements = [1.5_f32, -0.0, f32::INFINITY];
        let copy: Vec<u8> = elements.iter().flat_map(|element| element.to_ne_bytes()).collect();
        assert_eq!(bytes_of(&elements), copy);
        bytes_of_mut(&mut elements)[4..8].copy_from_slice(&2.5_f32.to_ne_bytes());
        assert_eq!(elements, [1.5, 2.5, f32::INFINITY]);
        let bytes = bytes_of_mut(&mut elements);
        elements_of_mut::<f32>(bytes).expect("aligned")[0] = 7.0;
        assert_eq!(elements_of::<f32>(bytes), Some(&[7.0, 2.5, f32::INFINITY][..]));
    }

    #[test]
    fn unaligned_or_cut_elements_are_refused() {
        let elements = [0_u64; 3];
        let bytes = bytes_of(&elements);
        assert!(elements_of::<u64>(&bytes[8..]).is_some());
        assert_eq!(elements_of::<u64>(&bytes[1..17]), None);
        assert_eq!(elements_of::<u64>(&bytes[..12]), None);
        assert_eq!(elements_of::<u64>(&bytes[1..1]), Some(&[][..]));
        assert_eq!(elements_of_mut::<u64>(&mut [0; 9][1..1]), Some(&mut [][..]));
    }
}
