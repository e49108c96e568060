//! Operations that a team repeats on the same memory.

use std::{fmt, sync::Arc, time::Duration};

use collective::{Kind, Reduction};
use session::Deadline;
use team::Memory;
use transport::Region;

use crate::{
    Error,
    team_driver::{Driver, Operation},
};

/// An all-reduce that a team repeats on the same memory: see [`crate::Team::prepare_all_reduce`].
///
/// All members have to start it at the same place in their sequence of calls. Between two operations the caller
/// may access the memory through leases of the region.
pub struct Prepared {
    driver: Arc<Driver>,
    region: Region,
    by: Reduction,
    /// The operation that was started and for which no call has waited yet.
    started: Option<u64>,
}

impl Prepared {
    /// Checks and registers the memory.
    ///
    /// Errors: see [`crate::Team::prepare_all_reduce`].
    pub(crate) fn new(driver: Arc<Driver>, region: Region, by: Reduction) -> Result<Self, Error> {
        let element_bytes = by.element_bytes();
        if !region.len().is_multiple_of(element_bytes) {
            let bytes = region.len();
            let text =
                format!("{bytes} bytes are not a whole number of elements of {element_bytes}");
            return Err(Error::TeamCall(text));
        }
        drop(region.write(0..region.len()).map_err(|error| Error::TeamCall(error.to_string()))?);
        driver.register(&region)?;
        Ok(Self { driver, region, by, started: None })
    }

    /// Returns the memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Starts the operation, and returns without waiting. The memory must not be used until the operation is
    /// complete.
    ///
    /// # Errors
    /// As for [`crate::Team::all_reduce`]; [`Error::TeamCall`] if [`Prepared::wait`] was not called since the last
    /// start, or if the memory is in use.
    pub fn start(&mut self) -> Result<(), Error> {
        if self.started.is_some() {
            return Err(Error::TeamCall("the operation is in progress: wait for it first".into()));
        }
        let (kind, by) = (Kind::AllReduce, Some(self.by.clone()));
        let operation = Operation { kind, root: 0, bytes: self.region.len() as u64, by };
        self.started = Some(self.driver.begin(operation, Memory::Region(self.region.clone()))?);
        Ok(())
    }

    /// Returns whether the operation is complete at this member, or was not started. Blocks only while other
    /// calls of the team are in progress.
    ///
    /// # Errors
    /// As for [`crate::Team::barrier`].
    pub fn is_complete(&self) -> Result<bool, Error> {
        self.started.map_or(Ok(true), |number| self.driver.is_complete(number))
    }

    /// Waits until the operation is complete, if it was started. The memory then contains the result.
    ///
    /// # Errors
    /// As for [`crate::Team::barrier`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        match self.started.take() {
            Some(number) => self.driver.finish(number, Deadline::after(timeout)).map(drop),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, started, .. } = self;
        write!(f, "Prepared({} bytes, started: {started:?})", region.len())
    }
}
