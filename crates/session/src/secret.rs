//! The secret that members of a session share.

use std::fmt;

use zeroize::Zeroizing;

/// 32 random bytes that all members share. Zeroed in memory when dropped; `Debug` does not print
/// them. Transfer it over a protected channel, not in arguments or environment variables.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// Makes a secret from the system's random source. Errors: the system has none.
    pub fn random() -> Result<Self, std::io::Error> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *bytes)
            .map_err(|error| std::io::Error::other(format!("no random numbers: {error}")))?;
        Ok(Self(bytes))
    }

    /// Makes a secret of these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Parses 64 hexadecimal digits, as written by [`Secret::to_hex`]. Errors: anything else.
    pub fn from_hex(text: &str) -> Result<Self, &'static str> {
        let hash = blake3::Hash::from_hex(text.trim())
            .map_err(|_| "a secret is 64 hexadecimal digits; make one with `rdmc secret`")?;
        Ok(Self::from_bytes(*hash.as_bytes()))
    }

    /// Formats the secret as 64 hexadecimal digits.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(blake3::Hash::from_bytes(*self.0).to_hex().to_string())
    }

    /// Returns the 32 bytes.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        self.0.clone()
    }

    /// Derives the seed of the key pair by which members authenticate each other.
    pub(crate) fn identity_seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key("rdmc 2026-11-21 identity of a session", &*self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Returns a random number, unique in practice, from the system's random source. Errors: the system has none.
pub fn random_id() -> Result<[u8; 16], std::io::Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)
        .map_err(|error| std::io::Error::other(format!("no random numbers: {error}")))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_debug_does_not_print_it() {
        let secret = Secret::random().unwrap();
        let again = Secret::from_hex(&format!(" {}\n", &*secret.to_hex())).unwrap();
        assert_eq!(secret.0, again.0);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert!(Secret::from_hex("12").is_err());
    }

    #[test]
    fn each_secret_has_its_own_identity() {
        let (one, other) = (Secret::from_bytes([1; 32]), Secret::from_bytes([2; 32]));
        assert_eq!(one.identity_seed(), one.clone().identity_seed());
        assert_ne!(one.identity_seed(), other.identity_seed());
        assert_ne!(*one.identity_seed(), [1; 32]);
    }
}
