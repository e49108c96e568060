//! Members that seem to have failed, and the callers that are notified.

use std::net::IpAddr;

use control::proto;
use mcrdma::GroupKey;
use tokio::sync::broadcast;

use crate::persisting::Persisting;

/// Reports that a slow stream has not taken yet. It misses older ones, which are repeated.
const REPORTS_MAX: usize = 1024;

/// A suspected member.
#[derive(Clone, Debug)]
pub(crate) struct Suspected {
    pub(crate) key: GroupKey,
    pub(crate) suspicion: proto::Suspicion,
}

/// Distributes reports to those who watch groups.
#[derive(Clone, Debug)]
pub(crate) struct Reports(broadcast::Sender<Suspected>);

impl Default for Reports {
    fn default() -> Self {
        Self(broadcast::Sender::new(REPORTS_MAX))
    }
}

impl Reports {
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Suspected> {
        self.0.subscribe()
    }

    pub(crate) fn are_read(&self) -> bool {
        self.0.receiver_count() > 0
    }

    pub(crate) fn send(&self, suspected: Suspected) {
        // They may all have gone.
        let _ = self.0.send(suspected);
    }
}

/// A group's members that seem to have failed, and since when.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    /// All of their ports are without a carrier.
    pub(crate) cut_off: Persisting<IpAddr>,
    /// They have fallen behind others or the sender, and are still at this PSN.
    pub(crate) silent: Persisting<(IpAddr, u32)>,
}
