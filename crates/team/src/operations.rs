//! The memory of operations, and how contributions are folded.

use std::{collections::VecDeque, fmt};

use collective::Reduction;

/// Memory of one operation.
pub enum Memory<'a> {
    /// Kept by the team until the operation is complete.
    Owned(Vec<u8>),
    /// The caller's, who waits for the operation.
    Lent(&'a mut [u8]),
}

/// One operation that was started.
struct Entry {
    /// `None`: lent by a caller, who gives it again with each call.
    memory: Option<Vec<u8>>,
    reduction: Option<Reduction>,
    is_complete: bool,
}

/// Operations that were started and whose results were not taken.
#[derive(Default)]
pub(crate) struct Operations {
    entries: VecDeque<Option<Entry>>,
    /// Number of `entries[0]`.
    first: u64,
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operations({} from {})", self.entries.len(), self.first)
    }
}

impl Operations {
    /// Adds the next operation; `memory` is `None` where it is lent.
    pub(crate) fn push(&mut self, memory: Option<Vec<u8>>, reduction: Option<Reduction>) {
        self.entries.push_back(Some(Entry { memory, reduction, is_complete: false }));
    }

    fn entry(&mut self, operation: u64) -> Option<&mut Entry> {
        let index = operation.checked_sub(self.first)?;
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Returns the memory of an operation, which is `lent` unless the team owns it, and what contributions are folded by.
    pub(crate) fn memory<'a>(
        &'a mut self,
        operation: u64,
        lent: &'a mut [u8],
    ) -> Option<(&'a mut [u8], Option<&'a Reduction>)> {
        let Entry { memory, reduction, .. } = self.entry(operation)?;
        let memory = match memory {
            Some(memory) => &mut memory[..],
            None => lent,
        };
        Some((memory, reduction.as_ref()))
    }

    pub(crate) fn complete(&mut self, operation: u64) {
        if let Some(entry) = self.entry(operation) {
            entry.is_complete = true;
        }
    }

    pub(crate) fn is_complete(&self, operation: u64) -> bool {
        let Some(index) = operation.checked_sub(self.first) else { return true };
        match self.entries.get(index as usize) {
            Some(Some(entry)) => entry.is_complete,
            Some(None) => true,
            None => false,
        }
    }

    /// Returns the memory of an operation that is complete, once; empty where it was lent.
    pub(crate) fn take(&mut self, operation: u64) -> Option<Vec<u8>> {
        let entry = self.entry(operation).filter(|entry| entry.is_complete)?;
        let memory = entry.memory.take().unwrap_or_default();
        self.forget(operation);
        Some(memory)
    }

    /// Removes an operation, complete or not.
    pub(crate) fn forget(&mut self, operation: u64) {
        if let Some(index) = operation.checked_sub(self.first)
            && let Some(entry) = self.entries.get_mut(index as usize)
        {
            *entry = None;
        }
        while matches!(self.entries.front(), Some(None)) {
            self.entries.pop_front();
            self.first += 1;
        }
    }
}
