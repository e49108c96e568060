//! One end of a control connection: a reading thread, a writing thread with a queue, and a handle.

use std::{
    io,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, TrySendError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::Error;
use serde::{Serialize, de::DeserializeOwned};
use session::{Channel, Deadline};

/// The default of [`crate::PushSettings::failure_deadline`].
pub const FAILURE_DEADLINE: Duration = Duration::from_secs(5);

/// The permitted failure deadlines; shorter ones would expire when a thread is scheduled late.
const FAILURE_DEADLINES: RangeInclusive<Duration> =
    Duration::from_millis(200)..=Duration::from_secs(3600);

/// Errors: a failure deadline out of range; names the range.
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

/// How long a peer may be silent on a control connection before it is lost. Longer than the silence timeout of
/// groups' links and the time that a member that others blame has to report, so that these detect a lost member first:
/// they report the step that failed.
pub const fn silence(failure_deadline: Duration) -> Duration {
    failure_deadline.saturating_add(Duration::from_secs(5))
}

/// How long a send may make no progress before the peer is lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The most queued messages; a session has far fewer, so only a peer that reads nothing reaches this.
const QUEUE_MAX: usize = 256;
/// Stack of the threads: decoding and encrypting need little.
const STACK_BYTES: usize = 256 << 10;

/// Sends one queued message.
type Job = Box<dyn FnOnce(&mut Channel) -> Result<(), Error> + Send>;

/// The handle of a control connection.
///
/// Each connection has a queue of its own, so sending never blocks. A peer that does not read a message in time, or
/// whose queue is full, is lost; the reading thread reports it.
#[derive(Debug)]
pub(crate) struct Control {
    handle: Channel,
    /// None once the connection is finishing.
    queue: Mutex<Option<SyncSender<Job>>>,
    /// Why the peer is lost, if the writing thread or a full queue detected it.
    failure: Arc<OnceLock<String>>,
    threads: Mutex<Threads>,
    silence_ms: Arc<AtomicU64>,
}

#[derive(Default, Debug)]
struct Threads {
    reader: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
    /// Closed when the writer has ended.
    written: Option<Receiver<()>>,
}

impl Control {
    /// Starts the threads. The reading one passes each message to `take`, and finally the error that ends the
    /// connection, such as [`silence`]. It ends when `take` returns false or the connection is closed. `take` also gets the
    /// message's length in bytes, and may block: that holds the peer back.
    ///
    /// Errors: no thread.
    pub(crate) fn start<M: DeserializeOwned + Send + 'static>(
        channel: Channel,
        failure_deadline: Duration,
        take: impl FnMut(Result<M, Error>, usize) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_with(channel, failure_deadline, Duration::MAX, || -> Job { nothing() }, take)
    }

    /// The same, and sends `alive` whenever nothing else was sent for `every`.
    pub(crate) fn start_with_keepalive<M: DeserializeOwned + Send + 'static>(
        channel: Channel,
        failure_deadline: Duration,
        alive: impl Serialize + Clone + Send + 'static,
        every: Duration,
        take: impl FnMut(Result<M, Error>, usize) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_with(channel, failure_deadline, every, move || job(&alive), take)
    }

    fn start_with<M: DeserializeOwned + Send + 'static>(
        channel: Channel,
        failure_deadline: Duration,
        every: Duration,
        alive: impl Fn() -> Job + Send + 'static,
        take: impl FnMut(Result<M, Error>, usize) -> bool + Send + 'static,
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
        let (own, write_failure) = (channel.second(), Arc::clone(&failure));
        let write = move || {
            let _writing: Sender<()> = writing;
            write(own, &queue, every, &alive, &write_failure);
        };
        let read = move || read(channel, &silence_ms, &failure, take);
        let thread = |name: &str| thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        // On an error, dropping `control` ends the threads that were started.
        let mut threads = lock(&control.threads);
        threads.writer = Some(thread("rdmc-control-tx").spawn(write)?);
        threads.written = Some(written);
        threads.reader = Some(thread("rdmc-control-rx").spawn(read)?);
        drop(threads);
        Ok(control)
    }

    /// Changes the failure deadline, from the message after the next on.
    pub(crate) fn set_failure_deadline(&self, deadline: Duration) {
        self.silence_ms.store(silence(deadline).as_millis() as u64, Ordering::Relaxed);
    }

    /// Queues a message. Does not wait for the peer. Errors: it is lost.
    pub(crate) fn send<M>(&self, message: &M) -> Result<(), Error>
    where
        M: Serialize + Clone + Send + 'static,
    {
        self.enqueue(job(message))
    }

    /// The same for messages that are made when they are sent, so that one of them at a time takes memory.
    pub(crate) fn send_each<M: Serialize>(
        &self,
        mut messages: impl Iterator<Item = M> + Send + 'static,
    ) -> Result<(), Error> {
        self.enqueue(Box::new(move |channel| {
            let mut send = |message| channel.send_steadily(&message, SEND_TIMEOUT);
            Ok(messages.try_for_each(&mut send)?)
        }))
    }

    fn enqueue(&self, job: Job) -> Result<(), Error> {
        let sent = match &*lock(&self.queue) {
            Some(queue) => queue.try_send(job),
            None => Err(TrySendError::Disconnected(nothing())),
        };
        let cause = match sent {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(_)) => {
                let what = format!("read none of {QUEUE_MAX} queued messages");
                let cause = self.failure.get_or_init(|| what).clone();
                self.handle.shutdown();
                cause
            }
            Err(TrySendError::Disconnected(_)) => {
                self.failure.get().cloned().unwrap_or_else(|| "the connection was closed".into())
            }
        };
        Err(Error::Peer { address: self.handle.peer(), cause })
    }

    /// Ends the connection once all queued messages are sent. Does not wait.
    pub(crate) fn finish(&self) {
        *lock(&self.queue) = None;
    }

    /// Whether a connection that is finishing has sent all of them, or is lost.
    pub(crate) fn has_finished(&self) -> bool {
        let written = lock(&self.threads).written.as_ref().map(Receiver::try_recv);
        written.is_none_or(|written| written == Err(TryRecvError::Disconnected))
    }

    /// Ends the connection once all queued messages are sent, or at the deadline. Must not be called from the
    /// reading thread.
    pub(crate) fn close(&self, deadline: Deadline) {
        self.finish();
        let written = lock(&self.threads).written.take();
        if let Some(written) = written {
            // Returns when the sender is dropped.
            let _ = written.recv_timeout(deadline.left());
        }
        self.disconnect();
    }

    /// Ends the connection and the threads at once. Must not be called from the reading thread.
    pub(crate) fn disconnect(&self) {
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
        self.disconnect();
    }
}

