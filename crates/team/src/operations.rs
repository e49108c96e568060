//! The memory of operations, and how contributions are folded.

use std::{collections::VecDeque, fmt, ops::Range};

use collective::Reduction;
use transport::{LeaseError, ReadLease, Region, WriteLease};

use crate::Counters;

/// Memory of one operation.
pub enum Memory<'a> {
    /// Kept by the team until the operation is complete.
    Owned(Vec<u8>),
    /// The caller's, who waits for the operation; not for long ones ([`crate::Team::is_long`]).
    Lent(&'a mut [u8]),
    /// Shared with the caller, who does not use it until the operation is complete.
    Region(Region),
}

impl Memory<'_> {
    /// Returns the length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Owned(vector) => vector.len(),
            Self::Lent(slice) => slice.len(),
            Self::Region(region) => region.len(),
        };
        bytes as u64
    }
}

/// Memory of an operation that was started.
pub(crate) enum Store {
    /// Lent by a caller, who gives it again with each call.
    Lent,
    Owned(Vec<u8>),
    /// A region, for a short operation.
    Leased(WriteLease),
    /// A region, whose blocks are leased to the network, for a long operation.
    Region(Region),
}

/// How the contents of a slot become a part of memory.
#[derive(Clone, Copy)]
pub(crate) enum Placing {
    Copy,
    /// As the right operand.
    Fold,
    /// As the left operand.
    FoldLeft,
}

/// One operation that was started.
struct Entry {
    memory: Store,
    reduction: Option<Reduction>,
    is_complete: bool,
}

/// Operations that were started and whose results were not taken.
#[derive(Default)]
pub(crate) struct Operations {
    entries: VecDeque<Option<Entry>>,
    /// Number of `entries[0]`.
    first: u64,
    pub(crate) counters: Counters,
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operations({} from {})", self.entries.len(), self.first)
    }
}

impl Store {
    /// Prepares a region for an operation.
    ///
    /// Errors: it is in use, or cannot be written.
    pub(crate) fn region(region: Region, is_long: bool) -> Result<Self, LeaseError> {
        let lease = region.write(0..region.len())?;
        Ok(if is_long { Self::Region(region) } else { Self::Leased(lease) })
    }
}

impl Operations {
    /// Adds the next operation.
    pub(crate) fn push(&mut self, memory: Store, reduction: Option<Reduction>) {
        self.entries.push_back(Some(Entry { memory, reduction, is_complete: false }));
    }

    fn entry(&mut self, operation: u64) -> Option<&mut Entry> {
        let index = operation.checked_sub(self.first)?;
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Returns the memory of a short operation, which is `lent` unless the team has it, and what contributions are folded by.
    fn memory<'a>(
        &'a mut self,
        operation: u64,
        lent: &'a mut [u8],
    ) -> Result<(&'a mut [u8], Option<&'a Reduction>), String> {
        match self.entry(operation) {
            Some(Entry { memory: Store::Lent, reduction, .. }) => Ok((lent, reduction.as_ref())),
            Some(Entry { memory: Store::Owned(memory), reduction, .. }) => {
                Ok((memory, reduction.as_ref()))
            }
            Some(Entry { memory: Store::Leased(memory), reduction, .. }) => {
                Ok((memory, reduction.as_ref()))
            }
            _ => Err(format!("short operation {operation} has no memory")),
        }
    }

