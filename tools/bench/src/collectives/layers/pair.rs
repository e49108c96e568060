//! One of two members that exchange messages, and its measurement.

use std::{
    fs,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use transport::Transport;
use transport_fabric::FabricTransport;
use transport_shm::ShmTransport;
use transport_tcp::TcpTransport;

use crate::outcome::Outcome;

/// What a write of 4 bytes is on a socket: the transport's frame, the contents and the header of a slot.
pub const FRAME_BYTES: usize = 84;
/// Operations before those that are counted.
pub const WARM_UP: u32 = 200;
/// For one operation, and for one turn of a layer.
pub const TIMEOUT: Duration = Duration::from_secs(90);

/// What [`Counted::counts`] counts, as columns of a table.
pub const COUNTS: [&str; 5] =
    ["writes", "reads", "reads_or_writes_in_vain", "polls_for_readiness", "bytes_out"];

/// A transport that may count its system calls.
pub trait Counted: Transport {
    /// As many as [`COUNTS`], or none.
    fn counts(&self) -> Vec<u64>;
}

impl Counted for TcpTransport {
    fn counts(&self) -> Vec<u64> {
        let it = self.counters();
        vec![it.write_calls, it.read_calls, it.fruitless_calls, it.waits, it.bytes_out]
    }
}

impl Counted for ShmTransport {
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }
}

impl Counted for FabricTransport {
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// What member 0 saw of one run.
#[derive(Clone, Debug)]
pub struct Seen {
    pub us: f64,
    /// How often the thread has slept in the system while it was measured.
    pub sleeps: u64,
    /// Of the transport, from its beginning; see [`COUNTS`].
    pub counts: Vec<u64>,
}

/// One operation, and what the transport has counted.
pub trait Pair {
    fn operate(&mut self) -> Outcome<()>;

    /// Does what the other member may wait for.
    fn progress(&mut self) {}

    fn counts(self: Box<Self>) -> Vec<u64> {
        Vec::new()
    }
}

/// Runs the operations after some that are not counted. `other` leads to the other member, apart from what is measured:
/// each serves the other until both have finished.
pub fn measured(operations: u32, mut pair: Box<dyn Pair>, other: &TcpStream) -> Outcome<Seen> {
    for _ in 0..WARM_UP {
        pair.operate()?;
    }
    let (start, slept) = (Instant::now(), sleeps());
    for _ in 0..operations {
        pair.operate()?;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(operations);
    let sleeps = sleeps() - slept;
    // A member that is gone has finished; its errors are reported there.
    let _ = send(other, &[1], SendFlags::NOSIGNAL);
    Wait::Yielding.until(|| {
        pair.progress();
        let received = recv(other, &mut [0_u8; 1], RecvFlags::DONTWAIT);
        Ok(received.map(|_| ()) != Err(Errno::AGAIN))
    })?;
    Ok(Seen { us, sleeps, counts: pair.counts() })
}

/// Voluntary context switches of this thread.
pub fn sleeps() -> u64 {
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
            if start.elapsed() > TIMEOUT {
                return Err("the other member does not answer".into());
            }
            if self == Self::Yielding {
                thread::yield_now();
            }
        }
        Ok(())
    }
}
