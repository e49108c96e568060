//! What stands for devices in a build without libibverbs' headers: nobody can have one.

use std::{
    convert::Infallible,
    net::IpAddr,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use crate::{Completion, Connection, Operation, VerbsError};

/// An RDMA device, which this build cannot open.
pub struct Device(Infallible);

/// Memory of a device, which this build cannot have.
pub struct Memory(Infallible);

/// A queue pair, which this build cannot have.
pub struct QueuePair(Infallible);

impl Device {
    /// Fails: this build cannot use devices.
    pub fn open(_name: &str, _address: IpAddr) -> Result<Self, VerbsError> {
        Err(not_built())
    }

    /// Fails: this build cannot use devices.
    pub fn with_address(_address: IpAddr, _interface: u32) -> Result<Option<Self>, VerbsError> {
        Err(not_built())
    }

    /// Nobody can call it.
    #[must_use]
    pub const fn name(&self) -> &str {
        match self.0 {}
    }

    /// Nobody can call it.
    #[must_use]
    pub const fn mtu_bytes(&self) -> u32 {
        match self.0 {}
    }

    pub(crate) fn register(&self, _bytes: usize, _for_peers: bool) -> Result<Memory, VerbsError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn memory(&self, _bytes: usize) -> Result<Memory, VerbsError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn queue_pair(&self) -> Result<QueuePair, VerbsError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn poll(
        &self,
        _completions: &mut Vec<Completion>,
        _patience: Duration,
    ) -> Result<(), VerbsError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn poll_or_arm(&self, _completions: &mut Vec<Completion>) -> Result<usize, VerbsError> {
        match self.0 {}
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

fn not_built() -> VerbsError {
    let why = "this program was built without its headers (Debian: libibverbs-dev)";
    VerbsError::Library { why: why.to_owned() }
}

impl Memory {
    /// Nobody can call it.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self.0 {}
    }

    /// # Safety
    /// Nobody can call it.
    pub(crate) unsafe fn slice(&self) -> &[u8] {
        match self.0 {}
    }

    /// # Safety
    /// Nobody can call it.
    pub(crate) unsafe fn slice_mut(&mut self) -> &mut [u8] {
        match self.0 {}
    }

    /// Nobody can call it.
    #[must_use]
    pub fn address(&self) -> u64 {
        match self.0 {}
    }

    /// Nobody can call it.
    #[must_use]
    pub fn key(&self) -> u32 {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn write(&mut self, _at: usize, _bytes: &[u8]) -> Result<(), VerbsError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn read(&self, _range: Range<usize>) -> Result<Vec<u8>, VerbsError> {
        match self.0 {}
    }
}

impl QueuePair {
    /// Nobody can call it.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn connect(&mut self, _connection: &Connection) -> Result<(), VerbsError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn send(
        &mut self,
        _id: u64,
        _operation: Operation,
        _memory: &Memory,
        _range: Range<usize>,
        _immediate: Option<u32>,
    ) -> Result<(), VerbsError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn receive(
        &mut self,
        _id: u64,
        _memory: &Memory,
        _range: Range<usize>,
    ) -> Result<(), VerbsError> {
        match self.0 {}
    }
}
