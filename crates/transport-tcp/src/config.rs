//! What can be tuned.

use std::{io, net::TcpStream, time::Duration};

/// The longest segment that may be sent or is accepted, whatever is configured: 16 MiB.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;

/// Longer times mean this one: a year, which any clock can add.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// How a [`crate::TcpTransport`] behaves. The defaults are meant to be left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// An endpoint that has received nothing for this long breaks with
    /// [`transport::Cause::Silent`]. Heartbeats go out every quarter of it. The peer must use a
    /// value that is at most twice as large, or else its heartbeats come too late. At least 4.
    pub silence_timeout_ms: u64,
    /// How long [`transport::Transport::close`] may go on writing and waiting for the peer.
    pub drain_timeout_ms: u64,
    /// Blocks are cut into segments of this length, and control words overtake between segments.
    /// Smaller: credits wait less. Larger: fewer system calls at the receiver, which makes one per
    /// segment; beyond the default of 64 KiB that gains nothing that can be measured. 1 to
    /// [`SEGMENT_BYTES_MAX`]. The two sides need not agree.
    pub segment_bytes: usize,
    /// Bytes that the socket takes beyond those that TCP can send at once (`TCP_NOTSENT_LOWAT`);
    /// `None` leaves it to the system, which lets credits wait behind megabytes. The default,
    /// 128 KiB, is 1 ms at 1 Gbit/s and 40 us at 25 Gbit/s; on faster links a larger value
    /// bridges the time that a thread takes to wake up.
    pub notsent_lowat_bytes: Option<u32>,
    /// Congestion control by name (`TCP_CONGESTION`); `None` for the system's default.
    pub congestion: Option<String>,
    /// `SO_SNDBUF`; `None` (advised) lets the system tune it.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF`; `None` (advised) lets the system tune it. A connected socket's window scale
    /// is already agreed, so a buffer that should exceed it must be set before connecting.
    pub receive_buffer_bytes: Option<usize>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            silence_timeout_ms: 5_000,
            drain_timeout_ms: 2_000,
            segment_bytes: 64 << 10,
            notsent_lowat_bytes: Some(128 << 10),
            congestion: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        }
    }
}

impl TcpConfig {
    /// Whether all values can be used. Errors name the value.
    pub(crate) fn check(&self) -> io::Result<()> {
        let refuse = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.silence_timeout_ms < 4 {
            return refuse("silence_timeout_ms must be at least 4");
        }
        if self.segment_bytes == 0 || self.segment_bytes > SEGMENT_BYTES_MAX {
            return refuse("segment_bytes must be 1 to 16 MiB");
        }
        Ok(())
    }

    /// Gives a connected stream the options of this configuration. Errors name the option.
    pub(crate) fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        let socket = socket2::SockRef::from(stream);
        named("O_NONBLOCK", stream.set_nonblocking(true))?;
        named("TCP_NODELAY", stream.set_nodelay(true))?;
        // Heartbeats find a dead peer. This option is for what they cannot reach: a socket that
        // was closed with bytes left to send. Twice the time, so that an open endpoint always
        // reports `Silent` and not the system's own timeout.
        let user_timeout = Duration::from_millis(
            self.silence_timeout_ms.saturating_mul(2).min(u64::from(u32::MAX >> 1)),
        );
        named("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(user_timeout)))?;
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

    pub(crate) fn silence_timeout(&self) -> Duration {
        Duration::from_millis(self.silence_timeout_ms.min(TIMEOUT_MS_MAX))
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.silence_timeout() / 4
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms.min(TIMEOUT_MS_MAX))
    }
}

fn named<T>(option: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{option}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_on_both_sides() {
        let with = |segment_bytes| TcpConfig { segment_bytes, ..Default::default() }.check();
        assert!(with(0).is_err() && with(1).is_ok());
        assert!(with(SEGMENT_BYTES_MAX).is_ok() && with(SEGMENT_BYTES_MAX + 1).is_err());
        let with = |silence_timeout_ms| TcpConfig { silence_timeout_ms, ..Default::default() };
        assert!(with(3).check().is_err() && with(4).check().is_ok());
    }
}
