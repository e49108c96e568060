//! The destination of a group's events.

use std::sync::{Arc, Mutex};

use engine::Event;

use crate::outbox::EventSender;

/// Takes a group's events on the thread that makes progress.
pub(crate) trait Deliver: Send {
    /// Runs the callbacks of an event.
    fn deliver_here(&mut self, event: Event);
}

/// Callbacks to run once no lock is held.
pub(crate) type Due = Vec<(Arc<Mutex<dyn Deliver>>, Event)>;

/// The destination of a group's events.
pub(crate) enum Outlet {
    /// To the group's own callback thread.
    Thread(EventSender),
    /// To the thread that makes progress, with `Progress::Caller`.
    Caller(Arc<Mutex<dyn Deliver>>),
}

impl Outlet {
    /// Sends an event to the group's thread, or adds it to `due`.
    pub(crate) fn send(&self, event: Event, due: &mut Due) {
        match self {
            Self::Thread(sender) => sender.send(event),
            Self::Caller(dispatcher) => due.push((Arc::clone(dispatcher), event)),
        }
    }
}
