//! What an application gives to a group: callbacks, and memory when a message comes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use transport::Region;
use transport_switch::Registration;

use crate::{Error, Event, Failure, group::Shared};

/// The callbacks of one group at one member (DSN 2018 figure 1).
///
/// They run one at a time, in order, on a thread of the group's own (or in
/// [`crate::Context::progress`], if the caller drives progress), outside all locks: they may call
/// back into the library and may be slow without holding up other groups or the relaying of blocks
/// that have their memory. A callback that panics makes the group fail; other groups go on.
pub trait Application: Send + 'static {
    /// A message of exactly `bytes` bytes is coming; says where to put it. At receivers only.
    fn incoming(&mut self, message: u64, bytes: u64) -> Memory;

    /// These bytes of the message are in place and will not change; they may be read through a
    /// clone of the region that was given. Called only with
    /// [`crate::GroupSettings::report_blocks`].
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

    /// The group has failed: the last callback of this group. Regions of incomplete messages come
    /// back by message number.
    fn failed(&mut self, failure: &Failure, regions: Vec<(u64, Region)>) {
        let _ = (failure, regions);
    }

    /// The group is closed and every message has reached every member: the last callback.
    fn closed(&mut self) {}
}

/// An application's answer to an incoming message.
#[derive(Debug)]
pub enum Memory {
    /// Receive into this region, which is at least as long as the message.
    Region(Region),
    /// The application will call [`crate::Group::accept`]. Members that relay from here wait.
    Later,
    /// The message cannot be taken; the group fails with this reason.
    Refuse(String),
}

/// An application made of two functions, as in the paper's `create_group`.
pub(crate) struct Functions<I, C> {
    pub(crate) incoming: I,
    pub(crate) complete: C,
}

impl<I, C> Application for Functions<I, C>
where
    I: FnMut(u64, u64) -> Memory + Send + 'static,
    C: FnMut(u64, Region) + Send + 'static,
{
    fn incoming(&mut self, message: u64, bytes: u64) -> Memory {
        (self.incoming)(message, bytes)
    }

    fn complete(&mut self, message: u64, region: Region) {
        (self.complete)(message, region);
    }
}

/// Turns a group's events into calls of its application.
pub(crate) struct Dispatcher {
    application: Box<dyn Application>,
    shared: std::sync::Arc<Shared>,
    /// Goes with the dispatcher, where callbacks run: taking a group out of switches may block.
    _registration: Option<Registration>,
}

impl Dispatcher {
    pub(crate) fn new(
        application: Box<dyn Application>,
        shared: std::sync::Arc<Shared>,
        registration: Option<Registration>,
    ) -> Self {
        Self { application, shared, _registration: registration }
    }

    /// Delivers on the thread of whoever drives progress, which is the callback thread meanwhile.
    pub(crate) fn run_here(&mut self, event: Event) {
        let last = matches!(event, Event::Failed { .. } | Event::Closed { .. });
        self.shared.set_callback_thread();
        self.deliver(event);
        self.shared.clear_callback_thread();
        if last {
            self.shared.set_finished();
        }
    }

    pub(crate) fn deliver(&mut self, event: Event) {
        self.shared.note(&event);
        let (application, shared) = (&mut self.application, &self.shared);
        // The application is not called again with anything but `failed` after a panic, which is
        // its own to survive.
        let call = AssertUnwindSafe(|| call(application.as_mut(), shared, event));
        if let Err(panic) = catch_unwind(call) {
            let what = panic
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            self.shared.abort(&format!("callback panicked: {what}"));
        }
    }
}

fn call(application: &mut dyn Application, shared: &Shared, event: Event) {
    match event {
        Event::Incoming { message, bytes, .. } => {
            let outcome = match application.incoming(message, bytes) {
                Memory::Region(region) => shared.accept(message, region),
                Memory::Later => Ok(()),
                Memory::Refuse(reason) => {
                    shared.abort(&format!("message {message} refused: {reason}"));
                    Ok(())
                }
            };
            match outcome {
                // A group that has failed meanwhile needs no second failure.
                Ok(()) | Err(Error::Failed(_) | Error::Closed(_) | Error::ContextClosed) => {}
                Err(error) => shared.abort(&error.to_string()),
            }
        }
        Event::Block { message, offset, bytes, .. } => application.block(message, offset, bytes),
        Event::Received { message, .. } => application.received(message),
        Event::Complete { message, region, .. } => application.complete(message, region),
        Event::Failed { failure, regions } => application.failed(&failure, regions),
        Event::Closed { .. } => application.closed(),
    }
}
