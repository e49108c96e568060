//! One of two members that exchange messages, and its measurement.

use std::{
    fs,
    net::TcpStream,
    sync::mpsc::{Receiver, Sender, TryRecvError},
    thread,
    time::Instant,
};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use transport_tcp::TcpCounters;

use super::super::contest::TURN_TIMEOUT;
use crate::outcome::Outcome;

/// What a write of 4 bytes is on a socket: the transport's frame, the contents and the header of a slot.
pub const FRAME_BYTES: usize = 84;
/// Operations before those that are counted.
pub const WARM_UP: u32 = 200;

/// What member 0 saw of one run.
pub struct Seen {
    pub us: f64,
    /// Of the transport, from its beginning.
    pub counters: Option<TcpCounters>,
    /// How often the thread has slept in the system while it was measured.
    pub sleeps: u64,
}

/// One operation, and then what the transport has counted.
pub trait Pair {
    fn operate(&mut self) -> Outcome<()>;

    /// Does what the other member may wait for.
    fn progress(&mut self) {}

    fn counters(self: Box<Self>) -> Option<TcpCounters> {
        None
    }
}

/// The other member, apart from what is measured.
pub trait Other {
    /// Tells it that this member needs it no longer.
    fn tell(&mut self);

    /// Returns whether it has told the same, or is gone: its errors are reported there.
    fn has_told(&mut self) -> bool;
}

impl Other for (Sender<()>, Receiver<()>) {
    fn tell(&mut self) {
        let _ = self.0.send(());
    }

    fn has_told(&mut self) -> bool {
        self.1.try_recv() != Err(TryRecvError::Empty)
    }
}

impl Other for TcpStream {
    fn tell(&mut self) {
        let _ = send(&*self, &[1], SendFlags::NOSIGNAL);
    }

    fn has_told(&mut self) -> bool {
        let received = recv(&*self, &mut [0_u8; 1], RecvFlags::DONTWAIT);
        received.map(|_| ()) != Err(rustix::io::Errno::AGAIN)
    }
}

/// Runs so many operations, after some that are not counted.
pub fn measured(operations: u32, mut pair: Box<dyn Pair>, mut other: impl Other) -> Outcome<Seen> {
    for _ in 0..WARM_UP {
        pair.operate()?;
    }
    let (start, slept) = (Instant::now(), sleeps());
    for _ in 0..operations {
        pair.operate()?;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(operations);
    let sleeps = sleeps() - slept;
    other.tell();
    Wait::Yielding.until(|| {
        pair.progress();
        Ok(other.has_told())
    })?;
    Ok(Seen { us, sleeps, counters: pair.counters() })
}

/// Voluntary context switches of this thread.
fn sleeps() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// How members wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// As a team of the library does: a poll, then others may run.
    Yielding,
    /// One poll after another, as programs do that have a processor for each member.
    Spinning,
}

impl Wait {
    /// Polls until it is done. Errors: of polls, and a timeout.
    pub fn until(self, mut is_done: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
        let start = Instant::now();
        while !is_done()? {
            if start.elapsed() > TURN_TIMEOUT {
                return Err("the other member does not answer".into());
            }
            if self == Self::Yielding {
                thread::yield_now();
            }
        }
        Ok(())
    }
}
