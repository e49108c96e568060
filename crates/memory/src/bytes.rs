//! Shared state of a region: the address of its bytes, their owner, and the leases taken.

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::{ledger::Ledger, storage::Storage};

/// The bytes of a region and of all its clones and parts, and the leases taken of them.
pub(crate) struct Bytes {
    start: *mut u8,
    bytes: usize,
    access: Access,
    leases: Mutex<Ledger>,
    /// Declared before `owner`: fields are dropped in this order, attachments before the memory.
    attachments: Mutex<Vec<Attachment>>,
    owner: Owner,
}

/// An object that a transport keeps with a region as long as its memory exists, such as the
/// memory's registration with a network.
pub type Attachment = Box<dyn Any + Send + Sync>;

/// The whole memory that a lease is a part of, for transports that register memory.
pub struct Memory<'a>(&'a Bytes);

impl Memory<'_> {
    /// Returns the address of the first byte of the region.
    pub fn start(&self) -> *mut u8 {
        self.0.start
    }

    /// Returns the length of the region in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns whether the memory may be written.
    pub fn is_writable(&self) -> bool {
        self.0.access == Access::ReadWrite
    }

    /// Returns what transports have attached; dropped just before the memory is freed.
    pub fn attachments(&self) -> MutexGuard<'_, Vec<Attachment>> {
        self.0.attachments.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

pub(crate) enum Owner {
    /// A boxed slice turned into a raw pointer; freed, or returned as a vector, as a whole.
    Heap,
    /// No memory: the bytes are in a file or similar.
    Stored(Arc<dyn Storage>),
    Shared(#[allow(dead_code, reason = "keeps the memory alive")] Arc<dyn Any + Send + Sync>),
    Foreign(#[allow(dead_code, reason = "keeps the memory alive")] Box<dyn Any + Send + Sync>),
}

// SAFETY: the memory is accessed only through leases, which `Ledger` grants under a mutex and of
// which a writer excludes all others; the owner is Send and is only dropped.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    pub(crate) fn new(start: *mut u8, bytes: usize, access: Access, owner: Owner) -> Self {
        let (leases, attachments) = (Mutex::default(), Mutex::default());
        Self { start, bytes, access, leases, attachments, owner }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn memory(&self) -> Memory<'_> {
        Memory(self)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// Returns the vector that the memory was made of, without its attachments; or `self` if it was
    /// made of something else or is still shared.
    pub(crate) fn try_into_vec(self: Arc<Self>) -> Result<Vec<u8>, Arc<Self>> {
        if !matches!(self.owner, Owner::Heap) {
            return Err(self);
        }
        let mut whole = Arc::try_unwrap(self)?;
        whole.memory().attachments().clear();
        // The memory moves to the vector; `Drop` must not free it.
        whole.owner = Owner::Foreign(Box::new(()));
        // SAFETY: made by `Region::from_vec` of a boxed slice of this start and length; ours alone,
        // since each lease holds an `Arc` of this.
        Ok(unsafe { Vec::from_raw_parts(whole.start, whole.bytes, whole.bytes) })
    }

    /// Returns the storage that holds the bytes, if they are not in memory.
    pub(crate) fn storage(&self) -> Option<&dyn Storage> {
        match &self.owner {
            Owner::Stored(storage) => Some(&**storage),
            _ => None,
        }
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Ledger> {
        // A panic while the mutex was held cannot leave the ledger half changed: see `Ledger`.
        self.leases.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.memory().attachments().clear();
        if matches!(self.owner, Owner::Heap) {
            // SAFETY: made by `from_vec` of a boxed slice of this start and length, and no lease
            // is left, since each holds an `Arc` of this.
            drop(unsafe { Vec::from_raw_parts(self.start, self.bytes, self.bytes) });
        }
    }
}
