//! The callbacks of a group, and the memory that an application provides for a message.

use transport::Region;

use crate::Failure;

/// The callbacks of one group at one member (DSN 2018 figure 1).
///
/// Callbacks run one at a time and in order, on a thread that belongs to the group (or in
/// [`crate::Context::progress`], with [`crate::Progress::Caller`]). No lock is held: a callback may
/// call the library, and a slow callback delays neither other groups nor the relaying of messages that
/// have their memory. If a callback panics, the group fails, and only `failed` is called afterwards;
/// other groups are not affected.
pub trait Application: Send + 'static {
    /// Returns the memory for a message of exactly `bytes` bytes. Called at receivers only.
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming;

    /// Reports that a range of the message, in bytes, is in place and will not change. It may be read
    /// through a clone of the region that was provided. Called only with
    /// [`crate::GroupSettings::report_blocks`]; each byte is reported once. Adjacent blocks that arrive
    /// while a callback runs are reported in one call.
    fn block(&mut self, message: u64, offset: u64, bytes: u64) {
        let _ = (message, offset, bytes);
    }

    /// Reports that the whole message is in place at this member, which may still be relaying it.
    /// Called at receivers only.
    fn received(&mut self, message: u64) {
        let _ = message;
    }

    /// Reports that this member is done with the message, and returns its region to the
    /// application. Other members may still be receiving the message; only a successful close or
    /// [`crate::Group::delivered`] means that all have it.
    fn complete(&mut self, message: u64, region: Region);

    /// Reports that every member has the first `count` messages. Called at the root only, with
    /// [`crate::GroupSettings::report_delivered`] or while a call of [`crate::Group::wait_delivered`]
    /// waits; in that case also for all messages before `closed`. Messages that reach every member between
    /// two calls are reported in one call.
    fn delivered(&mut self, count: u64) {
        let _ = count;
    }

    /// Reports that the group has failed; the last callback of this group. `regions` returns the memory of
    /// all messages for which `complete` was not called, with the messages' numbers.
    fn failed(&mut self, failure: &Failure, regions: Vec<(u64, Region)>) {
        let _ = (failure, regions);
    }

    /// Reports that the group is closed and every message has reached every member; the last
    /// callback of this group.
    fn closed(&mut self) {}
}

/// Where an application receives an incoming message.
#[derive(Debug)]
pub enum Incoming {
    /// Receive into this region, which must be at least as long as the message. If any part of the region
    /// is in use, the group fails.
    Into(Region),
    /// The application will call [`crate::Group::accept`]. Until then, members to which this member relays wait.
    Later,
    /// Refuse the message; the group fails with this reason.
    Refuse(String),
}

/// An application made of three functions, as in figure 1 of the paper: `incoming`, `complete` and
/// `failed` (without the regions).
impl<I, C, F> Application for (I, C, F)
where
    I: FnMut(u64, u64) -> Incoming + Send + 'static,
    C: FnMut(u64, Region) + Send + 'static,
    F: FnMut(&Failure) + Send + 'static,
{
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        self.0(message, bytes)
    }

    fn complete(&mut self, message: u64, region: Region) {
        self.1(message, region);
    }

    fn failed(&mut self, failure: &Failure, _: Vec<(u64, Region)>) {
        self.2(failure);
    }
}
