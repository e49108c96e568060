//! The loop over two slices of elements.

/// Replaces each element of `N` bytes in `acc` by its combination with that of `other`.
///
/// Loads and stores are of arrays, so that any address will do, and the loop has no branch of its own, so that the compiler
/// makes vector instructions of it where `combine` has none.
#[inline(always)]
pub(crate) fn pairwise<const N: usize>(
    acc: &mut [u8],
    other: &[u8],
    combine: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (acc, _) = acc.as_chunks_mut::<N>();
    let (other, _) = other.as_chunks::<N>();
    for (acc, other) in acc.iter_mut().zip(other) {
        *acc = combine(*acc, *other);
    }
}
