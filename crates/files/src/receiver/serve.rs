//! One session, from the first message to the last.

use std::{
    mem,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rdmc::{Context, Group};
use session::{Channel, Deadline};

use super::{
    dispatch::{first, handle},
    error::ReceiveError,
    gathering::{self, TakePart},
    io::Io,
    listing::Listing,
    machine::{Effects, ListingComes, ReceiverMachine, unexpected_message},
    reception::Reception,
    root_link::{Event, RootLink},
    settings::ReceiverSettings,
    stream::StreamIo,
};
use crate::{
    control::{Control, silence},
    messages::{Offer, StreamOffer, ToReceiver, ToRoot},
};

/// Interval of progress reports, which are keepalives as well.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// How long a root may take to send its first message if it has not started this receiver: it has that ready then.
const OFFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of reports of waits.
const WAITS_INTERVAL: Duration = Duration::from_secs(1);

/// Serves one session of files or of a stream, and returns the path of the published copy; none for a stream to an output.
///
/// Blocks until the session ends; a silent root ends it. A temporary file remains only if a later session can resume
/// from it ([`ReceiveError::keeps_partial`]). Staging and removing a tree
/// recurse on this thread, with an open file descriptor for each directory level. A path has 2,049 levels at most; they need less
/// than 2 MiB of stack, which Rust gives a thread by default.
///
/// Errors: see [`ReceiveError`].
pub fn serve(
    channel: Channel,
    settings: &ReceiverSettings,
) -> Result<Option<PathBuf>, ReceiveError> {
    serve_any(channel, settings, None)
}

/// The same, and runs this part in a session of an application ([`crate::Gathering`]), which returns no path.
pub fn serve_with(
    channel: Channel,
    settings: &ReceiverSettings,
    application: TakePart,
) -> Result<Option<PathBuf>, ReceiveError> {
    serve_any(channel, settings, Some(application))
}

fn serve_any(
    channel: Channel,
    settings: &ReceiverSettings,
    application: Option<TakePart>,
) -> Result<Option<PathBuf>, ReceiveError> {
    let root = RootLink::start(channel, settings)?;
    // This context ends after the last message, which has the cause; ending it makes groups fail at the root.
    let kept = OnceLock::new();
    let outcome = session(&root, &kept, application);
    let last_message = match &outcome {
        Ok(_) => None,
        Err(error) => error.last_message(),
    };
    let must_linger = match last_message {
        Some(last_message) => root.control.send(&last_message).is_ok(),
        None => matches!(outcome, Ok(Done::Published(_))),
    };
    if must_linger {
        root.await_disconnect();
    }
    root.disconnect();
    outcome.map(|done| match done {
        Done::Published(path) => path,
        Done::Shared(path) => Some(path),
        Done::Gathered => None,
    })
}

/// How a session has ended.
enum Done {
    /// The root still has to read that; the path of a file.
    Published(Option<PathBuf>),
    /// The same, and others that wanted the copy have got it.
    Shared(PathBuf),
    Gathered,
}

fn session(
    root: &RootLink<'_>,
    kept: &OnceLock<Arc<Context>>,
    application: Option<TakePart>,
) -> Result<Done, ReceiveError> {
    root.send(&ToRoot::Hello(root.introduction()))?;
    let deadline = Deadline::after(OFFER_TIMEOUT);
    let request = loop {
        let event = root.next_in_time()?;
        if let Some(request) = event.map(first).transpose()?.flatten() {
            root.settings.reception.stepped();
            break request;
        }
        if root.settings.limits.is_some() && deadline.left().is_zero() {
            let seconds = OFFER_TIMEOUT.as_secs();
            return Err(ReceiveError::System(format!(
                "the root has offered nothing for {seconds} s"
            )));
        }
    };
    let terms = match &request {
        ToReceiver::Offer(offer) => Some(&offer.terms),
        ToReceiver::Stream(StreamOffer { terms, .. }) | ToReceiver::Gather(terms) => Some(terms),
        _ => None,
    };
    if let Some(terms) = terms {
        root.check_terms(terms)?;
        root.control.set_failure_deadline(terms.failure_deadline().map_err(ReceiveError::Refused)?);
    }
    // On a thread of their own, since reserving space and writing to disk can block. Dropping the sender ends it.
    let (_sender, ended) = mpsc::channel::<()>();
    let heartbeat = Heartbeat {
        control: Arc::clone(&root.control),
        bytes: Arc::clone(&root.received_bytes),
        worked: Arc::clone(&root.worked),
        reception: Arc::clone(&root.settings.reception),
        stop: Arc::clone(&root.settings.stop),
        interrupted: Arc::clone(&root.interrupted),
    };
    thread::Builder::new()
        .name("rdmc-heartbeat".into())
        .spawn(move || heartbeat.run(&ended))
        .map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))?;
    match request {
        ToReceiver::Stream(_) | ToReceiver::Gather(_) if root.settings.fetch.is_some() => {
            Err(ReceiveError::Refused("the server offers something else than a file".into()))
        }
        ToReceiver::Offer(_) if root.settings.output.is_some() => Err(ReceiveError::Refused(
            "this receiver takes only a stream, which it writes to its output: `rdmc push -` sends one".into(),
        )),
        ToReceiver::Offer(offer) => replicate(root, *offer),
        ToReceiver::Stream(offer) => receive_stream(root, &offer, kept).map(Done::Published),
        ToReceiver::Gather(terms) => {
            gathering::take_part(root, &terms, kept, application).map(|()| Done::Gathered)
        }
        other => unexpected_message(other).map(|()| Done::Gathered),
    }
}

