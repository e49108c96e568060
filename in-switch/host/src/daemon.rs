//! State that the services of a daemon share.

use std::{net::IpAddr, sync::Arc, time::Duration};

use control::{Agent, ControlError, ErrorKind, tls::Trusted, watcher::Probing};
use session::certificates::Certificates;
use tokio::sync::watch;
use tonic::Request;

use crate::{
    groups::{Groups, Quota},
    listeners::Listeners,
};

/// State that both services of a daemon share.
pub(crate) struct Daemon {
    pub(crate) agent: Agent,
    pub(crate) certificates: Certificates,
    pub(crate) trusted: Trusted,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) sending: Quota,
    pub(crate) memberships: Quota,
    /// How long members' delegations are valid.
    pub(crate) delegation_lasts: Duration,
    /// How hosts of suspected members are asked.
    pub(crate) probing: Probing,
    pub(crate) shutdown: Shutdown,
}

/// The signal that the daemon shuts down.
#[derive(Clone)]
pub(crate) struct Shutdown(pub(crate) watch::Receiver<bool>);

impl Shutdown {
    /// Waits for the signal. A dropped sender counts as one.
    pub(crate) async fn requested(&mut self) {
        let _ = self.0.wait_for(|is_requested| *is_requested).await;
    }
}

pub(crate) fn shutting_down() -> ControlError {
    ControlError::new(ErrorKind::Unavailable, "the daemon of this host shuts down")
}

impl Daemon {
    pub(crate) fn check_open(&self) -> Result<(), ControlError> {
        if *self.shutdown.0.borrow() { Err(shutting_down()) } else { Ok(()) }
    }

    /// Checks that the caller may invite members for this sender.
    pub(crate) fn check_sender<T>(
        &self,
        request: &Request<T>,
        sender: IpAddr,
    ) -> Result<(), ControlError> {
        if self.trusted.authorizes(request, sender) {
            return Ok(());
        }
        let why = format!(
            "the certificate of the sender's daemon is not for the sender's address {sender}, nor for a name that is trusted there (--trust)"
        );
        Err(ControlError::new(ErrorKind::Denied, why))
    }
}
