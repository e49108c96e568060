//! A network of one thread's own, for tests and measurements that make its links themselves.

use std::{sync::mpsc, thread};

use rustix::thread::UnshareFlags;

use crate::{Error, command};

/// Moves this thread into a new network namespace, in which there is a loopback device that is down,
/// and nothing else. Threads that it starts afterwards come with it; others stay where they are. The
/// namespace is removed with the last thread and socket in it.
///
/// Needs root.
pub fn enter_own_network() -> Result<(), Error> {
    // It takes away nothing that other threads have, as sharing fewer files or memory could.
    #[expect(deprecated, reason = "its successor is for cases that need proof")]
    let entered = rustix::thread::unshare(UnshareFlags::NEWNET);
    entered.map_err(|error| Error::Failed(format!("no network namespace: {error}")))
}

/// Runs `ip` of iproute2 in this thread's network, with these words.
pub fn ip(words: &str) -> Result<(), Error> {
    let words: Vec<&str> = words.split(' ').collect();
    command::output("ip", &words).map(|_| ())
}

/// Brings up a link, on which the kernel sends no IPv6 packets of its own.
pub fn quiet(link: &str, mtu_bytes: u32) -> Result<(), Error> {
    // A kernel without IPv6 has no such file.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "1");
    ip(&format!("link set {link} mtu {mtu_bytes} up"))
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace with a thread that runs functions in it. The thread ends when this is dropped, the namespace also
/// with its last socket.
#[derive(Debug)]
pub struct Network {
    thread: i32,
    jobs: mpsc::Sender<Job>,
}

impl Network {
    /// Makes one. Needs root.
    pub fn new() -> Result<Self, Error> {
        let (jobs, received) = mpsc::channel::<Job>();
        let (enter, entered) = mpsc::channel();
        let live = move || {
            let thread = rustix::thread::gettid().as_raw_pid();
            let has_entered = enter_own_network().map(|()| thread);
            let is_ready = has_entered.is_ok();
            if enter.send(has_entered).is_ok() && is_ready {
                received.into_iter().for_each(|job| job());
            }
        };
        thread::Builder::new()
            .name("lab-network".into())
            .spawn(live)
            .map_err(|error| Error::Failed(format!("no thread for a network: {error}")))?;
        let ended = |_| Error::Failed("the thread of a network has ended".into());
        entered.recv().map_err(ended)?.map(|thread| Self { thread, jobs })
    }

    /// The thread's number, by which `ip link set NAME netns NUMBER` moves a link there.
    #[must_use]
    pub const fn thread(&self) -> i32 {
        self.thread
    }

    /// Runs a function there, and waits for it. Threads that it starts are there, too.
    ///
    /// Panics: the function does.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::channel();
        let job = move || drop(sender.send(job()));
        let is_sent = self.jobs.send(Box::new(job)).is_ok();
        result.recv().ok().filter(|_| is_sent).expect("a function in a network has panicked")
    }
}
