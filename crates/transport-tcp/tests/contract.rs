//! The contract of [`transport::Transport`] over loopback, with every kind of link, through sockets, shared memory and by direct
//! copies.

use std::{cell::Cell, io, time::Duration};

use transport::Transport;
use transport_contract::{Harness, Network};
use transport_tcp::{SharedConnections, TcpLink, TcpSettings, TcpTransport};

use crate::common::{self, Protection, memory_pair, protected_pair};

/// Transports on this machine, each pair connected by `streams` streams.
struct Loopback {
    address: &'static str,
    streams: usize,
    settings: TcpSettings,
    protection: Protection,
    /// Bytes pass through shared memory with rings of this length.
    ring_bytes: Option<usize>,
    /// Blocks are copied out of the sender's memory.
    is_direct: bool,
    /// Whether the clause is the one about silence. In others nobody is silent, however long the machine lets ends wait.
    is_about_silence: Cell<bool>,
}

/// For members that may be found to be silent: short enough to wait for, long enough for a busy machine.
const SILENCE: Duration = Duration::from_secs(3);

/// Clauses in which a block stays in the middle while its sender is not polled: a copy needs no sender that is.
const STOPPED_SENDERS: [&str; 3] = [
    "a_block_is_sent_on_while_it_arrives",
    "a_block_that_does_not_go_on_delays_nothing_else",
    "a_block_whose_source_has_died_is_not_completed",
];

impl Harness for Loopback {
    type Transport = TcpTransport;

    fn network(&mut self, members: usize) -> Network<TcpTransport> {
        let transports = (0..members).map(|_| self.transport()).collect();
        let mut network = Network::connected(transports, |_, _| self.pair().unwrap());
        if self.is_direct {
            let mut transports: Vec<_> = network.members.iter_mut().flatten().collect();
            let streams = (self.streams * (members - 1)) as u64;
            let are_neighbours = common::become_neighbours(&mut transports, streams);
            assert!(are_neighbours, "this system does not let processes read each other's memory");
        }
        network
    }

    fn skip_reason(&self, clause: &str) -> Option<&'static str> {
        self.prepare(clause);
        if self.is_direct && common::is_root() {
            return Some("root reads nobody's memory: an ordinary user runs it");
        }
        let needs_sender = self.is_direct && STOPPED_SENDERS.contains(&clause);
        needs_sender.then_some("a copy goes on without its sender")
    }

    /// Not polling is enough: its sockets stay open, and nothing is sent on them.
    fn silence(&mut self, _: &mut Network<TcpTransport>, _: usize) -> Option<Duration> {
        // One second more for a machine that is busy with other tests.
        Some(SILENCE + Duration::from_secs(1))
    }
}

impl Loopback {
    fn new(address: &'static str, streams: usize, settings: TcpSettings) -> Self {
        let settings = settings.drain_timeout(Duration::from_secs(1)).direct_copies(false);
        Self {
            address,
            streams,
            settings,
            protection: Protection::None,
            ring_bytes: None,
            is_direct: false,
            is_about_silence: false.into(),
        }
    }

    /// Through shared memory.
    fn memory(ring_bytes: usize) -> Self {
        let ring_bytes = Some(ring_bytes);
        Self { ring_bytes, ..Self::new("127.0.0.1", 1, TcpSettings::default()) }
    }

    /// Returns the two ends of a link.
    fn pair(&self) -> io::Result<(TcpLink, TcpLink)> {
        match self.ring_bytes {
            Some(ring_bytes) => memory_pair(ring_bytes),
            None => protected_pair(self.address, self.streams, self.protection),
        }
    }

    /// Takes the clause for which networks are made next.
    fn prepare(&self, clause: &str) {
        self.is_about_silence.set(clause == "a_silent_member_is_reported");
    }

    fn transport(&self) -> TcpTransport {
        let silence = if self.is_about_silence.get() { SILENCE } else { Duration::from_secs(60) };
        common::transport(&self.settings.clone().silence_timeout(silence))
    }

    /// With several threads at each end.
    fn threads(threads: u8, streams: usize, protection: Protection) -> Self {
        Self::protected(streams, TcpSettings::default().threads(Some(threads)), protection)
    }

    fn direct(streams: usize, protection: Protection) -> Self {
        let loopback = Self::protected(streams, TcpSettings::default(), protection);
        let settings = loopback.settings.clone().direct_copies(true);
        Self { settings, is_direct: true, ..loopback }
    }

    fn protected(streams: usize, settings: TcpSettings, protection: Protection) -> Self {
        Self { protection, ..Self::new("127.0.0.1", streams, settings) }
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
    fn settings() -> super::TcpSettings {
        super::TcpSettings::default()
            .segment_bytes(997)
            .send_buffer_bytes(Some(1))
            .notsent_lowat_bytes(Some(1))
    }

    transport_contract::contract_tests!(super::Loopback::new("127.0.0.1", 2, settings()));
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

mod encrypted {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback::protected(
        1,
        Default::default(),
        Protection::Encrypted
    ));
}

mod encrypted_in_small_pieces {
    use super::{Loopback, Protection, TcpSettings};

    fn settings() -> TcpSettings {
        TcpSettings::default().segment_bytes(997).send_buffer_bytes(Some(1))
    }

    transport_contract::contract_tests!(Loopback::protected(2, settings(), Protection::Encrypted));
}

mod three_threads {
    transport_contract::contract_tests!(super::Loopback::threads(3, 4, super::Protection::None));
}

mod two_threads_and_encrypted {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback::threads(2, 3, Protection::Encrypted));
}

mod threads_in_small_pieces {
    use super::{Loopback, Protection, TcpSettings};

