//! A receiver's side of a session.
//!
//! Get a control connection by [`call`] (to a root that waits for it) or by accepting one, then
//! [`serve`] it. A session leaves a published copy or nothing; if its root is lost or gives this
//! receiver up, or it is asked to stop, also what has come so far, hidden, for the next session.
//!
//! `session::Session` decides everything. Here it is driven: by one thread, the caller's, in
//! [`serve`]; others only feed it `Event`s. What it wants done is done by `scene::Scene`.

mod bench;
#[doc(hidden)]
mod membership;
mod placement;
mod scene;
#[doc(hidden)]
mod session;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use plan::size;
use rdmc::{
    Context, ContextSettings, Error, Group, Secret,
    bootstrap::{Channel, Credentials, Deadline},
};

#[doc(hidden)]
pub use membership::{Copy, Member, News};
pub use placement::Placement;
use scene::Scene;
use session::unexpected;
#[doc(hidden)]
pub use session::{Session, Stage};

use crate::{
    TargetError,
    control::{Control, FAILURE_DEADLINE, silence},
    messages::{JOIN_TIMEOUT, Offer, Terms, ToReceiver, ToRoot},
    push::doorway,
};

/// How often the root hears from a receiver.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// How often the root hears whom this receiver waits for.
const WAITING_TOLD: Duration = Duration::from_secs(1);
/// How often a waiting receiver looks whether it should stop.
const TICK: Duration = Duration::from_millis(100);
/// How long the root may take to read a last message.
const FAREWELL: Duration = Duration::from_secs(3);

/// How a receiver behaves.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// What host this is; the root compares it with the hosts that it expects to call.
    pub host: String,
    /// Which destinations it accepts.
    pub placement: Placement,
    /// The longest object that it accepts, in bytes; asked before anything is made for it.
    pub bytes_max: Option<u64>,
    /// Ends the session within a fraction of a second when set, and keeps what has come for a later one.
    pub stop: Arc<AtomicBool>,
}

/// Why a session ended without a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The target could not be prepared or published.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The destination is not acceptable here.
    #[error("{0}")]
    Refused(String),
    /// The root ended the session.
    #[error("the root ended the session: {reason}")]
    Aborted {
        /// Why.
        reason: String,
        /// Whether what has come is of use to a later session.
        keep: bool,
    },
    /// The control connection to the root was lost, or could not be had.
    #[error("lost the root: {0}")]
    Root(Error),
    /// What was received could not be read back.
    #[error("cannot read back what was received: {0}")]
    ReadBack(std::io::Error),
    /// It was asked to stop.
    #[error("interrupted")]
    Stopped,
    /// The system or the library refused.
    #[error("{0}")]
    System(String),
}

impl ReceiveError {
    /// Whether a later session can go on with what has come: what a lost root, a dead neighbour, or
    /// the end of this receiver has left undone.
    pub fn keeps(&self) -> bool {
        match self {
            Self::Root(_) | Self::Stopped => true,
            Self::Aborted { keep, .. } => *keep,
            // It was reading when it was asked to stop.
            Self::ReadBack(error) => error.kind() == std::io::ErrorKind::Interrupted,
            _ => false,
        }
    }

    /// What the root is told, if it may be there and does not know.
    #[doc(hidden)]
    pub fn last_word(&self) -> Option<ToRoot> {
        match self {
            Self::Aborted { .. } | Self::Root(_) => None,
            error => Some(ToRoot::Failed { reason: error.to_string() }),
        }
    }
}

/// Connects to a root that listens on one of these addresses: all are tried, each a little after
/// the one before, and the first that authenticates is taken.
///
/// Blocks until then, or the deadline. Errors: none can be reached, or none knows the secret; names
/// what the last attempt met.
pub fn call(
    addresses: &[IpAddr],
    port: u16,
    secret: &Secret,
    timeout: Duration,
) -> Result<Channel, Error> {
    let deadline = Deadline::after(timeout);
    let (sender, attempts) = mpsc::channel();
    for (index, &address) in (0..).zip(addresses) {
        let (sender, secret) = (sender.clone(), secret.clone());
        let attempt = move || {
            thread::sleep(Duration::from_millis(100) * index);
            // Refused when somebody else was first: the connection is dropped then.
            let _ = sender.send(Channel::connect((address, port).into(), &secret, deadline));
        };
        thread::Builder::new()
            .name("rdmc-call".into())
            .spawn(attempt)
            .map_err(|error| Error::System { what: "starting a thread".into(), error })?;
    }
    drop(sender);
    let mut last = None;
    for attempt in attempts {
        match attempt {
            Ok(channel) => return Ok(channel),
            Err(error) => last = Some(Error::from(error)),
        }
    }
    Err(last.unwrap_or_else(|| Error::Setting("no address to call the root at".into())))
}

