//! The contract of [`transport::Transport`] with each member in its own process: they are killed during any operation, and
//! stopped.

use std::{thread, time::Duration};

use transport::{EndpointId, Transport};
use transport_contract::{Harness, Network, RemoteMember, connected_remotes, run_member};
use transport_shm::{Offer, ShmLink, ShmTransport};

use crate::common::{PATIENCE, SILENCE_TIMEOUT, settings, start};

type Remote = transport_contract::Remote<Member>;

/// A member in its process.
struct Member {
    transport: ShmTransport,
    offer: Option<Offer>,
}

impl RemoteMember for Member {
    type Transport = ShmTransport;

    fn start(_: &[u8]) -> Self {
        Self { transport: start(settings()), offer: None }
    }

    fn transport(&mut self) -> &mut ShmTransport {
        &mut self.transport
    }

    fn listen(&mut self) -> Vec<u8> {
        let offer = self.offer.insert(Offer::make().expect("a name is free"));
        offer.bytes().to_vec()
    }

    fn dial(&mut self, offer: &[u8]) -> (EndpointId, Vec<u8>) {
        let link = ShmLink::connect(offer).expect("it listens");
        (self.transport.open(link).expect("it opens"), Vec::new())
    }

    fn accept(&mut self, _: &[u8]) -> EndpointId {
        let offer = self.offer.take().expect("it was told to listen");
        self.transport
            .open(offer.accept(PATIENCE).expect("a peer has connected"))
            .expect("it opens")
    }
}

struct Processes;

impl Harness for Processes {
    type Transport = Remote;

    fn network(&mut self, members: usize) -> Network<Remote> {
        connected_remotes(&vec![Vec::new(); members])
    }

    fn kill(&mut self, network: &mut Network<Remote>, index: usize) {
        if let Some(mut remote) = network.members[index].take() {
            remote.leave_alone();
            thread::sleep(Duration::from_micros(300));
            remote.kill();
        }
    }

    fn silence(&mut self, network: &mut Network<Remote>, index: usize) -> Option<Duration> {
        network.members[index].as_mut()?.stop();
        Some(SILENCE_TIMEOUT)
    }
}

/// Not a test: the main function of a member's process.
#[test]
fn member() {
    run_member::<Member>();
}

mod shm {
    transport_contract::contract_tests!(super::Processes);
}
