//! Contents of messages that receivers can check.

use crate::outcome::Outcome;

/// Different for every message of every group.
pub fn seed(group: u64, message: u64) -> u64 {
    (group << 20 | message).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Contents that depend on the place, so that swapped, stale or missing blocks are found.
fn word(seed: u64, index: u64) -> [u8; 8] {
    (seed ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes()
}

/// Contents for [`check`].
pub fn fill(bytes: &mut [u8], seed: u64) {
    for (index, chunk) in (0..).zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word(seed, index)[..chunk.len()]);
    }
}

/// Whether these are the contents of [`fill`].
pub fn check(bytes: &[u8], seed: u64) -> Outcome<()> {
    check_from(bytes, seed, 0)
}

/// Whether these are the contents of [`fill`] from this word on, of 8 bytes each.
pub fn check_from(bytes: &[u8], seed: u64, first_word: u64) -> Outcome<()> {
    let wrong = (first_word..)
        .zip(bytes.chunks(8))
        .find(|(index, chunk)| *chunk != &word(seed, *index)[..chunk.len()]);
    match wrong {
        None => Ok(()),
        Some((index, _)) => {
            Err(format!("wrong contents at byte {}", (index - first_word) * 8).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_found() {
        for length in [0, 1, 7, 8, 9, 1_000] {
            let mut bytes = vec![0; length];
            fill(&mut bytes, 5);
            assert!(check(&bytes, 5).is_ok());
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
                assert!(check(&bytes, 5).is_err());
            }
            fill(&mut bytes, 5);
            assert!(bytes.len() < 8 || check_from(&bytes[8..], 5, 1).is_ok());
        }
    }
}
