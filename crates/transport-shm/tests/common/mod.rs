//! Transports and links between them.

pub mod pair;

use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

use transport_shm::{Beside, Offer, ShmLink, ShmSettings, ShmTransport};
use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

/// The longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A few tests wait for this timeout, and others must not reach it on a busy machine.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(8);

pub fn settings() -> ShmSettings {
    ShmSettings::default().silence_timeout(SILENCE_TIMEOUT)
}

pub fn start(settings: ShmSettings) -> ShmTransport {
    ShmTransport::new(settings).expect("the settings are in range")
}

/// Returns the two links of a connection.
pub fn links() -> (ShmLink, ShmLink) {
    let offer = Offer::make().expect("a name is free");
    let other = ShmLink::connect(offer.bytes()).expect("it listens");
    (offer.accept(PATIENCE).expect("a peer has connected"), other)
}

pub fn beside_tcp() -> Beside<TcpTransport> {
    let tcp = TcpSettings::default().silence_timeout(SILENCE_TIMEOUT).direct_copies(false);
    Beside::new(start(settings()), TcpTransport::new(tcp).unwrap()).unwrap()
}

/// Returns the two links of a connection over loopback.
pub fn tcp_links() -> (TcpLink, TcpLink) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0.into(), connected.into())
}
