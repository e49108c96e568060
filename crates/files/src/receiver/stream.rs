//! A receiver of a stream: messages are written out in order, piece by piece, as soon as a piece has arrived and equals what
//! the root has announced.

use std::{
    io::{Read, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use plan::size;
use rdmc::{Context, Error, Failure, FailureKind, Group};

use super::{
    announced::{Announced, Found},
    dispatch::unexpected_event,
    error::ReceiveError,
    gathering::agree_on_fabric,
    membership::MemberEvent,
    root_link::{Event, RootLink},
    session::blamed_by,
    sink::{Sink, SinkWriter},
};
use crate::{
    Verified,
    control::Control,
    messages::{
        ALTERED, Blamed, GIVEN_UP, Start, StreamOffer, ToReceiver, ToRoot, blamed, join_predicate,
        predicate,
    },
    push::stream_settings,
    ranges::{RangeList, Ranges},
    resident::peak_resident_bytes,
    stream_message::PIECE_BYTES,
};

/// How long a wait for the next message may last before it is begun again.
const WAIT: Duration = Duration::from_secs(3600);

/// What has been written out.
struct Written {
    sink: SinkWriter,
    /// Of the digests of all pieces.
    digest: blake3::Hasher,
    /// How much; also for the root's progress.
    bytes: Arc<AtomicU64>,
    /// The most that this receiver accepts.
    bytes_max: Option<u64>,
}

impl Written {
    /// Errors: the stream is longer than this receiver accepts.
    fn check_size(&self, bytes: u64) -> Result<(), ReceiveError> {
        match self.bytes_max {
            Some(most) if bytes > most => Err(ReceiveError::Refused(format!(
                "the stream is longer than {}, and this receiver accepts no more; start it with a larger --max-size",
                size::show(most)
            ))),
            _ => Ok(()),
        }
    }

    /// Writes out a piece that begins at this place, but not what was written before.
    fn write(&mut self, at: u64, piece: &[u8], digest: &[u8; 32]) -> Result<(), ReceiveError> {
        let done = self.bytes.load(Ordering::Relaxed).saturating_sub(at);
        let Some(new @ [_, ..]) = piece.get(done as usize..) else { return Ok(()) };
        self.sink.write_all(new).map_err(ReceiveError::Sink)?;
        self.digest.update(digest);
        self.bytes.fetch_add(new.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// A group that is being joined, or is joined.
struct Membership {
    number: u64,
    from: u64,
    group: Option<Arc<Group>>,
}

/// Receives until everything is published; the path, if it is a file.
///
/// Errors: [`ReceiveError::Stream`]: the sink fails; the stream is too long; the root is lost or ends it.
pub(super) fn take_part(
    root: &RootLink<'_>,
    offer: &StreamOffer,
    measured: &OnceLock<Arc<Context>>,
) -> Result<Option<PathBuf>, ReceiveError> {
    receive(root, offer, measured).map_err(|cause| {
        let bytes = root.received_bytes.load(Ordering::Relaxed);
        // Before the last message, so that the root says the same.
        let _ = root.control.send(&ToRoot::Progress { bytes });
        ReceiveError::Stream { cause: Box::new(cause), bytes }
    })
}

fn receive(
    root: &RootLink<'_>,
    offer: &StreamOffer,
    measured: &OnceLock<Arc<Context>>,
) -> Result<Option<PathBuf>, ReceiveError> {
    let mut sink = Sink::open(root.settings, offer)?;
    let sink_writer = sink.writer().map_err(ReceiveError::Sink)?;
    let written = Written {
        sink: sink_writer,
        digest: blake3::Hasher::new(),
        bytes: Arc::clone(&root.received_bytes),
        bytes_max: root.settings.bytes_max,
    };
    let written = Arc::new(Mutex::new(written));
    let announced = Arc::new(Announced::default());
    let context = agree_on_fabric(root, &offer.terms, measured)?;
    let mut membership: Option<Membership> = None;
    let mut verified = None;
    loop {
        let current = |number| membership.as_ref().is_some_and(|m| m.number == number);
        let event = loop {
            // A failed command ends this host at once.
            sink.has_ended()?;
            if let Some(event) = root.next_in_time()? {
                break event;
            }
        };
        match event {
            Event::Root(Ok(ToReceiver::Take { start, from })) => {
                let number = start.group;
                match join(&start, &context, &root.events) {
                    Ok(()) => membership = Some(Membership { number, from, group: None }),
                    Err(detail) => report_failure(root, number, None, detail)?,
                }
            }
            Event::Root(Ok(ToReceiver::Announce(message))) => {
                announced
                    .add(message)
                    .map_err(|what| ReceiveError::System(format!("the root announced {what}")))?;
            }
            Event::Root(Ok(ToReceiver::Leave { group: number })) if current(number) => {
                // One that is being joined is dropped once it is. The thread of a joined one may be in a write that
                // waits for the consumer, and ends later.
                if let Some(group) = membership.take().and_then(|membership| membership.group) {
                    group.abort(GIVEN_UP);
                }
                report_failure(root, number, None, "left".into())?;
            }
            Event::Joined(number, Ok(group)) if current(number) => {
                let group = Arc::new(group);
                if let Some(membership) = &mut membership {
                    membership.group = Some(Arc::clone(&group));
                    // Until the root closes it. A group that has failed is noticed by the thread.
                    let _ = group.start_close();
                    let (control, events) = (Arc::clone(&root.control), root.events.clone());
                    let (written, announced) = (Arc::clone(&written), Arc::clone(&announced));
                    let writing =
                        Writing { group, from: membership.from, written, announced, control };
                    let write = move || {
                        let event = match writing.write_out() {
                            Ok(outcome) => Event::Group(MemberEvent::Ended(number, outcome)),
                            Err(error) => Event::NotWritten(error),
                        };
                        // Fails only if the session has ended.
                        let _ = events.send(event);
                    };
                    let thread = thread::Builder::new().name("rdmc-write".into()).spawn(write);
                    thread.map_err(|error| {
                        ReceiveError::System(format!("cannot start a thread: {error}"))
                    })?;
                }
                root.send(&ToRoot::Joined { group: number })?;
            }
            Event::Joined(number, Err(error)) if current(number) => {
                membership = None;
                report_failure(root, number, blamed_by(&error), join_predicate(&error))?;
            }
            Event::Group(MemberEvent::Ended(number, Err(failure))) if current(number) => {
                membership = None;
                report_failure(root, number, blamed(&failure), predicate(&failure))?;
            }
            Event::NotWritten(error) => return Err(error),
            Event::Root(Ok(ToReceiver::Digest { digest })) => {
                let own = lock(&written).digest.finalize();
                verified = Verified::compare(own, blake3::Hash::from_bytes(digest)).ok();
                root.send(&ToRoot::Compared { equal: verified.is_some() })?;
            }
            Event::Root(Ok(ToReceiver::Publish)) => {
                let unverified =
                    || ReceiveError::System("was told to publish unverified data".into());
                let proof = verified.take().ok_or_else(unverified)?;
                lock(&written).sink.close();
                // The root hears from this host meanwhile, and may end it.
                while !sink.has_ended()? {
                    if let Some(event) = root.next_in_time()? {
                        unexpected_event(event)?;
                    }
                }
                let (path, said) = sink.publish(&proof)?;
                if let Some(line) = said {
                    root.send(&ToRoot::Said { line })?;
                }
                let peak_resident_bytes = peak_resident_bytes();
                let published = ToRoot::Published { peak_resident_bytes, was_there: false };
                // It is published even if the root is lost.
                let _ = root.control.send(&published);
                return Ok(path);
            }
            event => unexpected_event(event)?,
        }
    }
}

/// Writes the messages of one group out.
struct Writing {
    group: Arc<Group>,
    /// Where its first message begins in the stream.
    from: u64,
    written: Arc<Mutex<Written>>,
    announced: Arc<Announced>,
    control: Arc<Control>,
}

impl Writing {
    /// Returns when the group has ended, or when its bytes are not those that the root has announced.
    ///
    /// Errors: the sink's; the stream is longer than this receiver accepts.
    fn write_out(&self) -> Result<Result<(), Failure>, ReceiveError> {
        let mut position = self.from;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        loop {
            let mut message = match self.group.receive(WAIT) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(Ok(())),
                Err(Error::Timeout { .. }) => continue,
                Err(error) => return Ok(Err(self.failure(&error))),
            };
            let end = position.saturating_add(message.len());
            let done = lock(&self.written).bytes.load(Ordering::Relaxed);
            if end <= done {
                position = end;
                continue;
            }
            lock(&self.written).check_size(end)?;
            let announced = match self.announced.wait(position, || self.group.failure().is_some()) {
                Found::Message(announced) if announced.end() == end => announced,
                Found::Message(_) | Found::Nothing => return Ok(Err(self.altered(position))),
                Found::Ended => return Ok(Err(self.failure(&"it has ended"))),
            };
            for expected in &announced.digests {
                let bytes = (end - position).min(PIECE_BYTES as u64);
                piece.clear();
                match message.by_ref().take(bytes).read_to_end(&mut piece) {
                    Ok(_) => {}
                    Err(error) => return Ok(Err(self.failure(&error))),
                }
                if blake3::hash(&piece) != *expected {
                    return Ok(Err(self.altered(position)));
                }
                lock(&self.written).write(position, &piece, expected)?;
                position += bytes;
            }
            self.announced.release(position);
            // The reading thread of the connection reports a lost root.
            let _ = self.control.send(&ToRoot::Progress { bytes: position });
        }
    }

    /// Leaves the group: what was received at this place is not what was sent.
    fn altered(&self, at: u64) -> Failure {
        tracing::warn!(at, "{ALTERED}");
        // The reading thread of the connection reports a lost root.
        let _ = self.control.send(&ToRoot::Altered { group: self.group.settings().number, at });
        self.group.abort(ALTERED);
        self.failure(&ALTERED)
    }

    /// The failure of the group, of which a call has failed.
    fn failure(&self, error: &dyn std::fmt::Display) -> Failure {
        let settings = self.group.settings();
        self.group.failure().unwrap_or_else(|| Failure {
            group: settings.number,
            member: None,
            reporter: settings.rank,
            kind: FailureKind::Application,
            detail: error.to_string(),
            delivered: 0,
        })
    }
}

/// Joins a group on a thread that ends by the context's own deadline.
///
/// Errors: invalid terms, no thread.
fn join(start: &Start, context: &Arc<Context>, events: &Sender<Event>) -> Result<(), String> {
    let settings = stream_settings(start).map_err(|error| error.to_string())?;
    let (number, context, events) = (start.group, Arc::clone(context), events.clone());
    let join = move || {
        // Fails only if the session has ended.
        let _ = events.send(Event::Joined(number, context.create_group(settings)));
    };
    let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

fn report_failure(
    root: &RootLink<'_>,
    group: u64,
    blamed: Option<Blamed>,
    detail: String,
) -> Result<(), ReceiveError> {
    let written: Ranges = [(0, root.received_bytes.load(Ordering::Relaxed))].into_iter().collect();
    let has = RangeList::from(&written);
    root.send(&ToRoot::GroupFailed { group, blamed, detail, has })
}

fn lock(written: &Mutex<Written>) -> std::sync::MutexGuard<'_, Written> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}