fn replicate(root: &RootLink<'_>, offer: Offer) -> Result<Done, ReceiveError> {
    let offer = root.settings.accept(offer)?;
    let listing = offer.tree.as_ref();
    let listing =
        listing.map(|tree| Listing::offered(tree, &root.settings.listings)).transpose()?;
    let comes = match &listing {
        Some(listing) if listing.is_relayed() => ListingComes::InGroup,
        Some(listing) if !listing.is_empty() => ListingComes::Directly,
        _ => ListingComes::Not,
    };
    let bytes = offer.manifest.bytes;
    root.settings.reception.offered(&offer.destination, Some(bytes));
    let mut io = Io::new(root, offer, listing);
    let mut path = None;
    let mut reported_at = Instant::now();
    let mut poll = |io: &mut Io<'_>| {
        path = path.take().or_else(|| io.path());
        io.accept_deferred()?;
        if reported_at.elapsed() >= WAITS_INTERVAL {
            reported_at = Instant::now();
            io.report_waits()?;
        }
        Ok(None)
    };
    let outcome = receive(root, &mut io, bytes, comes, &mut poll);
    let outcome = outcome.map(|mut session| {
        if let Some(shares) = root.settings.shares() {
            // The copy is published, whatever happens now.
            let shared = share(root, &mut io, &mut session, shares);
            shared.unwrap_or_else(|error| tracing::debug!(%error, "sharing ends"));
        }
    });
    io.close(outcome.as_ref().err().is_some_and(ReceiveError::keeps_partial));
    let path = path.unwrap_or_default();
    outcome.map(|()| match root.settings.shares() {
        Some(_) => Done::Shared(path),
        None => Done::Published(Some(path)),
    })
}

/// Errors: [`ReceiveError::Stream`].
fn receive_stream(
    root: &RootLink<'_>,
    offer: &StreamOffer,
    context: &OnceLock<Arc<Context>>,
) -> Result<Option<PathBuf>, ReceiveError> {
    root.settings.reception.offered(&offer.destination, None);
    let mut io = StreamIo::new(root, offer, context);
    let outcome = receive(root, &mut io, u64::MAX, ListingComes::Not, StreamIo::poll).map(drop);
    let path = io.path.take();
    root.settings.reception.written(root.received_bytes.load(Ordering::Relaxed));
    outcome.map(|()| path).map_err(|cause| {
        let bytes = root.received_bytes.load(Ordering::Relaxed);
        // Before the last message, so that the root says the same.
        let _ = root.control.send(&ToRoot::Progress { bytes });
        ReceiveError::Stream { cause: Box::new(cause), bytes }
    })
}

/// Runs a session until what it receives is published. `poll` is called several times a second, and may give an event.
fn receive<E: Effects<Group = Group>>(
    root: &RootLink<'_>,
    effects: &mut E,
    bytes: u64,
    listing: ListingComes,
    mut poll: impl FnMut(&mut E) -> Result<Option<Event>, ReceiveError>,
) -> Result<ReceiverMachine, ReceiveError> {
    let mut session = ReceiverMachine::begin(effects, bytes, listing)?;
    loop {
        let event = match poll(effects)? {
            Some(event) => Some(event),
            None => root.next_in_time()?,
        };
        if let Some(event) = event
            && handle(&mut session, effects, event)?
        {
            return Ok(session);
        }
    }
}

/// Sends a published copy to others for this long, and then until the root needs it no more. Errors: why it ends early.
fn share(
    root: &RootLink<'_>,
    io: &mut Io<'_>,
    session: &mut ReceiverMachine,
    shares: Duration,
) -> Result<(), ReceiveError> {
    let until = Deadline::after(shares);
    let mut is_leaving = false;
    loop {
        if !is_leaving && until.left().is_zero() {
            is_leaving = true;
            root.send(&ToRoot::Leaving)?;
        }
        match root.next_in_time()? {
            Some(Event::Root(Ok(ToReceiver::Finish))) => return Ok(()),
            Some(event) => drop(handle(session, io, event)?),
            None => {}
        }
    }
}

/// Reports progress, and interrupts what the session's own thread does where it cannot look by itself.
struct Heartbeat {
    control: Arc<Control>,
    bytes: Arc<AtomicU64>,
    worked: Arc<AtomicU64>,
    reception: Arc<Reception>,
    stop: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl Heartbeat {
    /// Until the sender of `ended` is dropped.
    fn run(&self, ended: &Receiver<()>) {
        let (mut reported, mut received) = (0, 0);
        while ended.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
            let bytes = self.bytes.load(Ordering::Relaxed);
            self.reception.received(bytes);
            self.reception.advanced(bytes.saturating_sub(mem::replace(&mut received, bytes)));
            let mut sent = self.control.send(&ToRoot::Progress { bytes });
            let worked = self.worked.load(Ordering::Relaxed);
            let new = worked.saturating_sub(mem::replace(&mut reported, worked));
            if new > 0 {
                self.reception.advanced(new);
                sent = sent.and_then(|()| self.control.send(&ToRoot::Worked { bytes: worked }));
            }
            if sent.is_err()
                || self.stop.load(Ordering::Relaxed)
                || self.reception.ended().is_some()
            {
                self.interrupted.store(true, Ordering::Relaxed);
            }
            if sent.is_err() {
                // The reading thread reports why.
                return;
            }
        }
    }
}

const _: () = assert!(HEARTBEAT.as_millis() * 10 < silence(Duration::ZERO).as_millis());
