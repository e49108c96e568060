//! Settings of a context.

#[cfg(feature = "switch")]
use std::sync::Arc;
use std::{net::SocketAddr, num::NonZeroUsize, thread, time::Duration};

use session::Secret;
#[cfg(feature = "switch")]
use transport_switch::{Delegates, Switches};
use transport_tcp::{OutOfRange, TcpSettings};

use crate::{CompletionMode, Error, Fabric, Protection};

/// How many threads move the bytes of a context at most, unless more are asked for.
const THREADS_MAX: u8 = 4;

/// What makes progress on transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Progress {
    /// A thread of the context; the callbacks of each group run on a thread of their own.
    #[default]
    Thread,
    /// Any thread in [`crate::Context::progress`], [`crate::Group::close`],
    /// [`crate::Group::receive`] or another call that waits for a group; callbacks run on this
    /// thread. One thread at a time makes progress, and the others wait for it.
    Caller,
}

/// The settings of a context.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ContextSettings {
    /// The address on which other members connect to this one; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Authenticates members to each other, and the messages that create groups.
    pub secret: Secret,
    /// What makes progress on transfers.
    pub progress: Progress,
    /// How the progress thread waits.
    pub completion: CompletionMode,
    /// The number of TCP connections to each neighbour, 1 to 8; the same at all members. Use more than
    /// one if a single flow cannot fill a fast link, or a single processor: by default several threads serve the streams of links that
    /// have several ([`TcpSettings::threads`]).
    pub streams: u8,
    /// The time limit for creating a group, within which all members have to connect.
    pub connect_timeout: Duration,
    /// The network that carries the blocks; the same at all members. With every fabric, members
    /// connect, authenticate each other and detect each other's failure over TCP.
    pub fabric: Fabric,
    /// How blocks are protected in transit; the same at all members. `None`, the default: encrypted over TCP; blocks over other
    /// fabrics and those that switches copy are not protected. [`Protection::Encrypt`] refuses these.
    pub protection: Option<Protection>,
    /// The settings of TCP.
    pub tcp: TcpSettings,
    /// The maximum rate in bytes per second at which this context sends, and at which it receives, over
    /// the links of all its groups together; `None` for no limit. At least [`crate::RATE_MAX_LEAST`]. The
    /// limit applies to each team separately, since a team has its own network. The limit may differ
    /// between members; a group runs at the rate of its slowest member.
    ///
    /// Blocks and one-sided writes beyond the limit wait; a burst of 10 ms at this rate (at least
    /// 128 KiB) passes at once. Control words and heartbeats are counted but do not wait, so a limited
    /// member does not appear dead. Creating groups is not limited. A block must take less time than the
    /// group's [`crate::GroupSettings::stall_timeout`]. Requires the fabric tcp, because devices send posted
    /// blocks at link rate; groups with [`crate::Algorithm::InSwitch`] are refused for the same reason.
    pub rate_max: Option<u64>,
    /// The hosts from which connections are accepted; `None` for all hosts. Does not limit the hosts to
    /// which this context connects: those are the addresses of the groups' members.
    pub peers: Option<session::Peers>,
    /// Configures switches for groups with [`crate::Algorithm::InSwitch`]; required at the roots of such
    /// groups. As with RDMA fabrics, their blocks are neither encrypted nor authenticated in transit.
    #[cfg(feature = "switch")]
    pub switches: Option<Arc<dyn Switches>>,
    /// Signs, at receivers of groups with [`crate::Algorithm::InSwitch`], the permission for switches to copy to
    /// this host, which the switches' agents require.
    #[cfg(feature = "switch")]
    pub delegates: Option<Arc<dyn Delegates>>,
}

impl ContextSettings {
    /// Returns the default settings with this address and secret.
    pub fn new(listen: SocketAddr, secret: Secret) -> Self {
        Self {
            listen,
            secret,
            progress: Progress::default(),
            completion: CompletionMode::default(),
            streams: 1,
            connect_timeout: Duration::from_secs(30),
            fabric: Fabric::default(),
            protection: None,
            tcp: TcpSettings::default(),
            rate_max: None,
            peers: None,
            #[cfg(feature = "switch")]
            switches: None,
            #[cfg(feature = "switch")]
            delegates: None,
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
        self.protection = Some(protection);
        self
    }

    /// Sets [`ContextSettings::tcp`].
    #[must_use]
    pub fn tcp(mut self, settings: TcpSettings) -> Self {
        self.tcp = settings;
        self
    }

    /// Sets [`ContextSettings::rate_max`].
    #[must_use]
    pub fn rate_max(mut self, bytes_per_second: Option<u64>) -> Self {
        self.rate_max = bytes_per_second;
        self
    }

    /// Sets [`ContextSettings::switches`].
    #[cfg(feature = "switch")]
    #[must_use]
    pub fn switches(mut self, switches: Arc<dyn Switches>) -> Self {
        self.switches = Some(switches);
        self
    }

    /// Sets [`ContextSettings::delegates`].
    #[cfg(feature = "switch")]
    #[must_use]
    pub fn delegates(mut self, delegates: Arc<dyn Delegates>) -> Self {
        self.delegates = Some(delegates);
        self
    }

    /// Returns the settings of TCP with the rate limit of this context, or with their own limit if
    /// that is lower.
    pub(crate) fn limited_tcp(&self) -> TcpSettings {
        let limits = self.rate_max.into_iter().chain(self.tcp.rate_max);
        self.tcp.clone().rate_max(limits.min())
    }

    /// Returns the settings of TCP for groups, whose links have [`ContextSettings::streams`]: with as many threads as are asked for, or
    /// may help.
    pub(crate) fn threaded_tcp(&self) -> TcpSettings {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = match self.progress {
            Progress::Thread => {
                let half = u8::try_from(processors / 2).unwrap_or(u8::MAX);
                THREADS_MAX.min(half).min(self.streams).max(1)
            }
            Progress::Caller => 1,
        };
        let tcp = self.limited_tcp();
        let threads = tcp.threads.unwrap_or(threads);
        tcp.threads(Some(threads))
    }

    /// Checks the settings. Errors: a setting is out of range, or incompatible with the fabric.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(1..=8).contains(&self.streams) {
            return Err(Error::setting("streams", self.streams, "1 to 8"));
        }
        if let Err(OutOfRange { name, value, allowed }) = self.limited_tcp().check() {
            return Err(Error::setting(name, value, allowed));
        }
        if self.fabric == Fabric::Tcp {
            return Ok(());
        }
        let fabric = self.fabric.name();
        if self.rate_max.is_some() {
            return Err(Error::setting("fabric", fabric, "tcp with a rate limit"));
        }
        if self.streams != 1 {
            return Err(Error::setting("streams", self.streams, format!("1 over {fabric}")));
        }
        if self.protection == Some(Protection::Encrypt) {
            let allowed =
                format!("none, as the fabric {fabric} does not encrypt; or the fabric tcp");
            return Err(Error::setting("protection", Protection::Encrypt, allowed));
        }
        Ok(())
    }

    /// The protection of TCP connections.
    pub(crate) fn tcp_protection(&self) -> Protection {
        self.protection.unwrap_or_default()
    }
}
