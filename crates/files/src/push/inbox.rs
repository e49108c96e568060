//! The event queue of the thread that runs a push, and the handle for other threads.

use std::{sync::mpsc::Sender, time::Instant};

use rdmc::{Error, Failure, Group};
use session::Channel;

use super::event;
use crate::CollectiveMeasurement;

/// Events of a push whose connections are channels.
pub(super) type Event = event::Event<Channel, Group>;
/// The sending end of the queue.
pub(super) type Events = Sender<Input>;

/// An input of a push or a bench.
#[derive(Debug)]
pub(super) enum Input {
    Event(Event),
    /// Of the measurement with this number.
    Measured(u64, MeasureEvent),
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        Self::Event(event)
    }
}

/// Events of a measurement other than receivers' messages.
#[derive(Debug)]
pub(super) enum MeasureEvent {
    /// The group and the return group.
    Joined(Result<(Group, Option<Group>), Error>),
    /// A message was returned.
    Echoed(Instant),
    Failed(Failure),
    /// A length of a team's operation was measured; `None` after the last.
    Collective(Result<Option<CollectiveMeasurement>, Error>),
}

/// Controls a running push from other threads.
#[derive(Clone, Debug)]
pub struct PushHandle {
    pub(super) events: Events,
}

impl PushHandle {
    /// Reports that a host's receiver cannot be started or has ended; `start` is 0 for the first one, for others
    /// that of [`super::PushEvent::Retry`]. Has no effect once the receiver has connected.
    pub fn host_failed(&self, host: usize, start: u32, reason: impl Into<String>) {
        let reason = reason.into();
        let _ = self.events.send(Event::HostFailed { host, start, reason }.into());
    }

    /// Ends the push; receivers keep what they have for a later one. Waits up to 10 s for hosts that are publishing;
    /// cancelling again ends that wait. A bench ends at once.
    pub fn cancel(&self) {
        let _ = self.events.send(Event::Cancel.into());
    }
}
