//! What keeps blocks from being changed or read on their way.

use std::{fmt, str::FromStr};

use crate::Error;

/// How the bytes of messages are protected on TCP connections between members. What members say to
/// each other to find each other is always encrypted. Other fabrics carry blocks as they do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Protection {
    /// Not at all: TCP's own checksum of 16 bits is what finds damage, and whoever is on the way
    /// can change what is sent. For trusted networks and for measuring.
    None,
    /// Every byte is checked, by each member that it passes, before anything is done with it:
    /// nobody without the secret can change, repeat or leave out anything unnoticed.
    #[default]
    Authenticate,
    /// The same, and nobody else can read it.
    Encrypt,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Authenticate, Self::Encrypt];

    /// `none`, `authenticate` or `encrypt`.
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
