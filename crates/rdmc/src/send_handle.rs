//! The handle of a message that the root has queued.

use std::{sync::Arc, time::Duration};

use session::Deadline;
use transport::Region;

use crate::{
    Error,
    caller::Call,
    shared::{Shared, Status},
};

const INTO_REGION: Call = Call { name: "into_region", instead: "use is_complete there" };

/// A message that the root has queued; returned by [`crate::Group::send`]. Dropping the handle does not
/// affect the message.
#[derive(Debug)]
pub struct SendHandle {
    shared: Arc<Shared>,
    message: u64,
}

impl SendHandle {
    pub(crate) fn new(shared: Arc<Shared>, message: u64) -> Self {
        Self { shared, message }
    }

    /// Returns the message's number: the number of messages sent before it.
    pub fn message(&self) -> u64 {
        self.message
    }

    /// Returns whether the root is done with the message.
    pub fn is_complete(&self) -> bool {
        self.shared.status().completed > self.message
    }

    /// Waits until the root is done with the message and its memory is free again. Members may
    /// still be relaying the message to each other; only a successful close or
    /// [`crate::Group::wait_delivered`] means that all have it. With [`crate::Progress::Caller`] the call makes progress, as
    /// [`crate::Group::close`] does.
    ///
    /// # Errors
    /// As for [`crate::Group::wait_complete`].
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        self.shared.wait_complete(self.message + 1, timeout)
    }

    /// Waits as [`SendHandle::wait`] does, and returns the memory.
    ///
    /// # Errors
    /// As for [`SendHandle::wait`]; after a timeout the memory is released once the root is
    /// done with the message. [`Error::HasCallbacks`]: [`crate::Application::complete`] returns the memory.
    pub fn into_region(self, timeout: Duration) -> Result<Region, Error> {
        let deadline = Deadline::after(timeout);
        let step = |status: &mut Status| self.take_region(status);
        self.shared.wait(INTO_REGION, deadline, step)?.unwrap_or_else(|| {
            let group = self.shared.settings.number;
            Err(deadline.missed(format!("message {} of group {group}", self.message)).into())
        })
    }

    /// Waits as [`SendHandle::wait`] does; a future for any executor.
    ///
    /// # Errors
    /// The group fails.
    #[cfg(feature = "async")]
    pub async fn wait_async(&self) -> Result<(), Error> {
        let group = self.shared.settings.number;
        self.shared.until(|status| status.check_complete(group, self.message + 1)).await
    }

    /// Returns the memory as [`SendHandle::into_region`] does; a future for any executor.
    ///
    /// # Errors
    /// The group fails; [`Error::HasCallbacks`].
    #[cfg(feature = "async")]
    pub async fn into_region_async(self) -> Result<Region, Error> {
        self.shared.until(|status| self.take_region(status)).await
    }

    fn take_region(&self, status: &mut Status) -> Option<Result<Region, Error>> {
        let group = self.shared.settings.number;
        if status.inbox.is_none() {
            return Some(Err(Error::HasCallbacks(group)));
        }
        match status.sent_memory.get_mut(&self.message).and_then(Option::take) {
            Some(region) => Some(Ok(region)),
            None => status.has_ended().then(|| Err(status.ended(group))),
        }
    }
}

impl Drop for SendHandle {
    fn drop(&mut self) {
        let mut status = self.shared.status();
        let region = status.sent_memory.remove(&self.message);
        // Its owner may be the application's.
        drop(status);
        drop(region);
    }
}