    /// Returns contents of a short operation's memory.
    ///
    /// Errors: `lent` has another length than at the start.
    pub(crate) fn contents<'a>(
        &'a mut self,
        operation: u64,
        at: u64,
        bytes: u32,
        lent: &'a mut [u8],
    ) -> Result<&'a [u8], String> {
        if bytes == 0 {
            return Ok(&[]);
        }
        self.counters.bytes_sent += u64::from(bytes);
        let (memory, _) = self.memory(operation, lent)?;
        let range = at as usize..at as usize + bytes as usize;
        memory.get(range).ok_or_else(|| "lent memory of another length".to_owned())
    }

    /// Folds or copies contents, which may change then, into a short operation's memory.
    ///
    /// Errors: `lent` has another length than at the start.
    pub(crate) fn place(
        &mut self,
        operation: u64,
        contents: &mut [u8],
        at: u64,
        how: Placing,
        lent: &mut [u8],
    ) -> Result<(), String> {
        if contents.is_empty() {
            return Ok(());
        }
        self.counters.bytes_received += contents.len() as u64;
        let (memory, by) = self.memory(operation, lent)?;
        let range = at as usize..at as usize + contents.len();
        let memory = memory.get_mut(range).ok_or("lent memory of another length")?;
        let folded = match (by, how) {
            (Some(by), Placing::Fold) => return by.fold(memory, contents).map_err(text),
            (Some(by), Placing::FoldLeft) => by.fold(contents, memory).map_err(text),
            _ => Ok(()),
        };
        memory.copy_from_slice(contents);
        folded
    }

    /// Returns the memory of a long operation, and what contributions are folded by.
    fn region(&mut self, operation: u64) -> Result<(&Region, Option<&Reduction>), String> {
        match self.entry(operation) {
            Some(Entry { memory: Store::Region(region), reduction, .. }) => {
                Ok((region, reduction.as_ref()))
            }
            _ => Err(format!("long operation {operation} has no memory")),
        }
    }

    /// Leases a block of a long operation's memory for sending.
    ///
    /// Errors: it is being written.
    pub(crate) fn read_block(
        &mut self,
        operation: u64,
        place: Range<u64>,
    ) -> Result<ReadLease, String> {
        self.counters.bytes_sent += place.end - place.start;
        let (region, _) = self.region(operation)?;
        region.read(place.start as usize..place.end as usize).map_err(text)
    }

    /// Leases a block of a long operation's memory for receiving.
    ///
    /// Errors: it is in use.
    pub(crate) fn write_block(
        &mut self,
        operation: u64,
        place: Range<u64>,
    ) -> Result<WriteLease, String> {
        let (region, _) = self.region(operation)?;
        region.write(place.start as usize..place.end as usize).map_err(text)
    }

    /// Folds a block that has come to scratch memory into a long operation's memory.
    ///
    /// Errors: that is in use.
    pub(crate) fn fold_block(
        &mut self,
        operation: u64,
        place: Range<u64>,
        scratch: &Region,
    ) -> Result<(), String> {
        let bytes = (place.end - place.start) as usize;
        let mut memory = self.write_block(operation, place)?;
        let (_, by) = self.region(operation)?;
        let by = by.ok_or_else(|| format!("operation {operation} folds nothing"))?;
        let other = scratch.read(0..bytes).map_err(text)?;
        by.fold(&mut memory, &other).map_err(text)
    }

    pub(crate) fn complete(&mut self, operation: u64) {
        if let Some(entry) = self.entry(operation) {
            entry.is_complete = true;
            self.counters.operations += 1;
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

    /// Returns whether blocks of an operation go from memory to memory still.
    pub(crate) fn are_long(&self) -> bool {
        let is_long =
            |entry: &Entry| matches!(entry.memory, Store::Region(_)) && !entry.is_complete;
        self.entries.iter().flatten().any(is_long)
    }

    /// Returns the memory of an operation that is complete, once; empty where the caller has it.
    pub(crate) fn take(&mut self, operation: u64) -> Option<Vec<u8>> {
        let entry = self.entry(operation).filter(|entry| entry.is_complete)?;
        let memory = match std::mem::replace(&mut entry.memory, Store::Lent) {
            Store::Owned(memory) => memory,
            Store::Region(region) => region.try_into_vec().unwrap_or_default(),
            Store::Lent | Store::Leased(_) => Vec::new(),
        };
        self.forget(operation);
        Some(memory)
    }

    /// Drops the memory of operations that are not complete: the team has failed.
    pub(crate) fn drop_incomplete(&mut self) {
        for entry in self.entries.iter_mut().flatten().filter(|entry| !entry.is_complete) {
            entry.memory = Store::Lent;
        }
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

fn text(error: impl ToString) -> String {
    error.to_string()
}
