//! The contract of [`transport::Transport`], over every provider of this host that connects ends
//! within one process.
//!
//! Without libfabric all tests are skipped. RDMC_TEST_VERBS=10.0.0.1,10.0.0.2 names addresses of
//! RDMA devices of this host, which the members of the verbs tests use in turn;
//! RDMC_TEST_RAILS=rxe1,rxe2/rxe3,rxe4 names the devices themselves, for members with several.

use std::time::Duration;

use transport_contract::{Harness, Network};
use transport_fabric::FabricTransport;

use crate::common::{self, Place, links, start};

/// Transports of this process, each pair connected.
struct Fabric {
    places: Vec<Place>,
}

impl Fabric {
    fn new(provider: &str) -> Self {
        Self { places: vec![Place::here(provider)] }
    }

    /// Members whose blocks pass through copies.
    fn copying(mut self) -> Self {
        self.places.iter_mut().for_each(|place| place.always_copies = true);
        self
    }

    /// Members that tell peers of writes as efa and cxi do.
    fn awaiting_delivery(mut self) -> Self {
        self.places.iter_mut().for_each(|place| place.awaits_delivery = true);
        self
    }

    /// Members with two and with three rails in turn, all of one device, which suffices here.
    fn with_rails(mut self, device: &str) -> Self {
        let with =
            |rails| Place { devices: vec![device.to_owned(); rails], ..self.places[0].clone() };
        self.places = vec![with(2), with(3)];
        self
    }

    /// Members at the devices whose addresses the environment names, if it names any.
    fn verbs() -> Option<Self> {
        Some(Self { places: Place::of_verbs()? })
    }

    /// Members at the devices that the environment names, several for each member.
    fn verbs_rails() -> Option<Self> {
        let with = |devices: &str| Place {
            devices: devices.split(',').map(str::to_owned).collect(),
            ..Place::here("verbs")
        };
        let places = common::places("RDMC_TEST_RAILS", "DEVICE,DEVICE/DEVICE,DEVICE", '/', with)?;
        Some(Self { places })
    }
}

impl Harness for Fabric {
    type Transport = FabricTransport;

    fn network(&mut self, members: usize) -> Network<FabricTransport> {
        let place = |member: usize| &self.places[member % self.places.len()];
        let transports = (0..members).map(|member| start(place(member))).collect();
        Network::connected(transports, |(_, one), (_, other)| links(one, other))
    }

    fn flushes_writes(&self) -> bool {
        !self.places[0].awaits_delivery
    }

    /// Not polling is enough: nothing is answered, and the connections stay open.
    fn silence(&mut self, _: &mut Network<FabricTransport>, _: usize) -> Option<Duration> {
        Some(Duration::from_millis(self.places[0].silence_timeout_ms + 1_000))
    }
}

mod tcp {
    transport_contract::contract_tests!(super::Fabric::new("tcp"));
}

mod tcp_by_copies {
    transport_contract::contract_tests!(super::Fabric::new("tcp").copying());
}

mod tcp_by_delivery {
    transport_contract::contract_tests!(super::Fabric::new("tcp").awaiting_delivery());
}

mod tcp_by_rails {
    transport_contract::contract_tests!(super::Fabric::new("tcp").with_rails("lo"));
}

mod sockets {
    transport_contract::contract_tests!(super::Fabric::new("sockets"));
}

mod verbs {
    transport_contract::contract_tests!(match super::Fabric::verbs() {
        Some(fabric) => fabric,
        None => return,
    });
}

mod verbs_by_copies {
    transport_contract::contract_tests!(match super::Fabric::verbs() {
        Some(fabric) => fabric.copying(),
        None => return,
    });
}

mod verbs_by_rails {
    transport_contract::contract_tests!(match super::Fabric::verbs_rails() {
        Some(fabric) => fabric,
        None => return,
    });
}
