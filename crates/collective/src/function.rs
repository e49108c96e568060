//! User-defined functions that combine elements.

use std::{fmt, sync::Arc};

use crate::fold::{FoldError, check_lengths};

/// The maximum length of a [`Function`]'s name, in bytes.
pub const FUNCTION_NAME_BYTES_MAX: usize = 64;

/// A user-defined associative function that combines elements of a fixed length; members agree on it by name.
///
/// Members compare [`id`](Self::id), not code: a name has to mean the same function at all members. A clone is the
/// same function.
#[derive(Clone)]
pub struct Function {
    name: Arc<str>,
    element_bytes: usize,
    commutative: bool,
    combine: Arc<Combine>,
}

type Combine = dyn Fn(&mut [u8], &[u8]) + Send + Sync;

impl Function {
    /// Makes a function on elements of `element_bytes` bytes. It has to be associative, and may be noncommutative.
    ///
    /// `combine(acc, other)` replaces each element of `acc`, the left operand, which comes from lower ranks, by its
    /// combination with the element of `other`. Both slices have the same length, any multiple of `element_bytes`, and
    /// any alignment. `combine` is called on the thread that drives the team; a panic unwinds to that thread's caller.
    ///
    /// # Errors
    /// If the name is empty or longer than [`FUNCTION_NAME_BYTES_MAX`], or `element_bytes` is 0.
    pub fn new(
        name: &str,
        element_bytes: usize,
        combine: impl Fn(&mut [u8], &[u8]) + Send + Sync + 'static,
    ) -> Result<Self, InvalidFunction> {
        if name.is_empty() || name.len() > FUNCTION_NAME_BYTES_MAX {
            return Err(InvalidFunction::Name { bytes: name.len() });
        }
        if element_bytes == 0 {
            return Err(InvalidFunction::Element);
        }
        Ok(Self {
            name: name.into(),
            element_bytes,
            commutative: false,
            combine: Arc::new(combine),
        })
    }

    /// Declares the function commutative, so that members may be folded in any order.
    #[must_use]
    pub fn commutative(self) -> Self {
        Self { commutative: true, ..self }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the length of an element in bytes.
    #[must_use]
    pub fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// Returns whether members may be folded in any order.
    #[must_use]
    pub fn is_commutative(&self) -> bool {
        self.commutative
    }

    /// Returns the number that members compare: 64-bit FNV-1a (offset basis 0xcbf29ce484222325, prime 0x100000001b3) of
    /// the length of an element (8 bytes, little-endian), 1 if the function is commutative and 0 otherwise (1 byte), and the
    /// name's bytes. It guards against mistakes, not against malicious members.
    #[must_use]
    pub fn id(&self) -> u64 {
        let element_bytes = (self.element_bytes as u64).to_le_bytes();
        let described = element_bytes.into_iter().chain([u8::from(self.commutative)]);
        fnv1a(described.chain(self.name.bytes()))
    }

    /// Replaces each element of `acc`, the left operand, by its combination with the element of `other`.
    ///
    /// # Errors
    /// If the lengths differ or are not a multiple of the element's, as for [`fold`](crate::fold()). `acc` is then unchanged.
    pub fn fold(&self, acc: &mut [u8], other: &[u8]) -> Result<(), FoldError> {
        check_lengths(self.element_bytes, acc, other)?;
        if !acc.is_empty() {
            (self.combine)(acc, other);
        }
        Ok(())
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("name", &self.name)
            .field("element_bytes", &self.element_bytes)
            .field("commutative", &self.commutative)
            .finish_non_exhaustive()
    }
}

/// Why a [`Function`] cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFunction {
    /// The name is empty or too long.
    #[error("a function's name has 1 to {FUNCTION_NAME_BYTES_MAX} bytes, not {bytes}")]
    Name {
        /// The length of the name in bytes.
        bytes: usize,
    },
    /// The element length is 0.
    #[error("a function's elements have at least 1 byte")]
    Element,
}

fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, element_bytes: usize) -> Function {
        Function::new(name, element_bytes, |_, _| ()).expect("a valid function")
    }

    /// The published test vectors of FNV-1a with 64 bits.
    #[test]
    fn hash_is_fnv1a() {
        assert_eq!(fnv1a("".bytes()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a".bytes()), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a("foobar".bytes()), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn id_tells_functions_apart() {
        let function = named("matrix", 16);
        assert_eq!(function.id(), fnv1a(b"\x10\0\0\0\0\0\0\0\0matrix".iter().copied()));
        assert_eq!(function.id(), named("matrix", 16).id());
        assert_ne!(function.id(), named("matrix", 8).id());
        assert_ne!(function.id(), named("Matrix", 16).id());
        assert_ne!(function.id(), function.clone().commutative().id());
        assert!(function.clone().commutative().is_commutative() && !function.is_commutative());
    }

    #[test]
    fn names_and_elements_have_limits() {
        let new =
            |name: &str, bytes| Function::new(name, bytes, |_, _| ()).map(|function| function.name);
        let longest = "n".repeat(FUNCTION_NAME_BYTES_MAX);
        assert_eq!(new(&longest, 1).as_deref(), Ok(&*longest));
        assert_eq!(new("", 1), Err(InvalidFunction::Name { bytes: 0 }));
        assert_eq!(new(&(longest + "n"), 1), Err(InvalidFunction::Name { bytes: 65 }));
        assert_eq!(new("sum", 0), Err(InvalidFunction::Element));
    }

    #[test]
    fn lengths_are_checked_before_the_call() {
        let refuses =
            Function::new("refuses", 3, |_, _| panic!("called")).expect("a valid function");
        let mut acc = [0; 6];
        assert_eq!(refuses.fold(&mut acc, &[0; 3]), Err(FoldError::Lengths { acc: 6, other: 3 }));
        assert_eq!(
            refuses.fold(&mut acc[..4], &[0; 4]),
            Err(FoldError::Cut { bytes: 4, element_bytes: 3 })
        );
        assert_eq!(refuses.fold(&mut [], &[]), Ok(()));
    }
}