/// Connects to a root at `host:port` that lets in receivers that come by themselves
/// ([`crate::Admission`]).
///
/// Blocks until then, or the deadline. Errors: it cannot be reached, or does not know these
/// credentials.
pub fn join(root: &str, credentials: &Credentials, timeout: Duration) -> Result<Channel, Error> {
    doorway::connect(root, credentials, Deadline::after(timeout))
}

/// Serves one session to its end, and returns the path of the published copy; none if the root has
/// only measured.
///
/// Blocks as long as the session lasts; a root that falls silent ends it. A temporary file stays
/// behind only where a later session can go on with it ([`ReceiveError::keeps`]).
///
/// Errors: see [`ReceiveError`].
pub fn serve(
    channel: Channel,
    settings: &ReceiverSettings,
) -> Result<Option<PathBuf>, ReceiveError> {
    let system = |what: &str, error: &dyn std::fmt::Display| {
        ReceiveError::System(format!("cannot {what}: {error}"))
    };
    let local = channel.local_address().map_err(|error| system("find out its address", &error))?;
    let (events, inbox) = mpsc::channel();
    let incoming = events.clone();
    let take = move |message| incoming.send(Event::Root(message)).is_ok();
    let control = Control::start(channel, FAILURE_DEADLINE, take)
        .map_err(|error| system("start a session", &error))?;
    let run = Run {
        settings,
        control: Arc::new(control),
        local,
        events,
        inbox,
        received_bytes: Arc::default(),
        worked: Arc::default(),
        measured: OnceLock::new(),
    };
    let outcome = run.session();
    let last_word = match &outcome {
        Ok(_) => None,
        Err(error) => error.last_word(),
    };
    let hears_more = match last_word {
        Some(last_word) => run.control.send(&last_word).is_ok(),
        None => matches!(outcome, Ok(Some(_))),
    };
    if hears_more {
        run.await_hang_up();
    }
    run.control.hang_up();
    outcome
}

/// Whatever a session waits for.
#[derive(Debug)]
enum Event {
    Root(Result<ToReceiver, Error>),
    Joined(u64, Result<Group, Error>),
    Group(News),
    /// The digest of the whole copy.
    OwnDigest(std::io::Result<blake3::Hash>),
}

/// A session that is running.
struct Run<'a> {
    settings: &'a ReceiverSettings,
    control: Arc<Control>,
    local: SocketAddr,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    received_bytes: Arc<AtomicU64>,
    /// Bytes read or written besides, for [`ToRoot::Worked`].
    worked: Arc<AtomicU64>,
    /// Of a session that is measured. It ends after the last word: its groups fail at the root then, for a
    /// reason that says less.
    measured: OnceLock<Arc<Context>>,
}

