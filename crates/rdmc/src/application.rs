//! What an application gives to a group: callbacks, and memory when a message comes.

use transport::Region;

use crate::Failure;

/// The callbacks of one group at one member (DSN 2018 figure 1).
///
/// They run one at a time, in order, on a thread of the group's own (or in
/// [`crate::Context::progress`], if the caller drives progress), outside all locks: they may call
/// back into the library and may be slow without holding up other groups or the relaying of blocks
/// that have their memory. A callback that panics makes the group fail, and only `failed` is called
/// after it; other groups go on.
pub trait Application: Send + 'static {
    /// A message of exactly `bytes` bytes is coming; says where to put it. At receivers only.
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming;

    /// These bytes of the message are in place and will not change; they may be read through a
    /// clone of the region that was given. Called only with
    /// [`crate::GroupSettings::report_blocks`]: each byte once, adjacent blocks in one call if they came
    /// while a callback ran.
    fn block(&mut self, message: u64, offset: u64, bytes: u64) {
        let _ = (message, offset, bytes);
    }

    /// The whole message is in place at this member, which may still be relaying it. At receivers
    /// only.
    fn received(&mut self, message: u64) {
        let _ = message;
    }

    /// This member is done with the message, and the region is the application's again. Other
    /// members may still be receiving; only closing the group tells that all are done.
    fn complete(&mut self, message: u64, region: Region);

    /// The group has failed: the last callback of this group. Regions of messages that are incomplete,
    /// or of which `complete` was not called, come back by message number.
    fn failed(&mut self, failure: &Failure, regions: Vec<(u64, Region)>) {
        let _ = (failure, regions);
    }

    /// The group is closed and every message has reached every member: the last callback.
    fn closed(&mut self) {}
}

/// An application's answer to an incoming message.
#[derive(Debug)]
pub enum Incoming {
    /// Receive into this region, which is at least as long as the message.
    Into(Region),
    /// The application will call [`crate::Group::accept`]. Members that relay from here wait.
    Later,
    /// The message cannot be taken; the group fails with this reason.
    Refuse(String),
}

/// An application made of functions, as in the paper's figure 1: the first gets a message's number
/// and length and gives memory, the second gets the memory back, and the third gets the failure.
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