    fn settings() -> TcpSettings {
        TcpSettings::default()
            .threads(Some(2))
            .segment_bytes(997)
            .send_buffer_bytes(Some(1))
            .notsent_lowat_bytes(Some(1))
    }

    transport_contract::contract_tests!(Loopback::protected(2, settings(), Protection::Encrypted));
}

mod threads_and_direct {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback {
        settings: Loopback::direct(2, Protection::None).settings.threads(Some(2)),
        ..Loopback::direct(2, Protection::None)
    });
}

/// A limit that transfers reach: what they promise holds while blocks wait for tokens.
mod limited {
    fn settings() -> super::TcpSettings {
        super::TcpSettings::default().rate_max(Some(30_000_000))
    }

    transport_contract::contract_tests!(super::Loopback::new("127.0.0.1", 2, settings()));
}

mod limited_and_encrypted {
    use super::{Loopback, Protection, TcpSettings};

    fn settings() -> TcpSettings {
        TcpSettings::default().rate_max(Some(30_000_000))
    }

    transport_contract::contract_tests!(Loopback::protected(1, settings(), Protection::Encrypted));
}

mod memory {
    transport_contract::contract_tests!(super::Loopback::memory(1 << 18));
}

/// Nearly every read and write ends inside a frame.
mod little_memory {
    transport_contract::contract_tests!(super::Loopback::memory(16 << 10));
}

mod memory_and_direct {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback {
        ring_bytes: Some(1 << 18),
        ..Loopback::direct(1, Protection::None)
    });
}

mod direct {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback::direct(1, Protection::None));
}

mod direct_on_three_streams {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback::direct(3, Protection::None));
}

mod direct_and_encrypted {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback::direct(1, Protection::Encrypted));
}

/// While the first blocks are posted, the ends are still finding out about each other.
mod direct_from_the_start {
    use super::{Loopback, Protection};

    transport_contract::contract_tests!(Loopback {
        is_direct: false,
        ..Loopback::direct(1, Protection::None)
    });
}

/// Every pair connected by a channel of a shared connection, beside others that are reserved.
struct Channels(Loopback);

impl Harness for Channels {
    type Transport = TcpTransport;

    fn network(&mut self, members: usize) -> Network<TcpTransport> {
        let mut transports: Vec<_> = (0..members).map(|_| self.0.transport()).collect();
        let mut endpoints = vec![vec![None; members]; members];
        for (left, right) in (0..members).flat_map(|l| (l + 1..members).map(move |r| (l, r))) {
            let links = self.0.pair().unwrap();
            let ends = [(left, links.0), (right, links.1)].map(|(at, link)| {
                let transport = &mut transports[at];
                let shared = transport.share(link).unwrap();
                let channels = [3, 7, 9].map(|channel| transport.reserve(shared, channel).unwrap());
                let [_, of_test, _] = channels;
                transport.open(of_test).unwrap()
            });
            (endpoints[left][right], endpoints[right][left]) = (Some(ends[0]), Some(ends[1]));
        }
        if self.0.is_direct {
            let mut transports: Vec<_> = transports.iter_mut().collect();
            let streams = (self.0.streams * (members - 1)) as u64;
            assert!(common::become_neighbours(&mut transports, streams));
        }
        Network { members: transports.into_iter().map(Some).collect(), endpoints }
    }

    fn skip_reason(&self, clause: &str) -> Option<&'static str> {
        self.0.skip_reason(clause)
    }

    fn silence(&mut self, network: &mut Network<TcpTransport>, at: usize) -> Option<Duration> {
        self.0.silence(network, at)
    }
}

mod shared {
    use super::{Channels, Loopback, Protection};

    transport_contract::contract_tests!(Channels(Loopback::protected(
        1,
        Default::default(),
        Protection::Encrypted
    )));
}

mod shared_three_streams_in_small_pieces {
    use super::{Channels, Loopback, Protection, TcpSettings};

    fn settings() -> TcpSettings {
        TcpSettings::default().segment_bytes(997).send_buffer_bytes(Some(1))
    }

    transport_contract::contract_tests!(Channels(Loopback::protected(
        3,
        settings(),
        Protection::Encrypted
    )));
}

mod shared_with_threads {
    use super::{Channels, Loopback, Protection};

    transport_contract::contract_tests!(Channels(Loopback::threads(3, 4, Protection::Encrypted)));
}

mod shared_and_direct {
    use super::{Channels, Loopback, Protection};

    transport_contract::contract_tests!(Channels(Loopback::direct(1, Protection::Encrypted)));
}

mod shared_and_unprotected {
    use super::{Channels, Loopback};

    transport_contract::contract_tests!(Channels(Loopback::new(
        "127.0.0.1",
        1,
        Default::default()
    )));
}

mod shared_and_unprotected_three_streams_in_small_pieces {
    use super::{Channels, Loopback, TcpSettings};

    fn settings() -> TcpSettings {
        TcpSettings::default().segment_bytes(997).send_buffer_bytes(Some(1))
    }

    transport_contract::contract_tests!(Channels(Loopback::new("127.0.0.1", 3, settings())));
}

mod shared_direct_and_unprotected {
    use super::{Channels, Loopback, Protection};

    transport_contract::contract_tests!(Channels(Loopback::direct(1, Protection::None)));
}

mod shared_memory {
    use super::{Channels, Loopback};

    transport_contract::contract_tests!(Channels(Loopback::memory(1 << 18)));
}

mod little_shared_memory {
    use super::{Channels, Loopback};

    transport_contract::contract_tests!(Channels(Loopback::memory(16 << 10)));
}

mod shared_memory_and_direct {
    use super::{Channels, Loopback, Protection};

    transport_contract::contract_tests!(Channels(Loopback {
        ring_bytes: Some(1 << 18),
        ..Loopback::direct(1, Protection::None)
    }));
}
