//! Settings of the transport.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use crate::link::STREAMS_MAX;

/// The longest segment that may be sent or is accepted, whatever is configured: 16 MiB.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;

/// The default of [`TcpSettings::segment_bytes`].
pub(crate) const SEGMENT_BYTES: usize = 64 << 10;

/// The longest timeout, one year: any clock can add it. Longer values are reduced to it.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The least [`TcpSettings::rate_max`], in bytes per second: 1 Mbit/s. With less, endpoints that wait
/// for each other could seem dead.
pub const RATE_MAX_LEAST: u64 = 125_000;

/// The shortest [`TcpSettings::silence_timeout`]: heartbeats are then 1 ms apart.
const SILENCE_TIMEOUT_MIN: Duration = Duration::from_millis(4);

/// The settings of TCP connections between members. The defaults rarely need to be changed.
///
/// ```
/// use std::time::Duration;
/// use transport_tcp::TcpSettings;
///
/// let settings = TcpSettings::default().silence_timeout(Duration::from_secs(20));
/// # assert!(settings.check().is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TcpSettings {
    /// A neighbour from which nothing was received for this long is considered lost
    /// ([`transport::Cause::Silent`]); with protection, no whole record of data, which has up to
    /// 16 KiB, and less than 1 KiB of one. Heartbeats are sent at a quarter of this interval. The
    /// values of two members may differ by a factor of at most 2, or heartbeats arrive too late. 4
    /// ms or more.
    pub silence_timeout: Duration,
    /// How long the ordered close of a connection may write and wait for the peer.
    pub drain_timeout: Duration,
    /// How long a connection that groups share stays open without groups. May differ between members.
    pub idle_timeout: Duration,
    /// Length in bytes of the segments into which blocks are cut; control words are sent between
    /// segments. Smaller segments delay credits less; with larger ones the receiver makes fewer
    /// system calls (one for a few segments), but beyond the default of 64 KiB no gain can be measured. 1
    /// to [`SEGMENT_BYTES_MAX`]; may differ between members.
    pub segment_bytes: usize,
    /// How many bytes the socket accepts beyond those that TCP can send at once
    /// (`TCP_NOTSENT_LOWAT`). `None` uses the system's default, with which credits may wait behind
    /// megabytes. The default, 128 KiB, is 1 ms at 1 Gbit/s and 40 us at 25 Gbit/s; on faster links
    /// a larger value covers the time in which a thread wakes up.
    pub notsent_lowat_bytes: Option<u32>,
    /// Congestion control by name (`TCP_CONGESTION`); `None` for the system's default.
    pub congestion: Option<String>,
    /// `SO_SNDBUF` in bytes; with `None` (recommended) the system tunes it.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF` in bytes; with `None` (recommended) the system tunes it. The window scale of a
    /// connected socket is fixed, so a buffer that should exceed it must be set before connecting.
    pub receive_buffer_bytes: Option<usize>,
    /// The most bytes per second that all endpoints of the transport together send, and the most
    /// that they receive, headers included; `None` for no limit. [`RATE_MAX_LEAST`] or more.
    ///
    /// A burst of 10 ms at this rate, but at least 128 KiB, passes at once. Blocks and writes wait for
    /// tokens before they are written, endpoint by endpoint in turn; control words and heartbeats are
    /// written at once, but counted. Above the limit nothing is read, so peers that send more find the
    /// socket full.
    pub rate_max: Option<u64>,
    /// Whether blocks between processes of one machine are copied out of the sender's memory instead of
    /// being sent through the socket: true by default. Used where the addresses of both ends are the
    /// same or loopback, both processes belong to one user, who is not root, the reader has no `CAP_SYS_PTRACE`, the system
    /// lets them read each other's memory, and there is no [`TcpSettings::rate_max`]; otherwise blocks are sent through the socket.
    /// May differ between members. docs/decisions/one-machine.md.
    ///
    /// With false, members of groups and teams do not share memory either.
    pub direct_copies: bool,
    /// How many threads move bytes, the one that polls included: 1 to 8. Each serves its share of the streams of every link, so links
    /// need as many streams. With a [`TcpSettings::rate_max`] one thread does everything. `None`, the default, is one thread for a
    /// transport; a context has one for each of its streams, but at most 4, and at most half as many as there are processors.
    /// May differ between members.
    pub threads: Option<u8>,
}

