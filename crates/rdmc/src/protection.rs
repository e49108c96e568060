//! Protection of blocks in transit.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Error;

/// How the bytes of messages are protected on TCP connections between members. Other fabrics carry
/// blocks without this protection.
///
/// Only members that know the secret can connect, with any protection. The numbers and settings that members exchange when
/// they create a group have the same protection as messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Protection {
    /// No protection: only TCP's 16-bit checksum detects corruption, and an attacker on the path can read and
    /// change the data. For trusted networks and for measurements.
    None,
    /// AES-128-GCM: each member on the path authenticates every byte before it uses it. Without the secret, data cannot be
    /// read, and cannot be changed, replayed or omitted undetected.
    #[default]
    Encrypt,
}

impl Protection {
    /// All values.
    pub const ALL: [Self; 2] = [Self::None, Self::Encrypt];

    /// Returns `none` or `encrypt`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Encrypt => "encrypt",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|protection| protection.name() == text)
            .ok_or_else(|| Error::setting("protection", format!("{text:?}"), "none or encrypt"))
    }
}
