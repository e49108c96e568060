//! The connection to the root, with the state that all parts of a session share.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use rdmc::{Context, ContextSettings, Error, Group};
use session::{Channel, Deadline};

use super::{error::ReceiveError, event, settings::ReceiverSettings};
use crate::{
    control::{Control, FAILURE_DEADLINE},
    messages::{Terms, ToReceiver, ToRoot},
    ports::start_at,
};

/// How often a waiting receiver checks its stop flag.
const TICK: Duration = Duration::from_millis(100);
/// How long the root may take to read a last message.
const LINGER: Duration = Duration::from_secs(3);

/// Events of a session with groups of the library.
pub(super) type Event = event::Event<Group>;

/// A running session.
pub(super) struct RootLink<'a> {
    pub(super) settings: &'a ReceiverSettings,
    pub(super) control: Arc<Control>,
    /// This end's address of the control connection.
    local: SocketAddr,
    pub(super) events: Sender<Event>,
    inbox: Receiver<Event>,
    pub(super) received_bytes: Arc<AtomicU64>,
    /// Bytes read or written other than received ones, for [`ToRoot::Worked`].
    pub(super) worked: Arc<AtomicU64>,
}

impl<'a> RootLink<'a> {
    /// Starts the threads of the control connection.
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

    pub(super) fn start_context(
        &self,
        fabric: &str,
        terms: &Terms,
    ) -> Result<Context, ReceiveError> {
        // The root passes the connection's address on to the other members.
        let ip = self.local.ip().to_canonical();
        let mut settings = ContextSettings::new(SocketAddr::new(ip, 0), terms.secret.clone());
        settings.streams = terms.streams;
        settings.connect_timeout = terms.join_timeout();
        let system = |error: Error| ReceiveError::System(error.to_string());
        settings.fabric = fabric.parse().map_err(system)?;
        settings.completion = terms.completion.parse().map_err(system)?;
        settings.protection = terms.protection.parse().map_err(system)?;
        settings.rate_max = terms.rate_max;
        settings.tcp.silence_timeout = Duration::from_millis(u64::from(terms.failure_deadline_ms));
        let start = |port| {
            settings.listen.set_port(port);
            Context::start(settings.clone())
        };
        start_at(terms.ports, start).map_err(system)
    }

    /// The next event; the silence of the root is one as well.
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

    pub(super) fn send(&self, message: &ToRoot) -> Result<(), ReceiveError> {
        self.control.send(message).map_err(ReceiveError::Root)
    }

    /// Waits until the root disconnects: closing a socket with unread data could discard the last message.
    pub(super) fn await_disconnect(&self) {
        let deadline = Deadline::after(LINGER);
        while !deadline.left().is_zero() {
            match self.inbox.recv_timeout(deadline.left()) {
                Ok(Event::Root(Err(_) | Ok(ToReceiver::Finish | ToReceiver::Abort { .. })))
                | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}