/// A setting is out of range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} is {value}; use {allowed}")]
pub struct OutOfRange {
    /// The setting's name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The values that may be used.
    pub allowed: String,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            silence_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(60),
            segment_bytes: SEGMENT_BYTES,
            notsent_lowat_bytes: Some(128 << 10),
            congestion: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            rate_max: None,
            direct_copies: true,
            threads: None,
        }
    }
}

impl TcpSettings {
    /// Sets [`TcpSettings::silence_timeout`].
    #[must_use]
    pub fn silence_timeout(mut self, timeout: Duration) -> Self {
        self.silence_timeout = timeout;
        self
    }

    /// Sets [`TcpSettings::drain_timeout`].
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Sets [`TcpSettings::idle_timeout`].
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets [`TcpSettings::segment_bytes`].
    #[must_use]
    pub fn segment_bytes(mut self, bytes: usize) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets [`TcpSettings::notsent_lowat_bytes`].
    #[must_use]
    pub fn notsent_lowat_bytes(mut self, bytes: Option<u32>) -> Self {
        self.notsent_lowat_bytes = bytes;
        self
    }

    /// Sets [`TcpSettings::congestion`].
    #[must_use]
    pub fn congestion(mut self, name: Option<String>) -> Self {
        self.congestion = name;
        self
    }

    /// Sets [`TcpSettings::send_buffer_bytes`].
    #[must_use]
    pub fn send_buffer_bytes(mut self, bytes: Option<usize>) -> Self {
        self.send_buffer_bytes = bytes;
        self
    }

    /// Sets [`TcpSettings::receive_buffer_bytes`].
    #[must_use]
    pub fn receive_buffer_bytes(mut self, bytes: Option<usize>) -> Self {
        self.receive_buffer_bytes = bytes;
        self
    }

    /// Sets [`TcpSettings::rate_max`].
    #[must_use]
    pub fn rate_max(mut self, bytes_per_second: Option<u64>) -> Self {
        self.rate_max = bytes_per_second;
        self
    }

    /// Sets [`TcpSettings::direct_copies`].
    #[must_use]
    pub fn direct_copies(mut self, allowed: bool) -> Self {
        self.direct_copies = allowed;
        self
    }

    /// Sets [`TcpSettings::threads`].
    #[must_use]
    pub fn threads(mut self, count: Option<u8>) -> Self {
        self.threads = count;
        self
    }

    /// Checks that all values are in range.
    ///
    /// Errors: the first that is not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        if self.silence_timeout < SILENCE_TIMEOUT_MIN {
            let value = format!("{} ms", self.silence_timeout.as_secs_f64() * 1e3);
            return Err(OutOfRange {
                name: "tcp.silence_timeout",
                value,
                allowed: "4 ms or more".into(),
            });
        }
        if !(1..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            let (value, allowed) =
                (self.segment_bytes.to_string(), format!("1 to {SEGMENT_BYTES_MAX}"));
            return Err(OutOfRange { name: "tcp.segment_bytes", value, allowed });
        }
        if let Some(rate) = self.rate_max.filter(|&rate| rate < RATE_MAX_LEAST) {
            return Err(OutOfRange {
                name: "rate_max",
                value: format!("{rate} bytes per second"),
                allowed: format!("{RATE_MAX_LEAST} (1 Mbit/s) or more"),
            });
        }
        if let Some(threads) = self.threads.filter(|&it| !(1..=STREAMS_MAX).contains(&it.into())) {
            let (value, allowed) = (threads.to_string(), format!("1 to {STREAMS_MAX}"));
            return Err(OutOfRange { name: "tcp.threads", value, allowed });
        }
        Ok(())
    }

    /// Prepares a connected stream for the transport. Errors name the option.
    pub(crate) fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        named("O_NONBLOCK", stream.set_nonblocking(true))?;
        self.set_options(stream)
    }

    /// Tries the options on a socket that is not connected. Errors name the option that this system refuses.
    pub(crate) fn try_options(&self) -> io::Result<()> {
        use socket2::{Domain, Protocol, Socket, Type};
        self.set_options(&Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?)
    }

    /// Sets the options of these settings on a stream, as [`transport::Transport::open`] does: to know before whether
    /// that will fail. Errors name the option.
    pub fn set_options(&self, stream: &impl AsFd) -> io::Result<()> {
        let socket = socket2::SockRef::from(stream);
        named("TCP_NODELAY", socket.set_tcp_nodelay(true))?;
        if let Some(bytes) = self.notsent_lowat_bytes {
            named("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(bytes))?;
        }
        if let Some(name) = &self.congestion {
            named("TCP_CONGESTION", socket.set_tcp_congestion(name.as_bytes()))?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            named("SO_SNDBUF", socket.set_send_buffer_size(bytes))?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            named("SO_RCVBUF", socket.set_recv_buffer_size(bytes))?;
        }
        Ok(())
    }

    /// Bounds how long the system keeps the unsent bytes of a stream that is closed next, for a peer that
    /// does not take them.
    ///
    /// Not before: while the socket is open heartbeats detect a dead peer, and a live one may keep its
    /// window closed for longer because of its own [`TcpSettings::rate_max`], which this end does not know.
    pub(crate) fn bound_unsent(&self, socket: &impl AsFd) {
        let timeout = self.silence_after().min(Duration::from_millis(u64::from(u32::MAX >> 1)));
        // Without it the system's own limits on closed sockets hold.
        let _ = socket2::SockRef::from(socket).set_tcp_user_timeout(Some(timeout));
    }

    /// Returns whether blocks of this stream may be copied directly, as far as its addresses tell.
    pub(crate) fn copies_directly(&self, stream: &TcpStream) -> bool {
        let addresses = || Some((stream.local_addr().ok()?, stream.peer_addr().ok()?));
        addresses().is_some_and(|(local, peer)| self.may_bypass(local, peer))
    }

    /// Returns whether blocks on a connection between these addresses may take another way than the socket: both ends are on this
    /// machine, and these settings allow it.
    pub fn may_bypass(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        self.allows_bypass() && is_one_machine(local, peer)
    }

    /// Returns whether blocks between processes of one machine may take another way than the socket.
    pub fn allows_bypass(&self) -> bool {
        self.direct_copies && self.rate_max.is_none()
    }

    /// Returns how many threads move bytes in a transport.
    pub(crate) fn threads_used(&self) -> usize {
        self.threads.filter(|_| self.rate_max.is_none()).unwrap_or(1).into()
    }

    pub(crate) fn silence_after(&self) -> Duration {
        self.silence_timeout.min(TIMEOUT_MAX)
    }

    pub(crate) fn idle_after(&self) -> Duration {
        self.idle_timeout.min(TIMEOUT_MAX)
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.silence_after() / 4
    }

    pub(crate) fn drain_for(&self) -> Duration {
        self.drain_timeout.min(TIMEOUT_MAX)
    }
}

