//! Settings of the transport.

use std::{io, net::TcpStream, time::Duration};

/// The longest segment that may be sent or is accepted, whatever is configured: 16 MiB.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;

/// The longest timeout, one year: any clock can add it. Longer values are reduced to it.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// Settings of a [`crate::TcpTransport`]. The defaults are suitable for nearly all uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// An endpoint that has received nothing for this long breaks with
    /// [`transport::Cause::Silent`]. Heartbeats are sent every quarter of it. The peer must use a
    /// value that is at most twice as large, or its heartbeats arrive too late. At least 4.
    pub silence_timeout_ms: u64,
    /// The longest time for which an endpoint writes and waits for the peer after
    /// [`transport::Transport::close`].
    pub drain_timeout_ms: u64,
    /// Blocks are cut into segments of this length, and control words overtake blocks between
    /// segments. With shorter segments credits wait less; with longer ones the receiver makes fewer
    /// system calls (one per segment), but beyond the default of 64 KiB no gain can be measured. 1
    /// to [`SEGMENT_BYTES_MAX`]. The two sides may use different values.
    pub segment_bytes: usize,
    /// Bytes that the socket accepts beyond those that TCP can send at once (`TCP_NOTSENT_LOWAT`);
    /// with `None`, the system's default, credits wait behind megabytes. The default, 128 KiB, is 1
    /// ms at 1 Gbit/s and 40 us at 25 Gbit/s; on faster links a larger value covers the time in
    /// which a thread wakes up.
    pub notsent_lowat_bytes: Option<u32>,
    /// Congestion control by name (`TCP_CONGESTION`); `None` for the system's default.
    pub congestion: Option<String>,
    /// `SO_SNDBUF`; with `None` (recommended) the system tunes it.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF`; with `None` (recommended) the system tunes it. The window scale of a connected
    /// socket is fixed, so a buffer that should exceed it must be set before connecting.
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
    /// Checks that all values are in range. Errors name the value.
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

    /// Sets the options of this configuration on a connected stream. Errors name the option.
    pub(crate) fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        let socket = socket2::SockRef::from(stream);
        named("O_NONBLOCK", stream.set_nonblocking(true))?;
        named("TCP_NODELAY", stream.set_nodelay(true))?;
        // Heartbeats detect a dead peer while the socket is open. This option covers a socket that
        // was closed with unsent bytes. It is twice the time, so that an open endpoint always
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
