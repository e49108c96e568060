//! The contract of [`transport::Transport`] for links that use TCP for everything, beside a group
//! and without one. The suite cannot test blocks through switches, which have one direction;
//! `crates/rdmc/tests` does.

use std::{net::TcpStream, time::Duration};

use transport::Transport;
use transport_contract::{Harness, Network};
use transport_switch::{SwitchLink, SwitchTransport};
use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

use crate::common::{enter_network, group_end, lifeline};

const SILENCE_MS: u64 = 3_000;

/// Longer than any clause takes: the test's end of a group's lifeline sends no heartbeats.
const SILENCE_MS_WITH_GROUP: u64 = 120_000;

struct Loopback {
    /// If each member has a group that switches copy: the other ends of their lifelines.
    groups: Option<Vec<TcpStream>>,
}

impl Harness for Loopback {
    type Transport = SwitchTransport;

    fn network(&mut self, members: usize) -> Network<SwitchTransport> {
        let silence_ms = if self.groups.is_some() { SILENCE_MS_WITH_GROUP } else { SILENCE_MS };
        let settings = TcpSettings::default()
            .silence_timeout(Duration::from_millis(silence_ms))
            .drain_timeout(Duration::from_secs(1));
        let transport = |_| SwitchTransport::over(TcpTransport::new(settings.clone()).unwrap());
        let mut transports: Vec<SwitchTransport> = (0..members).map(transport).collect();
        for transport in &mut transports {
            let Some(peers) = &mut self.groups else { break };
            let (link, peer) = lifeline();
            transport.open(SwitchLink::of_group(link, group_end())).unwrap();
            peers.push(peer);
        }
        Network::connected(transports, |_, _| {
            let (one, other) = lifeline();
            (SwitchLink::plain(one), SwitchLink::plain(TcpLink::from(other)))
        })
    }

    fn silence(&mut self, _: &mut Network<SwitchTransport>, _: usize) -> Option<Duration> {
        // One second more for a machine that is busy with other tests.
        self.groups.is_none().then_some(Duration::from_millis(SILENCE_MS + 1_000))
    }
}

mod without_groups {
    transport_contract::contract_tests!(super::Loopback { groups: None });
}

mod beside_a_group {
    transport_contract::contract_tests!({
        if !super::enter_network() {
            return;
        }
        super::Loopback { groups: Some(Vec::new()) }
    });
}
