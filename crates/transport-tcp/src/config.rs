//! What can be tuned, and what an endpoint is made of.

use std::{fmt, io, net::TcpStream, time::Duration};

use zeroize::Zeroizing;

use crate::record::{Opener, Sealer};

/// The most streams that one endpoint can have.
pub const STREAMS_MAX: usize = 8;

/// The longest segment that may be sent or is accepted, whatever is configured: 16 MiB.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;

/// Longer times mean this one: a year, which any clock can add.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// How a [`crate::TcpTransport`] behaves. The defaults are meant to be left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// An endpoint of whose peer nothing was heard for this long breaks with
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

/// Connected and authenticated TCP streams to one peer, not yet used by either side for blocks.
///
/// Both sides must give the same number of streams in the same order. The transport owns them from
/// [`transport::Transport::open`] on and closes them when the endpoint ends.
#[derive(Debug)]
pub struct TcpLink {
    pub(crate) streams: Vec<(TcpStream, Option<StreamKeys>)>,
}

/// What protects one stream: nobody who does not have these keys can change, repeat or leave out
/// what is sent on it unnoticed (an endpoint to which that happens breaks with
/// [`transport::Cause::Corrupt`]). Wiped from memory when dropped.
pub struct StreamKeys {
    sending: Zeroizing<[u8; 32]>,
    receiving: Zeroizing<[u8; 32]>,
    encrypted: bool,
}

impl StreamKeys {
    /// Keys of which each protects one direction of one stream, and is never used again; the peer
    /// has them the other way round, with the same `encrypted`: whether nobody else can read what
    /// is sent, too.
    pub fn new(sending: [u8; 32], receiving: [u8; 32], encrypted: bool) -> Self {
        let (sending, receiving) = (Zeroizing::new(sending), Zeroizing::new(receiving));
        Self { sending, receiving, encrypted }
    }

    pub(crate) fn into_records(self) -> (Opener, Sealer) {
        let encrypted = self.encrypted;
        (Opener::new(self.receiving, encrypted), Sealer::new(self.sending, encrypted))
    }
}

impl fmt::Debug for StreamKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamKeys(..)")
    }
}

/// Why streams do not make a link.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// None at all, or too many.
    #[error("a link has 1 to 8 streams, not {0}")]
    StreamCount(usize),
}

impl TcpLink {
    /// A link of 1 to [`STREAMS_MAX`] streams. One is enough unless a single TCP stream cannot
    /// fill the path (many lossy or policed long paths, some virtual networks).
    ///
    /// Nothing protects it: whoever is on the way can change what is sent.
    pub fn new(streams: Vec<TcpStream>) -> Result<Self, LinkError> {
        Self::with_keys(streams.into_iter().map(|stream| (stream, None)).collect())
    }

    /// As [`TcpLink::new`], with keys for each stream.
    pub fn protected(streams: Vec<(TcpStream, StreamKeys)>) -> Result<Self, LinkError> {
        Self::with_keys(streams.into_iter().map(|(stream, keys)| (stream, Some(keys))).collect())
    }

    fn with_keys(streams: Vec<(TcpStream, Option<StreamKeys>)>) -> Result<Self, LinkError> {
        if (1..=STREAMS_MAX).contains(&streams.len()) {
            Ok(Self { streams })
        } else {
            Err(LinkError::StreamCount(streams.len()))
        }
    }
}

impl From<TcpStream> for TcpLink {
    fn from(stream: TcpStream) -> Self {
        Self { streams: vec![(stream, None)] }
    }
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
        assert_eq!(TcpLink::new(vec![]).unwrap_err(), LinkError::StreamCount(0));
    }
}
