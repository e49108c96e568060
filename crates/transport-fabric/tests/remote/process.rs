//! Processes of members: this test program itself, started again to run the one test `member`.
//!
//! To load libfabric takes a process long, so one whose transport has ended is used again.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
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

/// Set where this program is a member.
pub const MEMBER: &str = "RDMC_TEST_IS_MEMBER";

/// No answer takes longer, besides what it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(30);

static IDLE: Mutex<Vec<Process>> = Mutex::new(Vec::new());

/// A thread that starts processes: they are killed when it ends, which is when this program does.
static STARTER: LazyLock<Sender<Sender<Process>>> = LazyLock::new(|| {
    let (sender, requests) = mpsc::channel::<Sender<Process>>();
    thread::spawn(move || requests.iter().for_each(|to| drop(to.send(Process::spawn()))));
    sender
});

/// A process, which is killed when this is dropped.
pub struct Process {
    child: Child,
    stream: UnixStream,
    /// For requests, since wakes come from any thread.
    pub outbox: Arc<Outbox>,
}

/// Where requests go.
pub struct Outbox(Mutex<UnixStream>);

impl Outbox {
    pub fn send(&self, request: &Request, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        protocol::write(&mut *stream, request, bytes)
    }
}

impl Process {
    /// One without a transport.
    pub fn start() -> Self {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            let (sender, started) = mpsc::channel();
            STARTER.send(sender).expect("its thread does not end");
            started.recv().expect("a process can be started")
        })
    }

    fn spawn() -> Self {
        let (stream, theirs) = UnixStream::pair().expect("descriptors are left");
        let program = std::env::current_exe().expect("this program knows itself");
        let child = Command::new(program)
            .args(["processes::member", "--exact", "--nocapture", "--test-threads=1"])
            .env(MEMBER, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        let outbox = stream.try_clone().expect("descriptors are left");
        outbox.set_write_timeout(Some(PATIENCE)).expect("a lawful time");
        Self { child, stream, outbox: Arc::new(Outbox(Mutex::new(outbox))) }
    }

    /// Sends a request. That it does not arrive is seen when there is no answer.
    pub fn tell(&self, request: &Request, bytes: &[u8]) {
        let _ = self.outbox.send(request, bytes);
    }

    /// The answer to a request that takes `wait` if all is well.
    pub fn receive(&mut self, wait: Duration) -> (Reply, Vec<u8>) {
        self.stream.set_read_timeout(Some(wait + PATIENCE)).expect("a lawful time");
        protocol::read(&mut self.stream).unwrap_or_else(|error| {
            panic!("process {}: {error}, {:?}", self.child.id(), self.child.try_wait())
        })
    }

    /// Stops it: it does nothing, and stays.
    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("a child can be stopped");
    }

    /// Keeps it, whose transport has ended in order, for somebody else.
    pub fn put_back(self) {
        let left = self.shared_memory();
        assert!(left.is_empty(), "a transport has ended in order, and left {left:?}");
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    /// What libfabric's shm has in the file system for it.
    fn shared_memory(&self) -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let of_it = format!("{}:", self.child.id());
        let of_it = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&of_it));
        of_it.map(|entry| entry.path()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
        // A process that is killed cannot remove it.
        self.shared_memory().iter().for_each(|path| drop(fs::remove_file(path)));
    }
}
