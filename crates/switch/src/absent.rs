//! What stands for the switch in the kernel in a build without its program: nobody can have one.

use std::{convert::Infallible, os::fd::OwnedFd, path::Path};

use mcrdma::{Counters, GroupKey, Merging, Replication};

use crate::{PlaneError, Statistics};

/// A switch in the kernel, which this build cannot have.
pub struct KernelPlane(Infallible);

impl KernelPlane {
    /// Fails: this build has no program for the kernel.
    pub fn open(_directory: &Path) -> Result<Self, PlaneError> {
        Err(PlaneError::NotBuilt)
    }

    /// Fails: this build has no program for the kernel.
    pub fn enable_statistics() -> Result<OwnedFd, PlaneError> {
        Err(PlaneError::NotBuilt)
    }

    /// Nobody can call it.
    pub fn attach(&mut self, _port: &str) -> Result<(), PlaneError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn detach(&mut self, _port: &str) -> Result<(), PlaneError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn unpin(self) -> Result<(), PlaneError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn insert(
        &mut self,
        _key: GroupKey,
        _replication: &Replication,
        _merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn counters(&self) -> Result<Counters, PlaneError> {
        match self.0 {}
    }

    /// Nobody can call it.
    pub fn statistics(&self) -> Result<Statistics, PlaneError> {
        match self.0 {}
    }
}
