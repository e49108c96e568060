//! The settings of TCP.

use std::time::Duration;

use transport_tcp::{SEGMENT_BYTES_MAX, TcpConfig};

use crate::Error;

/// The settings of TCP connections between members. The defaults rarely need to be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TcpSettings {
    /// A neighbour from which nothing was received for this long is considered lost
    /// ([`crate::FailureKind::Silent`]). Heartbeats are sent at a quarter of this interval. The
    /// values of two members may differ by a factor of at most 2. 4 ms or more.
    pub silence_timeout: Duration,
    /// How long the ordered close of a connection may write and wait for the peer.
    pub drain_timeout: Duration,
    /// Length of the segments into which blocks are cut; control words are sent between segments.
    /// Smaller segments delay credits less; larger ones need fewer system calls at the receiver. 1
    /// byte to 16 MiB; may differ between members.
    pub segment_bytes: usize,
    /// How many bytes the socket accepts beyond those that TCP can send at once
    /// (`TCP_NOTSENT_LOWAT`). `None` uses the system's default, with which credits may wait behind
    /// megabytes. The default, 128 KiB, is 1 ms at 1 Gbit/s and 40 us at 25 Gbit/s.
    pub notsent_lowat_bytes: Option<u32>,
    /// Congestion control by name (`TCP_CONGESTION`); `None` for the system's default.
    pub congestion: Option<String>,
    /// `SO_SNDBUF` in bytes; with `None` (recommended) the system tunes it.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF` in bytes; with `None` (recommended) the system tunes it.
    pub receive_buffer_bytes: Option<usize>,
}

impl Default for TcpSettings {
    fn default() -> Self {
        let TcpConfig {
            silence_timeout_ms,
            drain_timeout_ms,
            segment_bytes,
            notsent_lowat_bytes,
            congestion,
            send_buffer_bytes,
            receive_buffer_bytes,
        } = TcpConfig::default();
        Self {
            silence_timeout: Duration::from_millis(silence_timeout_ms),
            drain_timeout: Duration::from_millis(drain_timeout_ms),
            segment_bytes,
            notsent_lowat_bytes,
            congestion,
            send_buffer_bytes,
            receive_buffer_bytes,
        }
    }
}

impl TcpSettings {
    /// Errors: a setting is out of range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.silence_timeout < Duration::from_millis(4) {
            let value = format!("{} ms", self.silence_timeout.as_secs_f64() * 1e3);
            return Err(Error::setting("tcp.silence_timeout", value, "4 ms or more"));
        }
        if !(1..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            let allowed = format!("1 to {SEGMENT_BYTES_MAX}");
            return Err(Error::setting("tcp.segment_bytes", self.segment_bytes, allowed));
        }
        Ok(())
    }

    /// Returns the transport's form of these settings.
    pub(crate) fn config(&self) -> TcpConfig {
        TcpConfig {
            silence_timeout_ms: session::millis(self.silence_timeout),
            drain_timeout_ms: session::millis(self.drain_timeout),
            segment_bytes: self.segment_bytes,
            notsent_lowat_bytes: self.notsent_lowat_bytes,
            congestion: self.congestion.clone(),
            send_buffer_bytes: self.send_buffer_bytes,
            receive_buffer_bytes: self.receive_buffer_bytes,
        }
    }
}