/// Returns whether what is sent on a connection between these addresses stays on this machine.
fn is_one_machine(local: SocketAddr, peer: SocketAddr) -> bool {
    let (local, peer): (IpAddr, IpAddr) = (local.ip().to_canonical(), peer.ip().to_canonical());
    local == peer || (local.is_loopback() && peer.is_loopback())
}

fn named<T>(option: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{option}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_what_stays_on_this_machine() {
        let stays =
            |local: &str, peer: &str| is_one_machine(local.parse().unwrap(), peer.parse().unwrap());
        assert!(stays("127.0.0.1:1", "127.0.0.1:2") && stays("127.0.0.1:1", "127.0.0.2:2"));
        assert!(stays("10.0.0.1:1", "10.0.0.1:2") && stays("[fd00::1]:1", "[fd00::1]:2"));
        assert!(stays("[::1]:1", "[::1]:2") && stays("[::ffff:10.0.0.1]:1", "10.0.0.1:2"));
        // As hosts of a lab have.
        assert!(!stays("10.0.0.1:1", "10.0.0.2:2") && !stays("127.0.0.1:1", "10.0.0.2:2"));
        assert!(!stays("[fd00::1]:1", "[fd00::2]:2"));
    }

    #[test]
    fn limits_are_checked_on_both_sides() {
        let with = |bytes| TcpSettings::default().segment_bytes(bytes).check();
        assert!(with(0).is_err() && with(1).is_ok());
        assert!(with(SEGMENT_BYTES_MAX).is_ok() && with(SEGMENT_BYTES_MAX + 1).is_err());
        let with = |ms| TcpSettings::default().silence_timeout(Duration::from_millis(ms)).check();
        assert_eq!(
            with(3).unwrap_err().to_string(),
            "tcp.silence_timeout is 3 ms; use 4 ms or more"
        );
        assert!(with(4).is_ok());
        let with = |rate| TcpSettings::default().rate_max(rate).check();
        assert_eq!(
            with(Some(RATE_MAX_LEAST - 1)).unwrap_err().to_string(),
            "rate_max is 124999 bytes per second; use 125000 (1 Mbit/s) or more"
        );
        assert!(with(Some(RATE_MAX_LEAST)).is_ok() && with(None).is_ok());
    }
}
