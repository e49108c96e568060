//! A receiver's side of a session.
//!
//! Get a control connection by [`call`] (to a root that waits for it) or by accepting one, then
//! [`serve`] it. A session leaves either a published copy or nothing.

mod bench;
mod placement;
mod round;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use rdmc::{
    Context, ContextSettings, Error, Fabric, Secret,
    bootstrap::{Channel, Deadline},
};

pub use placement::Placement;
use round::{Round, RoundEvent};

use crate::{
    Target, TargetError, Verified,
    control::{Control, SILENCE},
    messages::{Offer, Start, ToReceiver, ToRoot, join_predicate, predicate},
    resident::peak_resident_bytes,
};

/// How often the root hears from a receiver.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// How often a waiting receiver looks whether it should stop.
const TICK: Duration = Duration::from_millis(100);
/// How long all members may take to join a group.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the root may take to read a last message.
const FAREWELL: Duration = Duration::from_secs(3);

/// How a receiver behaves.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// What host this is; the root compares it with the hosts that it expects to call.
    pub host: String,
    /// The session's secret.
    pub secret: Secret,
    /// Which destinations it accepts.
    pub placement: Placement,
    /// Ends the session within a fraction of a second when set, and removes what has come.
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
    #[error("the root ended the session: {0}")]
    Aborted(String),
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
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::Setting("no address to call the root at".into())))
}

/// Serves one session to its end, and returns the path of the published copy; none if the root has
/// only measured.
///
/// Blocks as long as the session lasts; a root that falls silent ends it. Whatever the outcome,
/// no temporary file stays behind.
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
    let control =
        Control::start(channel, move |message| incoming.send(Event::Root(message)).is_ok())
            .map_err(|error| system("start a session", &error))?;
    let session = Session {
        settings,
        control: Arc::new(control),
        local,
        events,
        inbox,
        received_bytes: Arc::default(),
    };
    let outcome = session.run();
    if let Err(error) = &outcome {
        session.farewell(error);
    }
    session.control.hang_up();
    outcome
}

/// Whatever a session waits for.
#[derive(Debug)]
enum Event {
    Root(Result<ToReceiver, Error>),
    Round(u64, RoundEvent),
}

struct Session<'a> {
    settings: &'a ReceiverSettings,
    control: Arc<Control>,
    local: SocketAddr,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    received_bytes: Arc<AtomicU64>,
}

/// The session once its target is prepared.
struct Receiving {
    target: Target,
    context: Arc<Context>,
    round: Option<Round>,
    verified: Option<Verified>,
}

