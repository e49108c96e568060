//! What the thread that runs a push waits for, and the handle by which others reach it.

use std::{sync::mpsc::Sender, time::Instant};

use rdmc::{Error, Failure, Group, bootstrap::Channel};

use super::event;

/// What happens to a push whose connections are channels.
pub(super) type Event = event::Event<Channel, Group>;
/// How it is told.
pub(super) type Events = Sender<Input>;

/// Whatever a push or a bench waits for.
#[derive(Debug)]
pub(super) enum Input {
    Event(Event),
    /// In the measurement of this number.
    Measured(u64, Happening),
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        Self::Event(event)
    }
}

/// What happens in a measurement, besides what receivers say.
#[derive(Debug)]
pub(super) enum Happening {
    /// The group, and the one back.
    Joined(Result<(Group, Option<Group>), Error>),
    /// A message has come back.
    Echoed(Instant),
    Failed(Failure),
}

/// Reaches into a running push from other threads.
#[derive(Clone, Debug)]
pub struct PushHandle {
    pub(super) events: Events,
}

impl PushHandle {
    /// Reports that a host's receiver cannot be started or has ended; `start` is 0 for the first, and
    /// for others as [`super::PushEvent::Retry`] has told. Only matters if it has not appeared yet;
    /// afterwards its own connection tells.
    pub fn host_failed(&self, host: usize, start: u32, reason: impl Into<String>) {
        let reason = reason.into();
        let _ = self.events.send(Event::HostFailed { host, start, reason }.into());
    }

    /// Ends the push: receivers are told, and keep what they have for a later one. Hosts that publish
    /// their copies just then are waited for, 10 s at most; cancelling again ends that, too. A bench
    /// ends at once.
    pub fn cancel(&self) {
        let _ = self.events.send(Event::Cancel.into());
    }
}
