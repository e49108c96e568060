//! One-sided writes before and after they leave.

use std::{ops::Range, rc::Rc};

use transport::{PeerMemory, ReadLease, Token};

/// A write that has not left.
pub(crate) struct PostedWrite {
    pub(crate) from: ReadLease,
    pub(crate) token: Token,
    pub(crate) key: u32,
    pub(crate) offset: u64,
    pub(crate) immediate: Option<u32>,
}

impl PostedWrite {
    /// Drops the lease.
    pub(crate) fn into_token(self) -> Token {
        self.token
    }
}

/// A write that has left.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) contents: Rc<[u8]>,
    pub(crate) key: u32,
    pub(crate) offset: u64,
    pub(crate) immediate: Option<u32>,
}

impl Arrival {
    /// Copies the bytes into exposed memory. Errors: why they cannot be written there.
    pub(crate) fn place(&self, memory: Option<&PeerMemory>) -> Result<(), String> {
        let (memory, start) = self.target(memory)?;
        let copied = memory.copy_in(start, &self.contents);
        copied.map_err(|error| format!("a write to key {}: {error}", self.key))
    }

    /// Checks that the bytes can be written there. Errors: why not.
    pub(crate) fn check(&self, memory: Option<&PeerMemory>) -> Result<(), String> {
        self.target(memory).map(drop)
    }

    /// Returns the exposed memory, and where the bytes belong in it.
    fn target<'a>(
        &self,
        memory: Option<&'a PeerMemory>,
    ) -> Result<(&'a PeerMemory, usize), String> {
        let Self { contents, key, offset, .. } = self;
        let memory = memory.ok_or_else(|| format!("a write to key {key}, which is not exposed"))?;
        let end = offset.checked_add(contents.len() as u64);
        if end.is_none_or(|end| end > memory.len() as u64) {
            let (bytes, room) = (contents.len(), memory.len());
            return Err(format!(
                "a write to key {key}: {bytes} bytes at {offset} are outside of {room} bytes"
            ));
        }
        Ok((memory, *offset as usize))
    }

    /// Returns the units in which bytes become visible, as ranges of the contents in ascending order.
    pub(crate) fn units(&self, whole_words: bool) -> Vec<Range<usize>> {
        let bytes = self.contents.len();
        let unit = |at: usize| match whole_words {
            true => (8 - (self.offset as usize).wrapping_add(at) % 8).min(bytes - at),
            false => 1,
        };
        let mut units = Vec::new();
        let mut at = 0;
        while at < bytes {
            let end = at + unit(at);
            units.push(at..end);
            at = end;
        }
        units
    }
}

/// A part of a write that becomes visible at one instant.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) of: Arrival,
    /// Ranges of its contents.
    pub(crate) units: Vec<Range<usize>>,
}

impl Part {
    /// Copies the part into exposed memory; nothing of a write that does not fit there.
    pub(crate) fn place(&self, memory: Option<&PeerMemory>) {
        let Ok((memory, start)) = self.of.target(memory) else { return };
        for unit in &self.units {
            let copied = memory.copy_in(start + unit.start, &self.of.contents[unit.clone()]);
            debug_assert!(copied.is_ok(), "the whole write fits");
        }
    }
}
