//! Transports and links between them.

pub mod pair;

use std::time::Duration;

use transport_shm::{Offer, ShmLink, ShmSettings, ShmTransport};

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
