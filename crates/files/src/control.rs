//! One end of a control connection: a thread that reads, one that writes, and anybody who speaks.

use std::{
    io,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::{
    Error,
    bootstrap::{Channel, Deadline},
};
use serde::{Serialize, de::DeserializeOwned};

/// The default of [`crate::PushSettings::failure_deadline`].
pub const FAILURE_DEADLINE: Duration = Duration::from_secs(5);

/// What failure deadlines can be: heartbeats cost little, and threads are not always on time.
const FAILURE_DEADLINES: RangeInclusive<Duration> =
    Duration::from_millis(200)..=Duration::from_secs(3600);

/// Errors: no failure deadline can be as short or as long.
pub fn check_failure_deadline(deadline: Duration) -> Result<(), String> {
    if FAILURE_DEADLINES.contains(&deadline) {
        return Ok(());
    }
    Err(format!(
        "a failure deadline of {} s; use {} to {} s",
        deadline.as_secs_f64(),
        FAILURE_DEADLINES.start().as_secs_f64(),
        FAILURE_DEADLINES.end().as_secs_f64()
    ))
}

/// A peer of which nothing was heard on a control connection for this long is gone. Both sides
/// speak more often. Longer than the links of groups wait, so that those are first to say so: then
/// it is known what was going on.
pub const fn silence(failure_deadline: Duration) -> Duration {
    failure_deadline.saturating_add(Duration::from_secs(3))
}

/// How long a peer may take to make room for the next part of what is said to it.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that may wait for a peer. It takes far fewer of them to say everything; only a peer that
/// takes nothing has so many before [`SEND_TIMEOUT`].
const QUEUE_MAX: usize = 256;
/// Of the threads: decoding and encrypting need little.
const STACK_BYTES: usize = 256 << 10;

/// A message on its way to the peer.
type Job = Box<dyn FnOnce(&mut Channel) -> Result<(), Error> + Send>;

/// The writing end, and the way to end the connection.
///
/// Messages wait in a queue of this connection alone, so that speaking never waits for a peer. Two
/// threads serve it: one reads, one writes. A peer that does not take a message in time, or has a full
/// queue, is lost: the reading thread says so.
#[derive(Debug)]
pub(crate) struct Control {
    handle: Channel,
    /// None once nothing more is to be said.
    queue: Mutex<Option<SyncSender<Job>>>,
    /// Why the peer is lost, if it was the writing that found out.
    failure: Arc<OnceLock<String>>,
    threads: Mutex<Threads>,
    silence_ms: Arc<AtomicU64>,
}

#[derive(Default, Debug)]
struct Threads {
    reader: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
    /// Disconnected when the writer has ended.
    written: Option<Receiver<()>>,
}

impl Control {
    /// Starts a thread that gives each message to `take`, and at last the reason why there are no
    /// more: one is that nothing was heard for as long as [`silence`] says. The thread ends when
    /// `take` returns false, or on hanging up.
    ///
    /// Errors: no thread can be had.
    pub(crate) fn start<M: DeserializeOwned + Send + 'static>(
        channel: Channel,
        failure_deadline: Duration,
        take: impl FnMut(Result<M, Error>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        // Speaks only when it is told to.
        Self::start_with(channel, failure_deadline, Duration::MAX, || -> Job { nothing() }, take)
    }

    /// The same, and says `alive` whenever nothing else was said for so long.
    pub(crate) fn start_beating<M: DeserializeOwned + Send + 'static>(
        channel: Channel,
        failure_deadline: Duration,
        (alive, every): (impl Serialize + Clone + Send + 'static, Duration),
        take: impl FnMut(Result<M, Error>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_with(channel, failure_deadline, every, move || job(&alive), take)
    }

    fn start_with<M: DeserializeOwned + Send + 'static>(
        channel: Channel,
        failure_deadline: Duration,
        every: Duration,
        alive: impl Fn() -> Job + Send + 'static,
        take: impl FnMut(Result<M, Error>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let silence_ms = Arc::new(AtomicU64::new(silence(failure_deadline).as_millis() as u64));
        let failure = Arc::default();
        let (sender, queue) = mpsc::sync_channel(QUEUE_MAX);
        let (writing, written) = mpsc::channel();
        let control = Self {
            handle: channel.second(),
            queue: Mutex::new(Some(sender)),
            failure: Arc::clone(&failure),
            threads: Mutex::default(),
            silence_ms: Arc::clone(&silence_ms),
        };
        let (own, told) = (channel.second(), Arc::clone(&failure));
        let write = move || {
            let _writing: Sender<()> = writing;
            write(own, &queue, every, &alive, &told);
        };
        let read = move || read(channel, &silence_ms, &failure, take);
        let thread = |name: &str| thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        // What has been started ends when this is dropped for an error.
        let mut threads = lock(&control.threads);
        threads.writer = Some(thread("rdmc-say").spawn(write)?);
        threads.written = Some(written);
        threads.reader = Some(thread("rdmc-control").spawn(read)?);
        drop(threads);
        Ok(control)
    }

    /// Another deadline, from the message after the next on.
    pub(crate) fn set_failure_deadline(&self, deadline: Duration) {
        self.silence_ms.store(silence(deadline).as_millis() as u64, Ordering::Relaxed);
    }

    /// Says one thing, after what was said before. Does not wait for the peer. Errors: it is lost.
    pub(crate) fn send<M>(&self, message: &M) -> Result<(), Error>
    where
        M: Serialize + Clone + Send + 'static,
    {
        let sent = match &*lock(&self.queue) {
            Some(queue) => queue.try_send(job(message)),
            None => Err(TrySendError::Disconnected(nothing())),
        };
        let cause = match sent {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(_)) => {
                let what = format!("took none of {QUEUE_MAX} messages that wait for it");
                let cause = self.failure.get_or_init(|| what).clone();
                self.handle.shutdown();
                cause
            }
            Err(TrySendError::Disconnected(_)) => {
                self.failure.get().cloned().unwrap_or_else(|| "was hung up on".into())
            }
        };
        Err(Error::Peer { address: self.handle.peer(), cause })
    }

    /// Nothing more will be said: the connection ends when the peer has taken what was. Does not wait.
    pub(crate) fn finish(&self) {
        *lock(&self.queue) = None;
    }

    /// Ends the connection when the peer has taken what was said, or at the deadline. Not to be called
    /// from the reading thread.
    pub(crate) fn close(&self, deadline: Deadline) {
        self.finish();
        let written = lock(&self.threads).written.take();
        if let Some(written) = written {
            // Only ever disconnected.
            let _ = written.recv_timeout(deadline.left());
        }
        self.hang_up();
    }

    /// Ends the connection and the threads at once. Not to be called from the reading thread.
    pub(crate) fn hang_up(&self) {
        self.finish();
        self.handle.shutdown();
        let Threads { reader, writer, .. } = std::mem::take(&mut *lock(&self.threads));
        for thread in [reader, writer].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn read<M: DeserializeOwned>(
    mut channel: Channel,
    silence_ms: &AtomicU64,
    failure: &OnceLock<String>,
    mut take: impl FnMut(Result<M, Error>) -> bool,
) {
    loop {
        let silence = Duration::from_millis(silence_ms.load(Ordering::Relaxed));
        let message = channel.receive_steadily(silence);
        let message = message.map_err(|error| match failure.get() {
            Some(cause) => Error::Peer { address: channel.peer(), cause: cause.clone() },
            None => error.into(),
        });
        let last = message.is_err();
        if !take(message) || last {
            break;
        }
    }
}

/// Until nothing more is to be said, or the peer is lost; then the connection has ended.
fn write(
    mut channel: Channel,
    queue: &Receiver<Job>,
    every: Duration,
    alive: &dyn Fn() -> Job,
    failure: &OnceLock<String>,
) {
    loop {
        let job = match queue.recv_timeout(every) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) => alive(),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Err(error) = job(&mut channel) {
            // A part of the message may be on its way, so that no other can follow.
            failure.get_or_init(|| match error {
                Error::Timeout { .. } => {
                    format!("took nothing of a message for {} s", SEND_TIMEOUT.as_secs())
                }
                Error::Peer { cause, .. } => cause,
                other => other.to_string(),
            });
            break;
        }
    }
    channel.shutdown();
}

fn job<M: Serialize + Clone + Send + 'static>(message: &M) -> Job {
    let message = message.clone();
    Box::new(move |channel| Ok(channel.send_steadily(&message, SEND_TIMEOUT)?))
}

fn nothing() -> Job {
    Box::new(|_| Ok(()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, sync::mpsc::channel};

    use rdmc::Secret;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn pair() -> (Channel, Channel) {
        let (secret, deadline) = (Secret::from_bytes([1; 32]), Deadline::after(PATIENCE));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let connected = scope.spawn(|| Channel::connect(address, &secret, deadline).unwrap());
            let accepted = Channel::accept(listener.accept().unwrap().0, &secret, deadline);
            (accepted.unwrap(), connected.join().unwrap())
        })
    }

    #[test]
    fn who_speaks_does_not_wait_for_a_peer_that_takes_nothing() {
        let (own, _deaf) = pair();
        let (heard, news) = channel();
        let take = move |message: Result<u8, Error>| heard.send(message).is_ok();
        let control = Control::start(own, PATIENCE, take).unwrap();
        // More than any socket takes.
        let long = vec![7_u8; 256 << 10];
        let refused = (0..=2 * QUEUE_MAX).find_map(|_| control.send(&long).err()).unwrap();
        assert!(refused.to_string().contains("took none of 256 messages"), "{refused}");
        // Whoever reads is told why.
        let lost = news.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(lost.to_string().contains("took none of 256 messages"), "{lost}");
        control.hang_up();
    }

    #[test]
    fn a_peer_that_reads_slowly_hears_everything_before_the_connection_ends() {
        let (own, mut peer) = pair();
        let take = |_: Result<u8, Error>| true;
        let control = Control::start_beating(own, PATIENCE, (0_u8, PATIENCE), take).unwrap();
        let words = (0..100_u8).map(|word| vec![word; 100_000]);
        words.clone().for_each(|word| control.send(&word).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| control.close(Deadline::after(PATIENCE)));
            for word in words {
                let deadline = Deadline::after(PATIENCE);
                assert_eq!(peer.receive::<Vec<u8>>(deadline).unwrap(), word);
            }
            assert!(peer.receive::<Vec<u8>>(Deadline::after(PATIENCE)).is_err());
        });
        assert!(control.send(&0_u8).is_err());
    }

    #[test]
    fn a_peer_hears_that_this_end_is_alive_while_nothing_is_said() {
        let (own, mut peer) = pair();
        let beat = (9_u8, Duration::from_millis(1));
        let control = Control::start_beating(own, PATIENCE, beat, |_: Result<u8, Error>| true);
        for _ in 0..3 {
            assert_eq!(peer.receive::<u8>(Deadline::after(PATIENCE)).unwrap(), 9);
        }
        drop(control);
    }
}
