//! The contract of [`transport::Transport`] over loopback, with every kind of link.

use std::time::Duration;

use transport_contract::{Harness, Network};
use transport_tcp::{TcpConfig, TcpTransport};

use crate::common::{self, Protection, protected_pair};

/// Transports on this machine, each pair connected by `streams` streams.
struct Loopback {
    address: &'static str,
    streams: usize,
    config: TcpConfig,
    protection: Protection,
}

impl Harness for Loopback {
    type Transport = TcpTransport;

    fn network(&mut self, members: usize) -> Network<TcpTransport> {
        let transports = (0..members).map(|_| common::transport(&self.config)).collect();
        Network::connected(transports, |_, _| {
            protected_pair(self.address, self.streams, self.protection).unwrap()
        })
    }

    /// Not polling is enough: its sockets stay open, and nothing is sent on them.
    fn silence(&mut self, _: &mut Network<TcpTransport>, _: usize) -> Option<Duration> {
        // One second more for a machine that is busy with other tests.
        Some(Duration::from_millis(self.config.silence_timeout_ms + 1_000))
    }
}

impl Loopback {
    fn new(address: &'static str, streams: usize, config: TcpConfig) -> Self {
        let config = TcpConfig {
            // Short enough for the clause about silence, long enough for a busy machine.
            silence_timeout_ms: 3_000,
            drain_timeout_ms: 1_000,
            ..config
        };
        Self { address, streams, config, protection: Protection::None }
    }

    fn protected(streams: usize, config: TcpConfig, protection: Protection) -> Self {
        Self { protection, ..Self::new("127.0.0.1", streams, config) }
    }
}

mod one_stream {
    transport_contract::contract_tests!(super::Loopback::new("127.0.0.1", 1, Default::default()));
}

mod three_streams {
    transport_contract::contract_tests!(super::Loopback::new("127.0.0.1", 3, Default::default()));
}

/// With these lengths nearly every system call ends inside a frame.
mod small_segments_and_buffers {
    fn config() -> super::TcpConfig {
        super::TcpConfig {
            segment_bytes: 997,
            send_buffer_bytes: Some(1),
            notsent_lowat_bytes: Some(1),
            ..Default::default()
        }
    }

    transport_contract::contract_tests!(super::Loopback::new("127.0.0.1", 2, config()));
}

mod ipv6 {
    /// Returns the IPv6 loopback address, or IPv4 with a message if there is none.
    fn address() -> &'static str {
        if let Err(error) = super::common::stream_pair("::1") {
            eprintln!("SKIPPED: IPv4 instead, this machine has no IPv6 loopback: {error}");
            return "127.0.0.1";
        }
        "::1"
    }

    transport_contract::contract_tests!(super::Loopback::new(address(), 1, Default::default()));
}

mod authenticated {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback::protected(
        1,
        Default::default(),
        Protection::Authenticated
    ));
}

mod encrypted_in_small_pieces {
    use super::{Loopback, Protection, TcpConfig};

    fn config() -> TcpConfig {
        TcpConfig { segment_bytes: 997, send_buffer_bytes: Some(1), ..Default::default() }
    }

    transport_contract::contract_tests!(Loopback::protected(2, config(), Protection::Encrypted));
}
