//! The destination of a group's events.

use engine::Event;

use crate::inbox::Given;

/// Takes a group's events on the thread that makes progress; never blocks.
pub(crate) trait Outlet: Send {
    /// Takes an event, and returns memory for messages that have none. What may run the
    /// application's code, or block, is added to `due`.
    fn take(&mut self, event: Event, due: &mut Due) -> Given;
}

/// A callback, or the release of what a group has held: to be run in order once no lock is held. It does not panic.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Jobs to run once no lock is held.
pub(crate) type Due = Vec<Job>;
