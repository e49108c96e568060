//! What can be tuned of TCP.

use std::time::Duration;

use transport_tcp::{SEGMENT_BYTES_MAX, TcpConfig};

use crate::Error;

/// How connections between members behave. The defaults are meant to be left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TcpSettings {
    /// A neighbour of which nothing was heard for this long is lost
    /// ([`crate::FailureKind::Silent`]). Heartbeats go out every quarter of it. Others may use a
    /// value that is up to twice as large. 4 ms or more.
    pub silence_timeout: Duration,
    /// How long the ordered close of a connection may go on writing and waiting for the peer.
    pub drain_timeout: Duration,
    /// Blocks are cut into segments of this length, and control words overtake between segments.
    /// Smaller: credits wait less. Larger: fewer system calls at the receiver. 1 byte to 16 MiB;
    /// members need not agree.
    pub segment_bytes: usize,
    /// Bytes that the socket takes beyond those that TCP can send at once (`TCP_NOTSENT_LOWAT`);
    /// `None` leaves it to the system, which lets credits wait behind megabytes. The default,
    /// 128 KiB, is 1 ms at 1 Gbit/s and 40 us at 25 Gbit/s.
    pub notsent_lowat_bytes: Option<u32>,
    /// Congestion control by name (`TCP_CONGESTION`); `None` for the system's default.
    pub congestion: Option<String>,
    /// `SO_SNDBUF`; `None` (advised) lets the system tune it.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF`; `None` (advised) lets the system tune it.
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

    /// The same for the transport.
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
