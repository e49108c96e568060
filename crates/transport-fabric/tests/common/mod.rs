//! Pairs of fabric transports in this process.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use transport::{EndpointId, Transport};
use transport_fabric::{Copies, FabricLink, FabricSettings, FabricTransport, Role};
use transport_tcp::TcpSettings;

/// How one member's transport is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    pub provider: String,
    pub devices: Vec<String>,
    pub near: IpAddr,
    /// A few tests wait for this timeout, and others must not reach it on a busy machine; in a
    /// virtual machine, connecting takes a second.
    pub silence_timeout_ms: u64,
    /// How long an endpoint that closes has for what waits to be sent.
    pub drain_timeout_ms: u64,
    /// Whether all blocks pass through copies.
    pub always_copies: bool,
    /// Whether writes are reported to peers only once they are in their memory.
    pub awaits_delivery: bool,
}

impl Place {
    /// Returns the provider's device at the loopback address, or any other that it has.
    pub fn here(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            devices: Vec::new(),
            near: Ipv4Addr::LOCALHOST.into(),
            silence_timeout_ms: 8_000,
            drain_timeout_ms: 3_000,
            always_copies: false,
            awaits_delivery: false,
        }
    }

    /// Returns places at the devices whose addresses the environment names, if it names any.
    pub fn of_verbs() -> Option<Vec<Self>> {
        let near = |address: &str| Self {
            near: address.parse().expect("RDMC_TEST_VERBS is a list of addresses"),
            ..Self::here("verbs")
        };
        places("RDMC_TEST_VERBS", "ADDRESS,ADDRESS", ',', near)
    }
}

/// Returns the RDMA devices that an environment variable names; none, with a message, if it is not
/// set.
pub fn places(
    variable: &str,
    shape: &str,
    separator: char,
    place: fn(&str) -> Place,
) -> Option<Vec<Place>> {
    let Ok(places) = std::env::var(variable) else {
        eprintln!("SKIPPED: needs RDMA devices: {variable}={shape}");
        return None;
    };
    let patient = |place| Place { silence_timeout_ms: 15_000, drain_timeout_ms: 10_000, ..place };
    Some(places.split(separator).map(place).map(patient).collect())
}

pub fn start(place: &Place) -> FabricTransport {
    let mut settings = FabricSettings::new(place.provider.as_str());
    settings.devices = place.devices.clone();
    settings.near = Some(place.near);
    if place.always_copies {
        settings.copies = Copies::Always;
    }
    settings.awaits_delivery = place.awaits_delivery;
    let tcp = TcpSettings::default()
        .silence_timeout(Duration::from_millis(place.silence_timeout_ms))
        .drain_timeout(Duration::from_millis(place.drain_timeout_ms));
    FabricTransport::start(settings, tcp).unwrap_or_else(|error| panic!("{place:?}: {error}"))
}

/// Returns a connection over loopback, as bootstrap would make it.
pub fn stream_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Returns the two links of a connection between two transports.
pub fn links(one: &FabricTransport, other: &FabricTransport) -> (FabricLink, FabricLink) {
    let (near, far) = stream_pair();
    let (near_offer, far_offer) = (one.offers().make().unwrap(), other.offers().make().unwrap());
    let (near_bytes, far_bytes) = (near_offer.bytes().to_vec(), far_offer.bytes().to_vec());
    (
        FabricLink::new(near.into(), Role::Accept, near_offer, &far_bytes).unwrap(),
        FabricLink::new(far.into(), Role::Connect, far_offer, &near_bytes).unwrap(),
    )
}

/// Connects two transports.
pub fn connect(one: &mut FabricTransport, other: &mut FabricTransport) -> (EndpointId, EndpointId) {
    let (near, far) = links(one, other);
    (one.open(near).unwrap(), other.open(far).unwrap())
}
