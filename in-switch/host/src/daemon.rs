//! What the parts of a daemon share.

use std::{net::IpAddr, sync::Arc};

use certificates::Certificates;
use control::{Agent, ControlError, ErrorKind, tls::Trusted};
use tokio::sync::watch;
use tonic::Request;

use crate::{
    groups::{Groups, Places},
    listeners::Listeners,
};

/// What both faces of a daemon share.
pub(crate) struct Daemon {
    pub(crate) agent: Agent,
    pub(crate) certificates: Certificates,
    pub(crate) trusted: Trusted,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) sending: Places,
    pub(crate) memberships: Places,
    pub(crate) leaving: Leaving,
}

/// Says when the daemon is to end.
#[derive(Clone)]
pub(crate) struct Leaving(pub(crate) watch::Receiver<bool>);

impl Leaving {
    /// Until it is.
    pub(crate) async fn told(&mut self) {
        // Who would tell has gone: then, too.
        let _ = self.0.wait_for(|is_leaving| *is_leaving).await;
    }
}

pub(crate) fn ends() -> ControlError {
    ControlError::new(ErrorKind::Unavailable, "the daemon of this host ends")
}

impl Daemon {
    pub(crate) fn check_open(&self) -> Result<(), ControlError> {
        if *self.leaving.0.borrow() { Err(ends()) } else { Ok(()) }
    }

    /// Hosts may ask for members of groups that they send to.
    pub(crate) fn check_sender<T>(
        &self,
        request: &Request<T>,
        sender: IpAddr,
    ) -> Result<(), ControlError> {
        if self.trusted.lets(request, sender) {
            return Ok(());
        }
        let why = format!(
            "the certificate of the sender's daemon is not for the sender's address {sender}, nor for a name that is trusted there (--trust)"
        );
        Err(ControlError::new(ErrorKind::Denied, why))
    }
}
