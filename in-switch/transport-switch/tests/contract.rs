//! The contract of [`transport::Transport`] for links over which everything goes by TCP. What goes
//! through switches has one direction, so that the suite does not fit it: `crates/rdmc/tests`.

use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

use transport::{EndpointId, Transport};
use transport_contract::{Harness, Network};
use transport_switch::{SwitchLink, SwitchTransport};
use transport_tcp::{TcpConfig, TcpLink};

const SILENCE_MS: u64 = 3_000;

struct Loopback;

fn pair() -> [SwitchLink; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    [one, other].map(|stream| SwitchLink::plain(TcpLink::new(vec![stream]).unwrap()))
}

impl Harness for Loopback {
    type Transport = SwitchTransport;

    fn network(&mut self, members: usize) -> Network<SwitchTransport> {
        let config = TcpConfig {
            silence_timeout_ms: SILENCE_MS,
            drain_timeout_ms: 1_000,
            ..TcpConfig::default()
        };
        let mut transports: Vec<SwitchTransport> =
            (0..members).map(|_| SwitchTransport::new(config.clone()).unwrap()).collect();
        let mut endpoints: Vec<Vec<Option<EndpointId>>> = vec![vec![None; members]; members];
        for left in 0..members {
            for right in left + 1..members {
                let [one, other] = pair();
                endpoints[left][right] = Some(transports[left].open(one).unwrap());
                endpoints[right][left] = Some(transports[right].open(other).unwrap());
            }
        }
        Network { members: transports.into_iter().map(Some).collect(), endpoints }
    }

    fn kill(&mut self, network: &mut Network<SwitchTransport>, index: usize) {
        network.members[index] = None;
    }

    fn silence(&mut self, _: &mut Network<SwitchTransport>, _: usize) -> Option<Duration> {
        // A second more for a machine that is busy with other tests.
        Some(Duration::from_millis(SILENCE_MS + 1_000))
    }
}

transport_contract::contract_tests!(Loopback);
