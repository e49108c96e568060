//! Counters of a transport, for benchmarks and for diagnosing slow transfers.

use std::ops::Add;

/// Running totals of one [`crate::TcpTransport`] since it was made; plain additions, always
/// enabled.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct TcpCounters {
    /// Reads from a socket: system calls without protection.
    pub read_calls: u64,
    /// Writes to a socket: system calls without protection.
    pub write_calls: u64,
    /// Reads of an empty socket, and writes to a full one.
    pub fruitless_calls: u64,
    /// Bytes read from sockets, headers and records included.
    pub bytes_in: u64,
    /// Bytes written to sockets, headers and records included.
    pub bytes_out: u64,
    /// System calls that copied from the memory of a peer on this machine.
    pub copies: u64,
    /// Bytes copied from the memory of peers on this machine.
    pub bytes_copied: u64,
    /// Streams whose peer's memory is read.
    pub direct_streams_in: u64,
    /// Streams whose peer reads this end's memory.
    pub direct_streams_out: u64,
    /// Streams to this machine whose peer's memory cannot be read.
    pub refused_introductions: u64,
    /// Calls of `poll`, and turns of other threads.
    pub polls: u64,
    /// System calls that polled for readiness, with or without waiting; a `poll` makes any number.
    pub waits: u64,
    /// Waits that were ended by a waker; threads wake each other by them, too.
    pub wakeups: u64,
    /// How often an endpoint had to wait for the limit ([`crate::TcpSettings::rate_max`]).
    pub limit_waits: u64,
    /// Heartbeats written.
    pub heartbeats: u64,
    /// How often something was parsed in a later turn than it was read in.
    pub(crate) late_parses: u64,
}

impl TcpCounters {
    /// Returns a number that changes whenever bytes of blocks may have arrived.
    pub fn arrivals(&self) -> u64 {
        self.bytes_in + self.bytes_copied + self.late_parses
    }
}

/// The counters of two threads together.
impl Add for TcpCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read_calls: self.read_calls + other.read_calls,
            write_calls: self.write_calls + other.write_calls,
            fruitless_calls: self.fruitless_calls + other.fruitless_calls,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
            copies: self.copies + other.copies,
            bytes_copied: self.bytes_copied + other.bytes_copied,
            direct_streams_in: self.direct_streams_in + other.direct_streams_in,
            direct_streams_out: self.direct_streams_out + other.direct_streams_out,
            refused_introductions: self.refused_introductions + other.refused_introductions,
            polls: self.polls + other.polls,
            waits: self.waits + other.waits,
            wakeups: self.wakeups + other.wakeups,
            limit_waits: self.limit_waits + other.limit_waits,
            heartbeats: self.heartbeats + other.heartbeats,
            late_parses: self.late_parses + other.late_parses,
        }
    }
}
