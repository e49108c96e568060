//! What an application gives to a group: callbacks, and memory when a message comes.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use transport::Region;

use crate::{Error, Event, Failure, FailureKind, group::Shared};

/// The callbacks of one group at one member (DSN 2018 figure 1).
///
/// They run one at a time, in order, on a thread of the group's own (or in
/// [`crate::Context::progress`], if the caller drives progress), outside all locks: they may call
/// back into the library and may be slow without holding up other groups or the relaying of blocks
/// that have their memory. A callback that panics makes the group fail, and only `failed` is called
/// after it; other groups go on.
pub trait Application: Send + 'static {
    /// A message of exactly `bytes` bytes is coming; says where to put it. At receivers only.
    fn incoming(&mut self, message: u64, bytes: u64) -> Memory;

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

/// Keeps a group in switches until it is dropped, which may block.
pub(crate) type Registration = Box<dyn Any + Send>;

/// Turns a group's events into calls of its application.
pub(crate) struct Dispatcher {
    /// Until the last call has returned.
    application: Option<Box<dyn Application>>,
    shared: Arc<Shared>,
    /// What the application has said when it panicked.
    panicked: Option<String>,
    /// Memory of messages whose completion it was not told of since.
    held_back: Vec<(u64, Region)>,
    /// Goes with the dispatcher, where callbacks run: taking a group out of switches may block.
    registration: Option<Registration>,
}

impl Dispatcher {
    pub(crate) fn new(
        application: Box<dyn Application>,
        shared: Arc<Shared>,
        registration: Option<Registration>,
    ) -> Self {
        let (application, held_back) = (Some(application), Vec::new());
        Self { application, shared, panicked: None, held_back, registration }
    }

    /// Delivers on the thread of whoever drives progress.
    pub(crate) fn run_here(&mut self, event: Event) {
        let last = event.is_last();
        self.deliver(event);
        if last {
            self.finish();
        }
    }

    pub(crate) fn deliver(&mut self, event: Event) {
        let Some(event) = self.due(event) else { return };
        self.shared.note(&event);
        let Some(application) = self.application.as_mut().filter(|_| !self.shared.is_abandoned())
        else {
            return;
        };
        // After a panic the application gets nothing but `failed`, which is its own to survive.
        let call = AssertUnwindSafe(|| call(application.as_mut(), &self.shared, event));
        if let Err(panic) = catch_unwind(call) {
            let cause = format!("callback panicked: {}", panic_text(&*panic));
            self.shared.abort(&cause);
            self.panicked.get_or_insert(cause);
        }
    }

    /// No callback follows: the application goes before anybody is told that it has.
    pub(crate) fn finish(&mut self) {
        let gone = (self.application.take(), self.registration.take());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(gone))) {
            tracing::warn!(
                panic = panic_text(&*panic),
                "an application panicked as it was dropped"
            );
        }
        self.shared.set_finished();
    }

    /// What the application is told of an event: after a panic nothing but that its group has failed,
    /// by which it gets all its memory back.
    fn due(&mut self, event: Event) -> Option<Event> {
        let Some(cause) = &self.panicked else { return Some(event) };
        match event {
            Event::Complete { message, region, .. } => {
                self.held_back.push((message, region));
                None
            }
            Event::Failed { failure, regions } => {
                let mut all = std::mem::take(&mut self.held_back);
                all.extend(regions);
                Some(Event::Failed { failure, regions: all })
            }
            // All members have everything, but this one's application was not told.
            Event::Closed { group } => {
                let (rank, detail) = (self.shared.settings.rank, cause.clone());
                let (member, kind) = (Some(rank), FailureKind::Application);
                let failure = Failure { group, member, reporter: rank, kind, detail };
                Some(Event::Failed { failure, regions: std::mem::take(&mut self.held_back) })
            }
            _ => None,
        }
    }
}

/// What somebody has said when it panicked.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
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
        _ => {}
    }
}
