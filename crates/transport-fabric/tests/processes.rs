//! The contract of [`transport::Transport`] with each member in its own process: for `shm`, which
//! connects nothing else, and for members that are killed or stopped as hosts are.
//!
//! Environment: as for the tests of one process (`contract.rs`).

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    thread,
    time::Duration,
};

use transport::{EndpointId, Transport};
use transport_contract::{Harness, Network, RemoteMember, connected_remotes, run_member};
use transport_fabric::{FabricLink, FabricTransport, Offer, Role};

use crate::common::{self, Place};

type Remote = transport_contract::Remote<Member>;

/// A member in its process.
struct Member {
    transport: FabricTransport,
    listening: Option<(Offer, TcpListener)>,
}

impl Member {
    fn open(&mut self, stream: TcpStream, role: Role, ours: Offer, theirs: &[u8]) -> EndpointId {
        let link = FabricLink::new(stream.into(), role, ours, theirs).expect("the offer is good");
        self.transport.open(link).expect("it opens")
    }

    fn offer(&self) -> Offer {
        self.transport.offers().make().expect("an offer can be made")
    }
}

impl RemoteMember for Member {
    type Transport = FabricTransport;

    fn start(how: &[u8]) -> Self {
        let place: Place = postcard::from_bytes(how).expect("the test has sent it");
        Self { transport: common::start(&place), listening: None }
    }

    fn transport(&mut self) -> &mut FabricTransport {
        &mut self.transport
    }

    /// Returns the port and the offer.
    fn listen(&mut self) -> Vec<u8> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let offer = self.offer();
        let bytes = [&port.to_le_bytes(), offer.bytes()].concat();
        self.listening = Some((offer, listener));
        bytes
    }

    fn dial(&mut self, offer: &[u8]) -> (EndpointId, Vec<u8>) {
        let (port, theirs) = offer.split_first_chunk().expect("it begins with a port");
        let address = (Ipv4Addr::LOCALHOST, u16::from_le_bytes(*port));
        let stream = TcpStream::connect(address).expect("it listens");
        let ours = self.offer();
        let answer = ours.bytes().to_vec();
        (self.open(stream, Role::Connect, ours, theirs), answer)
    }

    fn accept(&mut self, answer: &[u8]) -> EndpointId {
        let (ours, listener) = self.listening.take().expect("it was told to listen");
        let (stream, _) = listener.accept().expect("a peer has connected");
        self.open(stream, Role::Accept, ours, answer)
    }

    /// The files of libfabric's shm, which a killed process cannot remove.
    fn clean_up(pid: u32) -> Vec<PathBuf> {
        let left = testing::shared_memory_of(pid);
        testing::remove_shared_memory_of(pid);
        left
    }
}

/// Members that are processes, each pair connected; they use the devices in turn.
struct Processes {
    places: Vec<Place>,
}

impl Processes {
    fn tcp() -> Option<Self> {
        Some(Self { places: vec![Place::here("tcp")] })
    }

    fn shm() -> Option<Self> {
        let found = transport_fabric::discover().expect("libfabric is installed");
        if !found.devices.iter().any(|device| device.provider == "shm") {
            eprintln!("SKIPPED: libfabric has no shared memory (shm) here");
            return None;
        }
        Some(Self { places: vec![Place::here("shm")] })
    }

    /// Members that tell peers of writes as efa and cxi do, which have endpoints of this kind.
    fn shm_by_delivery() -> Option<Self> {
        let mut processes = Self::shm()?;
        processes.places[0].awaits_delivery = true;
        Some(processes)
    }

    fn verbs() -> Option<Self> {
        Place::of_verbs().map(|places| Self { places })
    }
}

impl Harness for Processes {
    type Transport = Remote;

    fn network(&mut self, members: usize) -> Network<Remote> {
        let place = |member: usize| &self.places[member % self.places.len()];
        let how = |member| postcard::to_stdvec(place(member)).expect("it can be encoded");
        connected_remotes(&(0..members).map(how).collect::<Vec<_>>())
    }

    fn flushes_writes(&self) -> bool {
        !self.places[0].awaits_delivery
    }

    /// Kills a member during any operation. But over libfabric 1.17's shm, a process killed while
    /// it holds a spinlock in a peer's memory blocks the peer: there it is killed while idle.
    fn kill(&mut self, network: &mut Network<Remote>, index: usize) {
        if let Some(mut remote) = network.members[index].take() {
            if self.places[0].provider != "shm" {
                remote.leave_alone();
                thread::sleep(Duration::from_micros(300));
            }
            remote.kill();
        }
    }

    fn silence(&mut self, network: &mut Network<Remote>, index: usize) -> Option<Duration> {
        network.members[index].as_mut()?.stop();
        Some(Duration::from_millis(self.places[0].silence_timeout_ms + 1_000))
    }
}

/// libfabric 1.17's shm lets such ends use each other's mapping, even after one of them has ended.
#[test]
fn shm_within_one_process_is_refused() {
    if Processes::shm().is_none() {
        return;
    }
    let offers = common::start(&Place::here("shm")).offers();
    let (ours, theirs) = (offers.make().unwrap(), offers.make().unwrap());
    let (near, _far) = common::stream_pair();
    let refused = FabricLink::new(near.into(), Role::Accept, ours, theirs.bytes());
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("shm joins processes") && error.contains("tcp"), "{error}");
}

/// Not a test: the main function of a member's process.
#[test]
fn member() {
    run_member::<Member>();
}

/// Runs a clause if the harness is available.
macro_rules! tests_of {
    ($($name:ident)*) => {$(
        mod $name {
            transport_contract::contract_tests!(match super::Processes::$name() {
                Some(processes) => processes,
                None => return,
            });
        }
    )*};
}

tests_of! { tcp shm shm_by_delivery verbs }
