//! Where a group's events go.

use std::sync::{Arc, Mutex};

use engine::Event;

use crate::outbox::EventSender;

/// Takes a group's events on the thread of whoever drives progress.
pub(crate) trait Deliver: Send {
    /// Runs the callbacks of an event.
    fn deliver_here(&mut self, event: Event);
}

/// Callbacks to run once no lock is held.
pub(crate) type Due = Vec<(Arc<Mutex<dyn Deliver>>, Event)>;

/// Where a group's events go.
pub(crate) enum Outlet {
    /// To the group's own callback thread.
    Thread(EventSender),
    /// To whoever calls `Context::progress`.
    Caller(Arc<Mutex<dyn Deliver>>),
}

impl Outlet {
    /// Hands an event on; what is to run here is left in `due`.
    pub(crate) fn tell(&self, event: Event, due: &mut Due) {
        match self {
            Self::Thread(sender) => sender.send(event),
            Self::Caller(dispatcher) => due.push((Arc::clone(dispatcher), event)),
        }
    }
}
