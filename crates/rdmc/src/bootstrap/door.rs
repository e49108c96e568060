//! A listener that lets in whoever proves to belong there, and whom strangers cannot keep busy.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::SockRef;

use super::{Channel, Credentials, Deadline, Gate, gate::STACK_BYTES, porch::Porch};
use crate::{Error, threads::Threads};

/// How long a connection may take to prove itself.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Out of descriptors or threads: that passes.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until it is dropped, each authenticated on a thread of its own.
///
/// Strangers cost at most 128 connections that have not said hello, 10 seconds each, and as many
/// handshakes on threads, 10 more seconds each; and no memory that grows with what they send.
/// Dropping it hangs up on those, and waits for one thread, 10 seconds at most; whom it has let in is
/// not touched.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    inside: Arc<Inside>,
    threads: Threads,
}

#[derive(Debug)]
struct Inside {
    credentials: Credentials,
    closed: AtomicBool,
    gate: Arc<Gate>,
}

impl Door {
    /// Starts to let in. `admit` gets each authenticated connection, or why somebody who said hello
    /// was turned away, on that connection's thread (of 256 KiB of stack), and may block.
    ///
    /// Errors: no thread or descriptor can be had.
    pub fn open(
        listener: TcpListener,
        credentials: impl Into<Credentials>,
        admit: impl Fn(Result<Channel, Error>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let gate = Arc::new(Gate::default());
        let closed = AtomicBool::new(false);
        let inside = Arc::new(Inside { credentials: credentials.into(), closed, gate });
        let mut porch = Porch::of(listener.try_clone()?)?;
        let keeper = Arc::clone(&inside);
        let admit = Arc::new(admit);
        let accept = move || {
            loop {
                let accepted = porch.next();
                if keeper.closed.load(Ordering::Acquire) {
                    return;
                }
                let started = accepted.and_then(|stream| greet(stream, &keeper, &admit));
                if started.is_err() {
                    thread::sleep(PAUSE);
                }
            }
        };
        let threads = Threads::default();
        threads.spawn("rdmc-door", "the listener".into(), accept)?;
        Ok(Self { listener, inside, threads })
    }

    /// Where it listens. Errors: the system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.inside.closed.store(true, Ordering::Release);
        // On Linux this wakes who waits for callers.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        self.threads.join(Deadline::after(AUTHENTICATION_TIMEOUT));
        self.inside.gate.close(Duration::ZERO);
    }
}

fn greet<A>(stream: TcpStream, inside: &Arc<Inside>, admit: &Arc<A>) -> io::Result<()>
where
    A: Fn(Result<Channel, Error>) + Send + Sync + 'static,
{
    let guest = inside.gate.enter(&stream)?;
    let (keeper, admit) = (Arc::clone(inside), Arc::clone(admit));
    let greet = move || {
        let deadline = Deadline::after(AUTHENTICATION_TIMEOUT);
        let channel = Channel::accept_greeted(stream, || keeper.credentials.listener(), deadline);
        drop(guest);
        if !keeper.closed.load(Ordering::Acquire) {
            admit(channel);
        }
    };
    let thread = thread::Builder::new().name("rdmc-greet".into()).stack_size(STACK_BYTES);
    thread.spawn(greet).map(drop)
}
