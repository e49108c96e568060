//! What a context is made of.

#[cfg(feature = "switch")]
use std::sync::Arc;
use std::{net::SocketAddr, time::Duration};

use session::Secret;
#[cfg(feature = "switch")]
use transport_switch::Switches;

use crate::{CompletionMode, Error, Fabric, Protection, TcpSettings};

/// Who moves transfers on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Progress {
    /// A thread of the context's own; callbacks run on one thread for each group.
    #[default]
    Thread,
    /// Any thread in [`crate::Context::progress`], [`crate::Group::close`], [`crate::Group::receive`]
    /// or another call of this library that waits for a group; callbacks run there. One thread at a
    /// time does so, and the others wait for it.
    Caller,
}

/// What a context is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ContextSettings {
    /// Where other members connect to; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Authenticates members to each other, and encrypts what they exchange to find each other.
    pub secret: Secret,
    /// Who moves transfers on.
    pub progress: Progress,
    /// How the progress thread waits.
    pub completion: CompletionMode,
    /// TCP connections to each neighbour, 1 to 8; the same at all members. More than one helps
    /// where a single flow cannot fill a fast link.
    pub streams: u8,
    /// How long creating a group may take: all members have to show up in this time.
    pub connect_timeout: Duration,
    /// The network that blocks move over; the same at all members. Members find each other, prove
    /// who they are and notice each other's end over TCP in any case.
    pub fabric: Fabric,
    /// How blocks are protected on their way; the same at all members. Over another fabric than
    /// TCP this concerns heartbeats alone, which travel by TCP.
    pub protection: Protection,
    /// The settings of TCP.
    pub tcp: TcpSettings,
    /// What puts groups of [`crate::Algorithm::InSwitch`] into switches: needed at their roots. Blocks of
    /// such groups are neither encrypted nor authenticated on their way, as over RDMA fabrics.
    #[cfg(feature = "switch")]
    pub switches: Option<Arc<dyn Switches>>,
}

impl ContextSettings {
    /// Defaults with this address and secret.
    pub fn new(listen: SocketAddr, secret: Secret) -> Self {
        Self {
            listen,
            secret,
            progress: Progress::default(),
            completion: CompletionMode::default(),
            streams: 1,
            connect_timeout: Duration::from_secs(30),
            fabric: Fabric::default(),
            protection: Protection::default(),
            tcp: TcpSettings::default(),
            #[cfg(feature = "switch")]
            switches: None,
        }
    }

    /// Sets [`ContextSettings::progress`].
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Sets [`ContextSettings::completion`].
    #[must_use]
    pub fn completion(mut self, mode: CompletionMode) -> Self {
        self.completion = mode;
        self
    }

    /// Sets [`ContextSettings::streams`].
    #[must_use]
    pub fn streams(mut self, streams: u8) -> Self {
        self.streams = streams;
        self
    }

    /// Sets [`ContextSettings::connect_timeout`].
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets [`ContextSettings::fabric`].
    #[must_use]
    pub fn fabric(mut self, fabric: Fabric) -> Self {
        self.fabric = fabric;
        self
    }

    /// Sets [`ContextSettings::protection`].
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Sets [`ContextSettings::tcp`].
    #[must_use]
    pub fn tcp(mut self, settings: TcpSettings) -> Self {
        self.tcp = settings;
        self
    }

    /// Sets [`ContextSettings::switches`].
    #[cfg(feature = "switch")]
    #[must_use]
    pub fn switches(mut self, switches: Arc<dyn Switches>) -> Self {
        self.switches = Some(switches);
        self
    }

    /// Errors: a setting is out of range, or does not go with the fabric.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(1..=8).contains(&self.streams) {
            return Err(Error::setting("streams", self.streams, "1 to 8"));
        }
        self.tcp.check()?;
        if self.fabric == Fabric::Tcp {
            return Ok(());
        }
        let fabric = self.fabric.name();
        if self.streams != 1 {
            return Err(Error::setting("streams", self.streams, format!("1 over {fabric}")));
        }
        if self.protection == Protection::Encrypt {
            let allowed = format!(
                "another protection (the fabric {fabric} does not encrypt), or the fabric tcp"
            );
            return Err(Error::setting("protection", self.protection, allowed));
        }
        Ok(())
    }
}
