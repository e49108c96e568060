//! Processes of members: this test program itself, started again to run only the test `member`.
//!
//! Loading a library takes a process a long time, so one whose transport has ended is reused.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::protocol::{self, Reply, Request};

/// The environment variable that is set in a member's process.
pub const MEMBER: &str = "RDMC_TEST_IS_MEMBER";

/// The longest time for an answer, besides the requested wait.
const PATIENCE: Duration = Duration::from_secs(30);

static IDLE: Mutex<Vec<Process>> = Mutex::new(Vec::new());

/// A thread that starts processes: they are killed when it ends, which is when this program does.
static STARTER: LazyLock<Sender<Ask>> = LazyLock::new(|| {
    let (sender, requests) = mpsc::channel::<Ask>();
    thread::spawn(move || {
        requests.iter().for_each(|ask| drop(ask.to.send(Process::spawn(ask.clean_up))));
    });
    sender
});

/// Asks for a process.
struct Ask {
    to: Sender<Process>,
    clean_up: CleanUp,
}

/// A process, which is killed when this is dropped.
pub struct Process {
    child: Child,
    stream: UnixStream,
    /// The socket for requests; locked, since any thread may send a wake request.
    pub outbox: Arc<Outbox>,
    clean_up: CleanUp,
}

/// Removes what a killed process of this number has left, and returns what it was.
pub type CleanUp = fn(u32) -> Vec<PathBuf>;

/// Where requests go.
pub struct Outbox(Mutex<UnixStream>);

impl Outbox {
    pub fn send(&self, request: &Request, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        protocol::write(&mut *stream, request, bytes)
    }
}

impl Process {
    /// Returns a process without a transport.
    pub fn start(clean_up: CleanUp) -> Self {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            let (to, started) = mpsc::channel();
            STARTER.send(Ask { to, clean_up }).expect("its thread does not end");
            started.recv().expect("a process can be started")
        })
    }

    fn spawn(clean_up: CleanUp) -> Self {
        let (stream, theirs) = UnixStream::pair().expect("descriptors are left");
        // By this path, since another user may not reach the program by its own.
        let program = "/proc/self/exe";
        let child = Command::new(program)
            .args(["processes::member", "--exact", "--nocapture", "--test-threads=1"])
            .env(MEMBER, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        let outbox = stream.try_clone().expect("descriptors are left");
        outbox.set_write_timeout(Some(PATIENCE)).expect("a valid time");
        Self { child, stream, outbox: Arc::new(Outbox(Mutex::new(outbox))), clean_up }
    }

    /// Sends a request. If it does not arrive, the missing answer reports that.
    pub fn tell(&self, request: &Request, bytes: &[u8]) {
        let _ = self.outbox.send(request, bytes);
    }

    /// Returns the answer to a request, which takes `wait` if there is no error.
    pub fn receive(&mut self, wait: Duration) -> (Reply, Vec<u8>) {
        self.stream.set_read_timeout(Some(wait + PATIENCE)).expect("a valid time");
        protocol::read(&mut self.stream).unwrap_or_else(|error| {
            panic!("process {}: {error}, {:?}", self.child.id(), self.child.try_wait())
        })
    }

    /// Stops the process: it does nothing, and its connections stay open.
    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("a child can be stopped");
    }

    /// Keeps the process, whose transport has ended in an ordered way, for reuse.
    pub fn put_back(self) {
        let left = (self.clean_up)(self.child.id());
        assert!(left.is_empty(), "a transport has ended in order, and left {left:?}");
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
        // A killed process cannot remove them.
        (self.clean_up)(self.child.id());
    }
}
