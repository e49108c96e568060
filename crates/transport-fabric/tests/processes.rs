//! The contract of [`transport::Transport`] with each member in its own process: for `shm`, which
//! connects nothing else, and for members that are killed or stopped as hosts are.
//!
//! Environment: as for the tests of one process (`contract.rs`).

use std::{thread, time::Duration};

use transport::EndpointId;
use transport_contract::{Harness, Network};
use transport_fabric::{FabricLink, Role};

use crate::common::{self, Place};
use crate::remote::{self, Remote};

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
        let mut remotes: Vec<Remote> = (0..members)
            .map(|member| Remote::start(&self.places[member % self.places.len()]))
            .collect();
        remotes.iter_mut().for_each(Remote::await_start);
        let mut endpoints: Vec<Vec<Option<EndpointId>>> = vec![vec![None; members]; members];
        let pairs = (0..members).flat_map(|right| (0..right).map(move |left| (left, right)));
        for (left, right) in pairs {
            let (head, tail) = remotes.split_at_mut(right);
            let (one, other) = head[left].connect(&mut tail[0]);
            endpoints[left][right] = Some(one);
            endpoints[right][left] = Some(other);
        }
        Network { members: remotes.into_iter().map(Some).collect(), endpoints }
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
    if std::env::var_os(remote::process::MEMBER).is_some() {
        remote::member::run();
    }
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
