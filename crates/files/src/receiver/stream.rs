//! A receiver of a stream: messages are written out in order, as their bytes arrive.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use rdmc::{Context, Error, Failure, FailureKind, Group};

use super::{
    bench::agree_on_fabric,
    dispatch::unexpected_event,
    error::ReceiveError,
    membership::MemberEvent,
    root_link::{Event, RootLink},
    session::blamed_by,
    sink::{Sink, SinkWriter},
};
use crate::{
    Verified,
    control::Control,
    messages::{
        Blamed, GIVEN_UP, Start, StreamOffer, ToReceiver, ToRoot, blamed, join_predicate, predicate,
    },
    push::stream_settings,
    ranges::{RangeList, Ranges},
    resident::peak_resident_bytes,
};

/// How long a wait for the next message may last before it is begun again.
const WAIT: Duration = Duration::from_secs(3600);
/// Bytes written at once.
const PIECE_BYTES: usize = 256 << 10;

/// What has been written out.
struct Written {
    sink: SinkWriter,
    digest: blake3::Hasher,
    /// How much; also for the root's progress.
    bytes: Arc<AtomicU64>,
}

/// A group that is being joined, or is joined.
struct Membership {
    number: u64,
    from: u64,
    group: Option<Arc<Group>>,
}

/// Receives until everything is published; the path, if it is a file.
///
/// Errors: the sink fails; the root is lost or ends the stream.
pub(super) fn take_part(
    root: &RootLink<'_>,
    offer: &StreamOffer,
    measured: &OnceLock<Arc<Context>>,
) -> Result<Option<PathBuf>, ReceiveError> {
    let sink = Sink::open(root.settings, offer)?;
    let sink_writer = sink.writer().map_err(ReceiveError::Sink)?;
    let written = Written {
        sink: sink_writer,
        digest: blake3::Hasher::new(),
        bytes: Arc::clone(&root.received_bytes),
    };
    let written = Arc::new(Mutex::new(written));
    let context = agree_on_fabric(root, &offer.terms, measured)?;
    let mut membership: Option<Membership> = None;
    let mut verified = None;
    loop {
        let current = |number| membership.as_ref().is_some_and(|m| m.number == number);
        match root.next()? {
            Event::Root(Ok(ToReceiver::Take { start, from })) => {
                let number = start.group;
                match join(&start, &context, &root.events) {
                    Ok(()) => membership = Some(Membership { number, from, group: None }),
                    Err(detail) => report_failure(root, number, None, detail)?,
                }
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
                    let (written, from) = (Arc::clone(&written), membership.from);
                    let (control, events) = (Arc::clone(&root.control), root.events.clone());
                    let read = move || {
                        let event = match write_out(&group, from, &written, &control) {
                            Ok(outcome) => Event::Group(MemberEvent::Ended(number, outcome)),
                            Err(error) => Event::OwnDigest(Err(error)),
                        };
                        // Fails only if the session has ended.
                        let _ = events.send(event);
                    };
                    let thread = thread::Builder::new().name("rdmc-write".into()).spawn(read);
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
            Event::OwnDigest(Err(error)) => return Err(ReceiveError::Sink(error)),
            Event::Root(Ok(ToReceiver::Digest { digest })) => {
                let own = lock(&written).digest.finalize();
                verified = Verified::compare(own, blake3::Hash::from_bytes(digest)).ok();
                root.send(&ToRoot::Compared { equal: verified.is_some() })?;
            }
            Event::Root(Ok(ToReceiver::Publish)) => {
                let unverified =
                    || ReceiveError::System("was told to publish unverified data".into());
                let path = sink.publish(&verified.take().ok_or_else(unverified)?)?;
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

/// Writes the messages of a group out, of which the first begins at `from`, but not what was written before. Returns
/// when the group has ended.
///
/// Errors: the sink's.
fn write_out(
    group: &Group,
    from: u64,
    written: &Mutex<Written>,
    control: &Control,
) -> io::Result<Result<(), Failure>> {
    let mut position = from;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let mut message = match group.receive(WAIT) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(Ok(())),
            Err(Error::Timeout { .. }) => continue,
            Err(error) => return Ok(Err(failure_of(group, &error))),
        };
        loop {
            let count = match message.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => return Ok(Err(failure_of(group, &error))),
            };
            let mut written = lock(written);
            let done = written.bytes.load(Ordering::Relaxed);
            let new = (position + count as u64).saturating_sub(done).min(count as u64) as usize;
            let new = &piece[count - new..count];
            written.sink.write_all(new)?;
            written.digest.update(new);
            written.bytes.fetch_add(new.len() as u64, Ordering::Relaxed);
            position += count as u64;
        }
        let bytes = lock(written).bytes.load(Ordering::Relaxed);
        // The reading thread of the connection reports a lost root.
        let _ = control.send(&ToRoot::Progress { bytes });
    }
}

/// The failure of a group whose call has failed.
fn failure_of(group: &Group, error: &dyn std::fmt::Display) -> Failure {
    group.failure().unwrap_or_else(|| Failure {
        group: group.settings().number,
        member: None,
        reporter: group.settings().rank,
        kind: FailureKind::Application,
        detail: error.to_string(),
        delivered: 0,
    })
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
