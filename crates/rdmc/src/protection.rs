//! The protection of blocks in transit.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Error;

/// How the bytes of messages are protected on TCP connections between members. Other fabrics carry
/// blocks without this protection.
///
/// A connection is always made by members that know the secret. What groups say on it when they are created, their numbers and settings, is
/// protected as their messages are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Protection {
    /// None: only TCP's 16-bit checksum detects damage, and an attacker on the path can read and
    /// change what is sent. For trusted networks and for measurements.
    None,
    /// Every byte is authenticated at each member on its path before it is used: without the secret
    /// nothing can be changed, repeated or left out undetected.
    #[default]
    Authenticate,
    /// As [`Protection::Authenticate`], and encrypted.
    Encrypt,
}

impl Protection {
    /// All kinds of protection.
    pub const ALL: [Self; 3] = [Self::None, Self::Authenticate, Self::Encrypt];

    /// Returns `none`, `authenticate` or `encrypt`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Authenticate => "authenticate",
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
        Self::ALL.into_iter().find(|protection| protection.name() == text).ok_or_else(|| {
            Error::setting("protection", format!("{text:?}"), "none, authenticate or encrypt")
        })
    }
}
