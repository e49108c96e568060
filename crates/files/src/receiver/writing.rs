//! The thread that writes the messages of one group of a stream out: piece by piece, as soon as a piece has arrived and equals
//! what the root has announced.

use std::{
    io::{Read, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use plan::size;
use rdmc::{Error, Failure, Group};

use super::{
    announced::{Announced, Found},
    error::ReceiveError,
    membership::MemberEvent,
    root_link::Event,
    sink::SinkWriter,
};
use crate::{
    control::Control,
    messages::{ALTERED, ToRoot},
    sending::own_failure,
    stream_message::PIECE_BYTES,
};

/// How long a wait for the next message may last before it is begun again.
const WAIT: Duration = Duration::from_secs(3600);

/// What has been written out.
pub(super) struct Written {
    pub(super) sink: SinkWriter,
    /// Of the digests of all pieces.
    pub(super) digest: blake3::Hasher,
    /// How much; also for the root's progress.
    pub(super) bytes: Arc<AtomicU64>,
    /// The most that this receiver accepts.
    pub(super) bytes_max: Option<u64>,
}

impl Written {
    /// Errors: the stream is longer than this receiver accepts.
    fn check_size(&self, bytes: u64) -> Result<(), ReceiveError> {
        match self.bytes_max {
            Some(most) if bytes > most => Err(ReceiveError::Refused(format!(
                "the stream is longer than {}, the most that this receiver accepts; start it with a larger --max-size",
                size::show(most)
            ))),
            _ => Ok(()),
        }
    }

    /// Writes out a piece that begins at this place, but not what was written before.
    fn write(&mut self, at: u64, piece: &[u8], digest: &[u8; 32]) -> Result<(), ReceiveError> {
        let done = self.bytes.load(Ordering::Relaxed).saturating_sub(at);
        let Some(new @ [_, ..]) = piece.get(done as usize..) else { return Ok(()) };
        self.sink.write_all(new).map_err(|error| self.sink.failed(error))?;
        self.digest.update(digest);
        self.bytes.fetch_add(new.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

pub(super) fn lock(written: &Mutex<Written>) -> MutexGuard<'_, Written> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the messages of one group out.
pub(super) struct Writing {
    pub(super) group: Arc<Group>,
    /// Where its first message begins in the stream.
    pub(super) from: u64,
    pub(super) written: Arc<Mutex<Written>>,
    pub(super) announced: Arc<Announced>,
    pub(super) control: Arc<Control>,
    pub(super) events: Sender<Event>,
}

impl Writing {
    /// Starts the thread, which ends with the group, or later if it is in a write that waits for the consumer.
    pub(super) fn start(self) -> Result<(), ReceiveError> {
        let write = move || {
            let number = self.group.settings().number;
            let event = match self.write_out() {
                Ok(outcome) => Event::Group(MemberEvent::Ended(number, outcome)),
                Err(error) => Event::Failed(error),
            };
            // Fails only if the session has ended.
            let _ = self.events.send(event);
        };
        let thread = thread::Builder::new().name("rdmc-write".into()).spawn(write);
        thread
            .map(drop)
            .map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))
    }

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
                Found::NotYet => return Ok(Err(self.failure(&"it has ended"))),
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

    /// What was received at this place is not what was sent: the session leaves the group.
    fn altered(&self, at: u64) -> Failure {
        tracing::warn!(at, "{ALTERED}");
        let number = self.group.settings().number;
        let _ = self.events.send(Event::Group(MemberEvent::Altered(number, at)));
        self.failure(&ALTERED)
    }

    /// The failure of the group, of which a call has failed.
    fn failure(&self, error: &dyn std::fmt::Display) -> Failure {
        self.group.failure().unwrap_or_else(|| own_failure(self.group.settings(), error))
    }
}
