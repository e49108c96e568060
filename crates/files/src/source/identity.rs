//! Attributes of a file that must not change while it is sent.

use super::status::Status;

/// Attributes of a file that must not change while it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds since 1970, and nanoseconds.
    modified_s: i64,
    modified_ns: u32,
    /// Permission bits.
    mode: u32,
}

impl Identity {
    pub(super) fn of(status: &Status) -> Self {
        let Status { device, inode, bytes, modified, mode, .. } = *status;
        let (modified_s, modified_ns) = (modified.0, modified.1 as u32);
        Self { device, inode, bytes, modified_s, modified_ns, mode: mode & 0o777 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Errors: what has changed.
    pub(super) fn check(&self, now: &Self) -> Result<(), String> {
        if (self.device, self.inode) != (now.device, now.inode) {
            return Err("another file has its name".into());
        }
        if self.bytes != now.bytes {
            let still = if now.bytes > self.bytes { ": is it still being written?" } else { "" };
            return Err(format!("it had {} bytes and has {}{still}", self.bytes, now.bytes));
        }
        if (self.modified_s, self.modified_ns) != (now.modified_s, now.modified_ns) {
            return Err("it was written to".into());
        }
        if self.mode != now.mode {
            return Err(mode_changed(self.mode, now.mode));
        }
        Ok(())
    }
}

/// What has changed where only permission bits have.
pub(super) fn mode_changed(before: u32, now: u32) -> String {
    format!("its mode was {before:03o} and is {now:03o}")
}
