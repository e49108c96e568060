//! The secret that members of a session share.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

const BYTES: usize = 32;

/// 32 random bytes that all members share. `Debug` does not print them. Transfer a secret over a protected
/// channel, not in arguments or environment variables.
///
/// The bytes are in a separate allocation, which moves do not copy and which is zeroed on drop; the same
/// holds for each clone. Computations with the bytes, such as key derivation, may leave copies on the stack
/// for a while.
pub struct Secret(Box<Zeroizing<[u8; BYTES]>>);

impl Secret {
    /// Makes a secret from the system's random source.
    ///
    /// # Errors
    /// The system's random source is not available.
    pub fn random() -> Result<Self, std::io::Error> {
        let mut own = Self::zero();
        getrandom::fill(&mut **own.0).map_err(|error| {
            std::io::Error::other(format!("cannot get random numbers: {error}"))
        })?;
        Ok(own)
    }

    /// Makes a secret from these bytes. The caller must wipe any copy that it keeps.
    pub fn from_bytes(mut bytes: [u8; BYTES]) -> Self {
        let mut own = Self::zero();
        own.0.copy_from_slice(&bytes);
        bytes.zeroize();
        own
    }

    /// Parses 64 hexadecimal digits, as returned by [`Secret::to_hex`]. Ignores leading and trailing white space.
    ///
    /// # Errors
    /// The text is not 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, &'static str> {
        let wrong = "a secret is 64 hexadecimal digits; make one with `rdmc secret`";
        let text = text.trim().as_bytes();
        if text.len() != 2 * BYTES {
            return Err(wrong);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let mut own = Self::zero();
        for (byte, digits) in own.0.iter_mut().zip(text.chunks_exact(2)) {
            let (high, low) = (digit(digits[0]).ok_or(wrong)?, digit(digits[1]).ok_or(wrong)?);
            *byte = (high << 4 | low) as u8;
        }
        Ok(own)
    }

    /// Formats the secret as 64 hexadecimal digits.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
        // With its whole capacity from the start: growing would leave copies.
        let mut text = Zeroizing::new(String::with_capacity(2 * BYTES));
        text.extend(self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]));
        text
    }

    /// Returns the bytes. Copies that the caller makes are not wiped.
    pub fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Derives the seed of the key pair by which members authenticate each other.
    pub(crate) fn identity_seed(&self) -> Zeroizing<[u8; BYTES]> {
        let seed = blake3::derive_key("rdmc 2026-11-21 identity of a session", self.as_bytes());
        Zeroizing::new(seed)
    }

    fn zero() -> Self {
        Self(Box::new(Zeroizing::new([0; BYTES])))
    }
}

impl Clone for Secret {
    fn clone(&self) -> Self {
        let mut own = Self::zero();
        own.0.copy_from_slice(self.as_bytes());
        own
    }
}

/// Compares in a time that does not depend on where the secrets differ.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        blake3::Hash::from(*self.as_bytes()) == blake3::Hash::from(*other.as_bytes())
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Returns a random number, unique in practice, from the system's random source.
///
/// # Errors
/// The system's random source is not available.
pub fn random_id() -> Result<[u8; 16], std::io::Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)
        .map_err(|error| std::io::Error::other(format!("cannot get random numbers: {error}")))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        hint::black_box,
        os::unix::fs::FileExt,
        thread,
    };

    use super::*;

    #[test]
    fn hex_round_trips_and_debug_does_not_print_it() {
        let secret = Secret::random().unwrap();
        let again = Secret::from_hex(&format!(" {}\n", &*secret.to_hex())).unwrap();
        assert_eq!(secret, again);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let known = Secret::from_bytes(std::array::from_fn(|index| index as u8 * 8));
        assert!(known.to_hex().starts_with("000810") && known.to_hex().ends_with("f0f8"));
        assert_eq!(Secret::from_hex(&known.to_hex().to_uppercase()).unwrap().0, known.0);
        let (short, other) = ("0".repeat(63), "g".repeat(64));
        for wrong in ["12", "", &short, &other, &"\u{e9}".repeat(32), &"+1".repeat(32)] {
            assert!(Secret::from_hex(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_secret_has_its_own_identity() {
        let (one, other) = (Secret::from_bytes([1; 32]), Secret::from_bytes([2; 32]));
        assert_eq!(one.identity_seed(), one.clone().identity_seed());
        assert_ne!(one, other);
        assert_ne!(one.identity_seed(), other.identity_seed());
        assert_ne!(*one.identity_seed(), [1; 32]);
    }

    /// Counts in this process's memory what is equal to the inverse of this, which is not itself a copy.
    fn copies_in_memory(inverse: &[u8; BYTES]) -> usize {
        let memory = File::open("/proc/self/mem").unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut buffer = vec![0_u8; 1 << 20];
        let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + buffer.len() as u64;
        let mut count = 0;
        for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let (mut at, end) = (number(start), number(end));
            while at < end {
                let length = buffer.len().min((end - at) as usize);
                // Guard pages cannot be read.
                let Ok(read) = memory.read_at(&mut buffer[..length], at) else { break };
                let bytes = &buffer[..read];
                for (offset, first) in bytes.iter().enumerate() {
                    if *first == !inverse[0]
                        && !own.contains(&(at + offset as u64))
                        && let Some(window) = bytes.get(offset..offset + BYTES)
                    {
                        let mut pairs = window.iter().zip(inverse);
                        count += usize::from(pairs.all(|(byte, other)| *byte == !other));
                    }
                }
                // Whole windows across two reads.
                at += if read == buffer.len() {
                    (read - BYTES + 1) as u64
                } else {
                    read.max(1) as u64
                };
            }
        }
        buffer.zeroize();
        count
    }

    struct Holder {
        _before: [u64; 9],
        secret: Secret,
    }

    #[inline(never)]
    fn moved(secret: Secret) -> Holder {
        black_box(Holder { _before: [7; 9], secret })
    }

    #[test]
    fn moves_leave_no_copies_and_dropping_wipes_the_only_one() {
        let secret = Secret::random().unwrap();
        let inverse: [u8; BYTES] = std::array::from_fn(|index| !secret.as_bytes()[index]);
        let holder = black_box(vec![moved(black_box(secret)), moved(Secret::random().unwrap())]);
        let holder = thread::spawn(move || black_box(holder)).join().unwrap();
        assert_eq!(copies_in_memory(&inverse), 1);
        let clone = holder[0].secret.clone();
        assert_eq!(copies_in_memory(&inverse), 2);
        drop(holder);
        assert_eq!(copies_in_memory(&inverse), 1);
        drop(clone);
        assert_eq!(copies_in_memory(&inverse), 0);
    }
}
