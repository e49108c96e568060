//! A message received by a group without callbacks.

use std::{
    fmt,
    io::{self, Read},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use session::Deadline;
use transport::Region;

use crate::{
    Error,
    caller::Call,
    inbox::Received,
    shared::{Shared, Status},
};

/// The call, and its replacement in callbacks.
const READ: Call = Call { name: "reading a message", instead: "read on another thread" };

/// A received message, returned by [`crate::Group::receive`]. Its bytes may still be arriving, and this
/// member may be relaying them to other members.
///
/// [`Read`] reads the bytes in order. [`Message::next_block`] returns ranges in the order of their
/// arrival, to be read from [`Message::region`]. The two are independent of each other.
///
/// Dropping the handle does not stop relaying: other members still receive the message. Its memory is
/// released once this member is done with the message.
pub struct Message {
    shared: Arc<Shared>,
    received: Received,
    /// How many bytes [`Read`] has returned.
    position: u64,
}

impl Message {
    pub(crate) fn new(shared: Arc<Shared>, received: Received) -> Self {
        Self { shared, received, position: 0 }
    }

    /// Returns the message's number: the number of messages of the group before it.
    pub fn number(&self) -> u64 {
        self.received.number
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.received.bytes
    }

    /// Returns whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.received.bytes == 0
    }

    /// Returns the message's memory, which may be longer than the message if it was posted. Ranges that have
    /// not arrived have undefined contents, and cannot be leased for reading while they are being
    /// written.
    pub fn region(&self) -> &Region {
        &self.received.region
    }

    /// Waits until all bytes have arrived. With [`crate::Progress::Caller`] this and all other waiting
    /// calls of a message make progress, as [`crate::Group::close`] does.
    ///
    /// # Errors
    /// The group fails; the timeout expires; [`Error::InsideCallback`]; the context is
    /// closed or has failed.
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        self.wait_for(Deadline::after(timeout), |status| self.check_whole(status))
    }

    /// Waits as [`Message::wait`] does; a future for any executor.
    ///
    /// # Errors
    /// The group fails.
    #[cfg(feature = "async")]
    pub async fn wait_async(&self) -> Result<(), Error> {
        self.shared.until(self.or_ended(|status| self.check_whole(status))).await
    }

    /// Waits for the next range of bytes to arrive, and returns the range. Each byte is returned once, and
    /// adjacent blocks are returned as one range. Returns `None` once all bytes were returned.
    ///
    /// # Errors
    /// As for [`Message::wait`].
    pub fn next_block(&mut self, timeout: Duration) -> Result<Option<Range<u64>>, Error> {
        self.wait_for(Deadline::after(timeout), |status| self.take_block(status))
    }

    /// Returns the next range as [`Message::next_block`] does; a future for any executor. Dropping the future
    /// before it is ready takes no range.
    ///
    /// # Errors
    /// The group fails.
    #[cfg(feature = "async")]
    pub async fn next_block_async(&mut self) -> Result<Option<Range<u64>>, Error> {
        self.shared.until(self.or_ended(|status| self.take_block(status))).await
    }

    /// Iterates over ranges through [`Message::next_block`], with the group's
    /// [`crate::GroupSettings::stall_timeout`] for each. Ends after the last range and after an error.
    pub fn blocks(&mut self) -> impl Iterator<Item = Result<Range<u64>, Error>> {
        let mut has_failed = false;
        std::iter::from_fn(move || {
            if has_failed {
                return None;
            }
            let next = self.next_block(self.shared.settings.stall_timeout).transpose();
            has_failed = matches!(next, Some(Err(_)));
            next
        })
    }

    /// Waits until this member is done with the message (all bytes received, nothing left to
    /// relay), and returns its memory.
    ///
    /// # Errors
    /// As for [`Message::wait`]; after a timeout the memory is released once this member is done
    /// with the message.
    pub fn into_region(self, timeout: Duration) -> Result<Region, Error> {
        self.wait_for(Deadline::after(timeout), |status| self.take_region(status))
    }

    /// Returns the memory as [`Message::into_region`] does; a future for any executor. Dropping the future
    /// before it is ready releases the memory once this member is done with the message.
    ///
    /// # Errors
    /// The group fails.
    #[cfg(feature = "async")]
    pub async fn into_region_async(self) -> Result<Region, Error> {
        self.shared.until(self.or_ended(|status| self.take_region(status))).await
    }

    fn check_whole(&self, status: &mut Status) -> Option<()> {
        status.inbox.as_ref()?.is_whole(self.received.number).then_some(())
    }

    /// Returns `Some(None)` once all blocks were taken.
    fn take_block(&self, status: &mut Status) -> Option<Option<Range<u64>>> {
        let (inbox, number) = (status.inbox.as_mut()?, self.received.number);
        match inbox.next_block(number) {
            Some(range) => Some(Some(range)),
            None => inbox.is_whole(number).then_some(None),
        }
    }

    fn take_region(&self, status: &mut Status) -> Option<Region> {
        status.inbox.as_mut()?.take_done(self.received.number)
    }

    /// Returns the result of `step`, or an error if it has none and the group has ended.
    fn or_ended<T>(
        &self,
        mut step: impl FnMut(&mut Status) -> Option<T>,
    ) -> impl FnMut(&mut Status) -> Option<Result<T, Error>> {
        let group = self.shared.settings.number;
        move |status| match step(status) {
            Some(answer) => Some(Ok(answer)),
            None => status.has_ended().then(|| Err(status.ended(group))),
        }
    }

    fn wait_for<T>(
        &self,
        deadline: Deadline,
        step: impl FnMut(&mut Status) -> Option<T>,
    ) -> Result<T, Error> {
        let group = self.shared.settings.number;
        self.shared.wait(READ, deadline, self.or_ended(step))?.unwrap_or_else(|| {
            let number = self.received.number;
            Err(deadline.missed(format!("message {number} of group {group}")).into())
        })
    }

    fn copy(&self, range: Range<usize>, into: &mut [u8]) -> io::Result<()> {
        let region = &self.received.region;
        if region.is_stored() {
            return region.read_stored(range).map_err(io::Error::other)?.copy_to(into);
        }
        into.copy_from_slice(&region.read(range).map_err(io::Error::other)?);
        Ok(())
    }
}

/// Reads the bytes in order. Each read waits until the next bytes have arrived, for at most the group's
/// [`crate::GroupSettings::stall_timeout`]. Errors contain an [`Error`].
impl Read for Message {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (number, position) = (self.received.number, self.position);
        if into.is_empty() || position == self.received.bytes {
            return Ok(0);
        }
        let deadline = Deadline::after(self.shared.settings.stall_timeout);
        let prefix = self.wait_for(deadline, |status| {
            let prefix = status.inbox.as_ref()?.prefix(number);
            (prefix > position).then_some(prefix)
        });
        let prefix = prefix.map_err(|error| match error {
            Error::Timeout { .. } => io::Error::new(io::ErrorKind::TimedOut, error),
            other => io::Error::other(other),
        })?;
        let left = usize::try_from(prefix - position).unwrap_or(usize::MAX);
        let (start, count) = (position as usize, left.min(into.len()));
        self.copy(start..start + count, &mut into[..count])?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let mut status = self.shared.status();
        let has_ended = status.has_ended();
        let inbox = status.inbox.as_mut();
        let region = inbox.and_then(|inbox| inbox.dropped(self.received.number, has_ended));
        // Its owner may be the application's.
        drop(status);
        drop(region);
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("number", &self.received.number)
            .field("bytes", &self.received.bytes)
            .finish_non_exhaustive()
    }
}
