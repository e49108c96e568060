//! Settings of a receiver.

use std::sync::{Arc, atomic::AtomicBool};

use plan::size;

use crate::switch_control::SwitchControl;

use super::{error::ReceiveError, output::Output, placement::Placement};

/// Settings of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// The name of this host; the root compares it with the hosts that it expects.
    pub host: String,
    /// Which destinations it accepts.
    pub placement: Placement,
    /// Where a stream goes instead of a file; files are refused then.
    pub output: Option<Output>,
    /// The longest object that it accepts, in bytes, with the holes of its files; checked before files are made.
    pub bytes_max: Option<u64>,
    /// Whether switches may copy to this host.
    pub switches: SwitchControl,
    /// When set, ends the session within a fraction of a second; the partial copy is kept for a later one.
    pub stop: Arc<AtomicBool>,
}

impl ReceiverSettings {
    /// Errors: more than this receiver accepts.
    pub(super) fn check_size(&self, bytes: u64) -> Result<(), ReceiveError> {
        match self.bytes_max {
            Some(most) if bytes > most => Err(ReceiveError::Refused(format!(
                "the root offers {}, and this receiver accepts at most {}; start it with a larger \
                 --max-size",
                size::show(bytes),
                size::show(most)
            ))),
            _ => Ok(()),
        }
    }
}
