//! The line to the root, and what all parts of a session use.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use plan::size;
use rdmc::{
    Context, ContextSettings, Error, Group,
    bootstrap::{Channel, Deadline},
};

use super::{error::ReceiveError, event, settings::ReceiverSettings};
use crate::{
    control::{Control, FAILURE_DEADLINE},
    messages::{JOIN_TIMEOUT, Terms, ToReceiver, ToRoot},
};

/// How often a waiting receiver looks whether it should stop.
const TICK: Duration = Duration::from_millis(100);
/// How long the root may take to read a last message.
const FAREWELL: Duration = Duration::from_secs(3);

/// What happens to a session in groups of the library.
pub(super) type Event = event::Event<Group>;

/// A session that has begun.
pub(super) struct RootLink<'a> {
    pub(super) settings: &'a ReceiverSettings,
    pub(super) control: Arc<Control>,
    /// Where the root sees this receiver.
    local: SocketAddr,
    pub(super) events: Sender<Event>,
    inbox: Receiver<Event>,
    pub(super) received_bytes: Arc<AtomicU64>,
    /// Bytes read or written besides, for [`ToRoot::Worked`].
    pub(super) worked: Arc<AtomicU64>,
}

impl<'a> RootLink<'a> {
    /// Starts to listen to the root.
    pub(super) fn start(
        channel: Channel,
        settings: &'a ReceiverSettings,
    ) -> Result<Self, ReceiveError> {
        let system = |what: &str, error: &dyn std::fmt::Display| {
            ReceiveError::System(format!("cannot {what}: {error}"))
        };
        let local = channel.local_address();
        let local = local.map_err(|error| system("find out its address", &error))?;
        let (events, inbox) = mpsc::channel();
        let incoming = events.clone();
        let take = move |message| incoming.send(Event::Root(message)).is_ok();
        let control = Control::start(channel, FAILURE_DEADLINE, take)
            .map_err(|error| system("start a session", &error))?;
        Ok(Self {
            settings,
            control: Arc::new(control),
            local,
            events,
            inbox,
            received_bytes: Arc::default(),
            worked: Arc::default(),
        })
    }

    /// Errors: more than this receiver takes.
    pub(super) fn check_size(&self, bytes: u64) -> Result<(), ReceiveError> {
        match self.settings.bytes_max {
            Some(most) if bytes > most => Err(ReceiveError::Refused(format!(
                "{} were announced, and this receiver takes at most {}; start it with a larger \
                 --max-size",
                size::show(bytes),
                size::show(most)
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn start_context(
        &self,
        fabric: &str,
        terms: &Terms,
    ) -> Result<Context, ReceiveError> {
        // Members reach this one where the root has seen it come from, which is this address.
        let listen = SocketAddr::new(self.local.ip().to_canonical(), 0);
        let mut settings = ContextSettings::new(listen, terms.secret.clone());
        settings.streams = terms.streams;
        settings.connect_timeout = JOIN_TIMEOUT;
        let system = |error: Error| ReceiveError::System(error.to_string());
        settings.fabric = fabric.parse().map_err(system)?;
        settings.completion = terms.completion.parse().map_err(system)?;
        settings.protection = terms.protection.parse().map_err(system)?;
        settings.tcp.silence_timeout = Duration::from_millis(u64::from(terms.failure_deadline_ms));
        Context::start(settings).map_err(system)
    }

    /// The next event. A root that has fallen silent is an event too.
    pub(super) fn next(&self) -> Result<Event, ReceiveError> {
        loop {
            if let Some(event) = self.next_in_time()? {
                return Ok(event);
            }
        }
    }

    /// The same, or `None` after a [`TICK`] without any.
    pub(super) fn next_in_time(&self) -> Result<Option<Event>, ReceiveError> {
        if self.settings.stop.load(Ordering::Relaxed) {
            return Err(ReceiveError::Stopped);
        }
        Ok(self.inbox.recv_timeout(TICK).ok())
    }

    pub(super) fn tell(&self, message: &ToRoot) -> Result<(), ReceiveError> {
        self.control.send(message).map_err(ReceiveError::Root)
    }

    /// Hanging up first, with words of the root unread, could take back the last message.
    pub(super) fn await_hang_up(&self) {
        let deadline = Deadline::after(FAREWELL);
        while !deadline.left().is_zero() {
            match self.inbox.recv_timeout(deadline.left()) {
                Ok(Event::Root(Err(_) | Ok(ToReceiver::Finish | ToReceiver::Abort { .. })))
                | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}