impl Run<'_> {
    fn session(&self) -> Result<Option<PathBuf>, ReceiveError> {
        self.tell(&ToRoot::Hello { host: self.settings.host.clone() })?;
        let first = loop {
            match self.next()? {
                Event::Root(Ok(first @ (ToReceiver::Offer(_) | ToReceiver::Bench(_)))) => {
                    break first;
                }
                event => judge(event)?,
            }
        };
        if let ToReceiver::Offer(Offer { terms, .. }) | ToReceiver::Bench(terms) = &first {
            self.control
                .set_failure_deadline(terms.failure_deadline().map_err(ReceiveError::Refused)?);
        }
        // Heartbeats go on while the disk is slow to reserve space, and later to write.
        let (_beating, silenced) = mpsc::channel::<()>();
        let (control, bytes) = (Arc::clone(&self.control), Arc::clone(&self.received_bytes));
        let worked = Arc::clone(&self.worked);
        thread::Builder::new()
            .name("rdmc-heartbeat".into())
            .spawn(move || beat(&control, (&bytes, &worked), &silenced))
            .map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))?;
        match first {
            ToReceiver::Offer(offer) => self.replicate(offer).map(Some),
            ToReceiver::Bench(terms) => self.bench(&terms).map(|()| None),
            other => unexpected(other).map(|()| None),
        }
    }

    fn replicate(&self, offer: Offer) -> Result<PathBuf, ReceiveError> {
        let mut scene = Scene::new(self);
        let outcome = self.receive(&mut scene, offer);
        scene.close(outcome.as_ref().err().is_some_and(ReceiveError::keeps));
        outcome
    }

    /// Until the copy has its name.
    fn receive(&self, scene: &mut Scene<'_>, offer: Offer) -> Result<PathBuf, ReceiveError> {
        let mut session = Session::begin(scene, offer)?;
        let path = scene.path().unwrap_or_default();
        let mut told = Instant::now();
        loop {
            if told.elapsed() >= WAITING_TOLD {
                told = Instant::now();
                scene.tell_waiting()?;
            }
            let Some(event) = self.next_in_time()? else { continue };
            match event {
                Event::Root(Ok(message)) => {
                    if session.told(scene, message)? {
                        return Ok(path);
                    }
                }
                Event::Joined(number, Ok(group)) => {
                    // One that comes too late is dropped, and fails at all its members.
                    if session.is_joining(number) {
                        scene.stands(number, group);
                        session.joined(scene, number, Ok(()))?;
                    }
                }
                Event::Joined(number, Err(error)) => session.joined(scene, number, Err(error))?,
                Event::Group(News::Ended(number, outcome)) => {
                    scene.ended(number);
                    session.ended(scene, number, outcome)?;
                }
                Event::Group(News::Whole) => session.whole(scene)?,
                Event::OwnDigest(digest) => session.digested(scene, digest)?,
                event @ Event::Root(Err(_)) => judge(event)?,
            }
        }
    }

    /// Errors: more than this receiver takes.
    fn check_size(&self, bytes: u64) -> Result<(), ReceiveError> {
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

    fn start_context(&self, fabric: &str, terms: &Terms) -> Result<Context, ReceiveError> {
        // Members reach this one where the root has seen it come from, which is this address.
        let listen = SocketAddr::new(self.local.ip().to_canonical(), 0);
        let mut settings = ContextSettings::new(listen, terms.secret.clone());
        settings.streams = terms.streams;
        settings.connect_timeout = JOIN_TIMEOUT;
        let system = |error: Error| ReceiveError::System(error.to_string());
        settings.fabric = fabric.parse().map_err(system)?;
        settings.completion = terms.completion.parse().map_err(system)?;
        settings.protection = terms.protection.parse().map_err(system)?;
        settings.tcp.silence_timeout_ms = u64::from(terms.failure_deadline_ms);
        Context::start(settings).map_err(system)
    }

    /// The next event. A root that has fallen silent is an event too.
    fn next(&self) -> Result<Event, ReceiveError> {
        loop {
            if let Some(event) = self.next_in_time()? {
                return Ok(event);
            }
        }
    }

    /// The same, or `None` after a [`TICK`] without any.
    fn next_in_time(&self) -> Result<Option<Event>, ReceiveError> {
        if self.settings.stop.load(Ordering::Relaxed) {
            return Err(ReceiveError::Stopped);
        }
        Ok(self.inbox.recv_timeout(TICK).ok())
    }

    fn tell(&self, message: &ToRoot) -> Result<(), ReceiveError> {
        self.control.send(message).map_err(ReceiveError::Root)
    }

    /// Hanging up first, with words of the root unread, could take back the last message.
    fn await_hang_up(&self) {
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

/// What an event means that is not expected now: mostly nothing.
fn judge(event: Event) -> Result<(), ReceiveError> {
    match event {
        Event::Root(Ok(message)) => unexpected(message),
        Event::Root(Err(error)) => Err(ReceiveError::Root(error)),
        Event::Joined(..) | Event::Group(_) | Event::OwnDigest(_) => Ok(()),
    }
}

/// Says how far this receiver is, until the session's end drops the other end of `silenced`.
fn beat(control: &Control, (bytes, worked): (&AtomicU64, &AtomicU64), silenced: &Receiver<()>) {
    let mut told = 0;
    while silenced.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
        let bytes = bytes.load(Ordering::Relaxed);
        let mut sent = control.send(&ToRoot::Progress { bytes });
        let worked = worked.load(Ordering::Relaxed);
        if std::mem::replace(&mut told, worked) != worked {
            sent = sent.and_then(|()| control.send(&ToRoot::Worked { bytes: worked }));
        }
        if sent.is_err() {
            // The reading thread says why.
            return;
        }
    }
}

const _: () = assert!(HEARTBEAT.as_millis() * 10 < silence(Duration::ZERO).as_millis());
