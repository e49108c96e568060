//! How a receiver behaves.

use std::sync::{Arc, atomic::AtomicBool};

use super::placement::Placement;

/// How a receiver behaves.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// What host this is; the root compares it with the hosts that it expects to call.
    pub host: String,
    /// Which destinations it accepts.
    pub placement: Placement,
    /// The longest object that it accepts, in bytes; asked before anything is made for it.
    pub bytes_max: Option<u64>,
    /// Ends the session within a fraction of a second when set, and keeps what has come for a later one.
    pub stop: Arc<AtomicBool>,
}
