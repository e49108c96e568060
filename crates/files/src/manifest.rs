//! A file's name, length and attributes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A file's name, length and attributes when the root opened it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The last component of its path.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Permission bits (`0o777`); set-user-id and the like are dropped, as the owner is.
    pub mode: u32,
    /// Modification time in nanoseconds since 1970, negative before.
    pub modified_ns: i64,
}

impl Manifest {
    /// The modification time as the system's type.
    pub fn modified(&self) -> SystemTime {
        let distance = Duration::from_nanos(self.modified_ns.unsigned_abs());
        if self.modified_ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970() {
        let at =
            |modified_ns| Manifest { name: "a".into(), bytes: 0, mode: 0, modified_ns }.modified();
        assert_eq!(at(1_500_000_000), UNIX_EPOCH + Duration::from_millis(1500));
        assert_eq!(at(-1), UNIX_EPOCH - Duration::from_nanos(1));
    }
}
