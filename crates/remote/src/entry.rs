//! What there is at a URL.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file or a link of what a URL names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Relative to what the URL names, with `/` between names; empty if the URL names this file. Not checked: a server may send
    /// any.
    pub path: String,
    /// Modification time in nanoseconds since 1970; where the source has none, a time derived from what identifies the contents
    /// ([`Entry::time_of`]).
    pub modified_ns: i64,
    /// What it is.
    pub kind: Kind,
}

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file of this length in bytes, which has this checksum if the source has one.
    File {
        /// Its length.
        bytes: u64,
        /// A digest of its contents that does not come with them.
        checksum: Option<Checksum>,
    },
    /// A symbolic link with this text.
    Link {
        /// Its text.
        target: String,
    },
}

/// A digest of a file's contents, as its source has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// SHA-256 of the contents.
    Sha256([u8; 32]),
    /// The number of a blob in git: SHA-1 of `blob LENGTH`, a zero byte and the contents.
    GitBlob([u8; 20]),
}

impl Entry {
    /// A time for contents that have none: between 2001 and 2018, and another for other contents, as hosts keep a file that has
    /// the same length and time. `identity`: what identifies the contents, such as their digest.
    pub fn time_of(identity: &[u8]) -> i64 {
        const FIRST_S: u64 = 978_307_200;
        let digest = blake3::hash(identity);
        let part = |range: std::ops::Range<usize>| {
            let bytes = digest.as_bytes()[range].iter();
            bytes.fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
        };
        let seconds = FIRST_S + part(0..4) % (1 << 29);
        (seconds * 1_000_000_000 + part(4..8) % 1_000_000_000).cast_signed()
    }

    /// A point of time in nanoseconds since 1970; `None` if it is before that, or too late.
    pub(crate) fn nanoseconds(time: SystemTime) -> Option<i64> {
        let since: Duration = time.duration_since(UNIX_EPOCH).ok()?;
        since.as_nanos().try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_contents_have_other_times_of_this_century() {
        let times: Vec<i64> = (0..1000_u32).map(|i| Entry::time_of(&i.to_le_bytes())).collect();
        let distinct: std::collections::BTreeSet<&i64> = times.iter().collect();
        assert_eq!(distinct.len(), times.len());
        assert_eq!(Entry::time_of(&7_u32.to_le_bytes()), times[7]);
        let years = |time: &i64| 1970 + time / 1_000_000_000 / 31_556_952;
        assert!(times.iter().all(|time| (2001..=2018).contains(&years(time))), "{times:?}");
    }
}