impl Session<'_> {
    fn run(&self) -> Result<Option<PathBuf>, ReceiveError> {
        self.tell(&ToRoot::Hello { host: self.settings.host.clone() })?;
        let first = loop {
            match self.next()? {
                Event::Root(Ok(first @ (ToReceiver::Offer(_) | ToReceiver::Bench(_)))) => {
                    break first;
                }
                event => self.judge(event)?,
            }
        };
        // Heartbeats go on while the disk is slow to reserve space, and later to write.
        let (_beating, silenced) = mpsc::channel::<()>();
        let (control, bytes) = (Arc::clone(&self.control), Arc::clone(&self.received_bytes));
        thread::Builder::new()
            .name("rdmc-heartbeat".into())
            .spawn(move || beat(&control, &bytes, &silenced))
            .map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))?;
        match first {
            ToReceiver::Offer(offer) => self.replicate(offer).map(Some),
            ToReceiver::Bench(terms) => self.bench(&terms).map(|()| None),
            other => self.judge(Event::Root(Ok(other))).map(|()| None),
        }
    }

    fn replicate(&self, offer: Offer) -> Result<PathBuf, ReceiveError> {
        let mut receiving = self.prepare(offer)?;
        while !self.step(&mut receiving)? {}
        let Receiving { target, verified, round, .. } = receiving;
        let Some(proof) = verified else {
            return Err(ReceiveError::System("was told to publish an unverified copy".into()));
        };
        // The group has closed by now; its handle goes before the file.
        drop(round);
        let path = target.path().to_owned();
        target.publish(&proof)?;
        let peak_resident_bytes = peak_resident_bytes();
        // The copy is there whether or not the root still listens.
        let _ = self.control.send(&ToRoot::Published { peak_resident_bytes });
        self.await_hang_up();
        Ok(path)
    }

    fn prepare(&self, offer: Offer) -> Result<Receiving, ReceiveError> {
        let path =
            self.settings.placement.resolve(&offer.destination).map_err(ReceiveError::Refused)?;
        let target = Target::create(&path, offer.manifest)?;
        let context = self.agree_on_fabric(offer.streams, &offer.completion)?;
        Ok(Receiving { target, context, round: None, verified: None })
    }

    /// Offers the fabrics that are here, and starts the one that the root chooses.
    fn agree_on_fabric(&self, streams: u8, completion: &str) -> Result<Arc<Context>, ReceiveError> {
        let fabrics = Fabric::candidates().iter().map(Fabric::name).collect();
        self.tell(&ToRoot::Prepared { fabrics })?;
        let fabric = loop {
            match self.next()? {
                Event::Root(Ok(ToReceiver::Use { fabric })) => break fabric,
                event => self.judge(event)?,
            }
        };
        let context = Arc::new(self.start_context(&fabric, streams, completion)?);
        self.tell(&ToRoot::Ready { port: context.address().port() })?;
        Ok(context)
    }

    fn start_context(
        &self,
        fabric: &str,
        streams: u8,
        completion: &str,
    ) -> Result<Context, ReceiveError> {
        // Members reach this one where the root has seen it come from, which is this address.
        let listen = SocketAddr::new(self.local.ip().to_canonical(), 0);
        let mut settings = ContextSettings::new(listen, self.settings.secret.clone());
        settings.streams = streams;
        settings.connect_timeout = JOIN_TIMEOUT;
        let system = |error: Error| ReceiveError::System(error.to_string());
        settings.fabric = fabric.parse().map_err(system)?;
        settings.completion = completion.parse().map_err(system)?;
        Context::start(settings).map_err(system)
    }

    /// Handles one event. True when the copy is to be published.
    fn step(&self, receiving: &mut Receiving) -> Result<bool, ReceiveError> {
        match self.next()? {
            Event::Root(Ok(ToReceiver::Start(start))) => self.start(receiving, start)?,
            Event::Root(Ok(ToReceiver::Leave { round })) => self.leave(receiving, round)?,
            Event::Root(Ok(ToReceiver::Publish)) => return Ok(true),
            Event::Round(number, event)
                if receiving.round.as_ref().is_some_and(|round| round.number == number) =>
            {
                self.note(receiving, event)?;
            }
            event => self.judge(event)?,
        }
        Ok(false)
    }

    fn start(&self, receiving: &mut Receiving, start: Start) -> Result<(), ReceiveError> {
        let number = start.round;
        (receiving.round, receiving.verified) = (None, None);
        let round = Round::start(
            start,
            &receiving.target,
            &receiving.context,
            &self.received_bytes,
            &self.events,
        );
        match round {
            Ok(round) => receiving.round = Some(round),
            Err(detail) => {
                self.tell(&ToRoot::RoundFailed { round: number, member: None, detail })?;
            }
        }
        Ok(())
    }

    /// A group that was joined says itself when nothing touches the target any more; one that is
    /// still being joined never gets as far, since the root sends nothing in it.
    fn leave(&self, receiving: &mut Receiving, number: u64) -> Result<(), ReceiveError> {
        match &receiving.round {
            Some(round) if round.number == number => match &round.group {
                Some(group) => group.abort("the root has given this round up"),
                None => {
                    receiving.round = None;
                    let detail = "left".to_owned();
                    self.tell(&ToRoot::RoundFailed { round: number, member: None, detail })?;
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn note(&self, receiving: &mut Receiving, event: RoundEvent) -> Result<(), ReceiveError> {
        let Some(round) = &mut receiving.round else { return Ok(()) };
        let number = round.number;
        match event {
            RoundEvent::Joined(Ok(group)) => {
                // Nothing is left to do here but to wait for the root; a group that has failed
                // already says so itself.
                let _ = group.start_close();
                round.group = Some(group);
            }
            RoundEvent::Joined(Err(error)) => {
                let (member, detail) = (culprit(&error), join_predicate(&error));
                receiving.round = None;
                self.tell(&ToRoot::RoundFailed { round: number, member, detail })?;
            }
            RoundEvent::Failed(failure) => {
                let (member, detail) = (failure.member, predicate(&failure));
                receiving.round = None;
                self.tell(&ToRoot::RoundFailed { round: number, member, detail })?;
            }
            RoundEvent::Received => self.tell(&ToRoot::Received { round: number })?,
            RoundEvent::RootDigest(digest) => {
                round.root_digest = Some(blake3::Hash::from_bytes(digest));
                self.compare(receiving)?;
            }
            RoundEvent::OwnDigest(digest) => {
                round.own_digest = Some(digest.map_err(ReceiveError::ReadBack)?);
                self.compare(receiving)?;
            }
        }
        Ok(())
    }

    fn compare(&self, receiving: &mut Receiving) -> Result<(), ReceiveError> {
        let Some(round) = &receiving.round else { return Ok(()) };
        let Some(outcome) = round.compare() else { return Ok(()) };
        if let Err(error) = &outcome {
            tracing::debug!(%error, "verification");
        }
        let number = round.number;
        receiving.verified = outcome.ok();
        let equal = receiving.verified.is_some();
        self.tell(&ToRoot::Compared { round: number, equal })
    }

    /// What an event means that is not expected now: mostly nothing.
    fn judge(&self, event: Event) -> Result<(), ReceiveError> {
        match event {
            Event::Root(Ok(ToReceiver::Abort { reason })) => Err(ReceiveError::Aborted(reason)),
            Event::Root(Err(error)) => Err(ReceiveError::Root(error)),
            // Only heartbeats, and late words of rounds that are over.
            Event::Root(Ok(ToReceiver::Alive)) | Event::Round(..) => Ok(()),
            Event::Root(Ok(message)) => {
                Err(ReceiveError::System(format!("the root said out of turn: {message:?}")))
            }
        }
    }

    /// The next event. A root that says nothing for [`SILENCE`] is an event too.
    fn next(&self) -> Result<Event, ReceiveError> {
        loop {
            if self.settings.stop.load(Ordering::Relaxed) {
                return Err(ReceiveError::Stopped);
            }
            match self.inbox.recv_timeout(TICK) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn tell(&self, message: &ToRoot) -> Result<(), ReceiveError> {
        self.control.send(message).map_err(ReceiveError::Root)
    }

    /// Tells the root why this receiver gives up, if it is there to hear it.
    fn farewell(&self, error: &ReceiveError) {
        if matches!(error, ReceiveError::Aborted(_) | ReceiveError::Root(_)) {
            return;
        }
        if self.control.send(&ToRoot::Failed { reason: error.to_string() }).is_ok() {
            self.await_hang_up();
        }
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

/// Says how far this receiver is, until the session's end drops the other end of `silenced`.
fn beat(control: &Control, bytes: &AtomicU64, silenced: &Receiver<()>) {
    while silenced.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
        let bytes = bytes.load(Ordering::Relaxed);
        if control.send(&ToRoot::Progress { bytes }).is_err() {
            // The reading thread says why.
            return;
        }
    }
}

fn culprit(error: &Error) -> Option<u32> {
    match error {
        Error::Member { member, .. } => Some(*member),
        Error::Failed(failure) => failure.member,
        _ => None,
    }
}

const _: () = assert!(HEARTBEAT.as_millis() * 10 < SILENCE.as_millis());