fn read<M: DeserializeOwned>(
    mut channel: Channel,
    silence_ms: &AtomicU64,
    failure: &OnceLock<String>,
    mut take: impl FnMut(Result<M, Error>, usize) -> bool,
) {
    loop {
        let silence = Duration::from_millis(silence_ms.load(Ordering::Relaxed));
        let received = channel.receive_counted(silence);
        let (message, bytes) = match received {
            Ok((message, bytes)) => (Ok(message), bytes),
            Err(error) => (Err(error), 0),
        };
        let message = message.map_err(|error| match failure.get() {
            Some(cause) => Error::Peer { address: channel.peer(), cause: cause.clone() },
            None => error.into(),
        });
        let last = message.is_err();
        if !take(message, bytes) || last {
            break;
        }
    }
}

/// Sends queued messages until the queue is closed or the peer is lost, then ends the connection.
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
            // A part of the message may have been sent, so no other can follow.
            failure.get_or_init(|| match error {
                Error::Timeout { .. } => {
                    format!("read nothing of a message for {} s", SEND_TIMEOUT.as_secs())
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

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn pair() -> (Channel, Channel) {
        let (secret, deadline) = (Secret::from_bytes([1; 32]), Deadline::after(TIMEOUT));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let connected = scope.spawn(|| Channel::connect(address, &secret, deadline).unwrap());
            let accepted = Channel::accept(listener.accept().unwrap().0, &secret, deadline);
            (accepted.unwrap(), connected.join().unwrap())
        })
    }

    #[test]
    fn sending_does_not_wait_for_a_peer_that_does_not_read() {
        let (own, _peer) = pair();
        let (sender, received) = channel();
        let take = move |message: Result<u8, Error>, _| sender.send(message).is_ok();
        let control = Control::start(own, TIMEOUT, take).unwrap();
        // More than any socket buffers.
        let long = vec![7_u8; 256 << 10];
        let refused = (0..=2 * QUEUE_MAX).find_map(|_| control.send(&long).err()).unwrap();
        assert!(refused.to_string().contains("read none of 256 queued messages"), "{refused}");
        // The reading thread reports the same.
        let lost = received.recv_timeout(TIMEOUT).unwrap().unwrap_err();
        assert!(lost.to_string().contains("read none of 256 queued messages"), "{lost}");
        control.disconnect();
    }

    #[test]
    fn of_several_messages_those_are_made_that_the_peer_reads() {
        const MESSAGES: usize = 200;
        let (own, mut peer) = pair();
        let control = Control::start(own, TIMEOUT, |_: Result<u8, Error>, _| true).unwrap();
        let made = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&made);
        let message = move |number: usize| {
            counted.fetch_add(1, Ordering::Relaxed);
            vec![number as u8; 256 << 10]
        };
        control.send_each((0..MESSAGES).map(message)).unwrap();
        for number in 0..MESSAGES {
            let made = made.load(Ordering::Relaxed) as usize;
            assert!(number != 1 || made < MESSAGES, "{made} were made when one was read");
            let message: Vec<u8> = peer.receive(Deadline::after(TIMEOUT)).unwrap();
            assert!(message.len() == 256 << 10 && message[0] == number as u8);
        }
        control.close(Deadline::after(TIMEOUT));
    }

    #[test]
    fn closing_sends_all_queued_messages_first() {
        let (own, mut peer) = pair();
        let take = |_: Result<u8, Error>, _| true;
        let control = Control::start_with_keepalive(own, TIMEOUT, 0_u8, TIMEOUT, take).unwrap();
        let messages = (0..100_u8).map(|number| vec![number; 100_000]);
        messages.clone().for_each(|message| control.send(&message).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| control.close(Deadline::after(TIMEOUT)));
            for message in messages {
                let deadline = Deadline::after(TIMEOUT);
                assert_eq!(peer.receive::<Vec<u8>>(deadline).unwrap(), message);
            }
            assert!(peer.receive::<Vec<u8>>(Deadline::after(TIMEOUT)).is_err());
        });
        assert!(control.send(&0_u8).is_err());
    }

    #[test]
    fn keepalives_are_sent_while_nothing_else_is() {
        let (own, mut peer) = pair();
        let every = Duration::from_millis(1);
        let take = |_: Result<u8, Error>, _| true;
        let control = Control::start_with_keepalive(own, TIMEOUT, 9_u8, every, take);
        for _ in 0..3 {
            assert_eq!(peer.receive::<u8>(Deadline::after(TIMEOUT)).unwrap(), 9);
        }
        drop(control);
    }
}
