//! One-sided writes before and after they leave.

use transport::{PeerMemory, ReadLease, Token};

/// A write that has not left.
pub(crate) struct PostedWrite {
    pub(crate) from: ReadLease,
    pub(crate) token: Token,
    pub(crate) key: u32,
    pub(crate) offset: u64,
    pub(crate) immediate: u32,
}

impl PostedWrite {
    /// Drops the lease.
    pub(crate) fn into_token(self) -> Token {
        self.token
    }
}

/// A write that has left.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) contents: Vec<u8>,
    pub(crate) key: u32,
    pub(crate) offset: u64,
    pub(crate) immediate: u32,
}

impl Arrival {
    /// Copies the bytes into exposed memory. Errors: why they cannot be written there.
    pub(crate) fn place(&self, memory: Option<&PeerMemory>) -> Result<(), String> {
        let Self { contents, key, offset, .. } = self;
        let memory = memory.ok_or_else(|| format!("a write to key {key}, which is not exposed"))?;
        let start = usize::try_from(*offset).unwrap_or(usize::MAX);
        memory.copy_in(start, contents).map_err(|error| format!("a write to key {key}: {error}"))
    }
}
