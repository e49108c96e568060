//! Where the data plane of this switch would send a packet for a host.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use data_plane::UserspaceTables;
use mcrdma::Port;
use routes::{Hop, Kernel, Neighbour, NoHop, RoutesError, Snapshot, Station};
use tokio::time::sleep;

/// Who has to be asked for an Ethernet address answers within so many attempts.
pub(crate) const ATTEMPTS: u32 = 20;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a switch forwards by.
pub(crate) struct Sight {
    ports: BTreeSet<Port>,
    source: Source,
}

enum Source {
    /// What the kernel does.
    Kernel(Mutex<(Kernel, Snapshot)>),
    /// What the bridge in userspace has learnt.
    Bridge(UserspaceTables),
}

impl Sight {
    /// Of the kernel, in this thread's network namespace.
    pub(crate) fn of_kernel(ports: BTreeSet<Port>) -> Result<Self, RoutesError> {
        let mut kernel = Kernel::open()?;
        let snapshot = kernel.snapshot()?;
        Ok(Self { ports, source: Source::Kernel(Mutex::new((kernel, snapshot))) })
    }

    /// Of a bridge in userspace.
    pub(crate) const fn of_bridge(tables: UserspaceTables) -> Self {
        Self { ports: BTreeSet::new(), source: Source::Bridge(tables) }
    }

    /// Looks again, if the kernel has said that something may have changed; whether it may have. A
    /// bridge in userspace says nothing, so that it always may.
    pub(crate) fn has_changed(&self) -> Result<bool, RoutesError> {
        let Source::Kernel(kernel) = &self.source else { return Ok(true) };
        let (kernel, snapshot) = &mut *lock(kernel);
        let mut has_changed = false;
        while kernel.changed(Duration::ZERO)? {
            let now = kernel.snapshot()?;
            has_changed |= now != *snapshot;
            *snapshot = now;
        }
        Ok(has_changed)
    }

    /// A host's next hops, as they are known.
    pub(crate) fn hops(&self, to: Station) -> Result<BTreeSet<Hop>, Unseen> {
        match &self.source {
            Source::Kernel(kernel) => {
                let found = lock(kernel).1.hops(&self.ports, to);
                found.map_err(|why| Unseen { ask: Ask::of(&why), why: why.to_string() })
            }
            Source::Bridge(tables) => {
                let Some(mac) = to.mac else {
                    let why = format!(
                        "a bridge in userspace finds hosts by their Ethernet addresses, and that of {} was not told",
                        to.address
                    );
                    return Err(Unseen { ask: Ask::Nobody, why });
                };
                let hop = |port| BTreeSet::from([Hop { port, gateway: None, mac }]);
                tables.station(mac).map(hop).ok_or_else(|| {
                    let why = format!(
                        "{mac} ({}) was not heard of late: let it send something",
                        to.address
                    );
                    Unseen { ask: Ask::Time, why }
                })
            }
        }
    }

    /// A host's next hops, for whose Ethernet addresses the kernel may have to ask.
    pub(crate) async fn find(&self, to: Station, attempts: u32) -> Result<BTreeSet<Hop>, Unseen> {
        let mut found = self.hops(to);
        for _ in 1..attempts {
            match &found {
                Ok(_) => break,
                Err(unseen) if unseen.is_lasting() => break,
                Err(unseen) => self.ask(&unseen.ask),
            }
            sleep(AGAIN_AFTER).await;
            // Why routes cannot be read is said by who looks regularly.
            let _ = self.has_changed();
            found = self.hops(to);
        }
        found
    }

    /// How often to look whether anything has changed.
    pub(crate) const fn interval(&self) -> Duration {
        match self.source {
            Source::Kernel(_) => Duration::from_millis(200),
            Source::Bridge(_) => Duration::from_secs(2),
        }
    }

    fn ask(&self, ask: &Ask) {
        if let (Source::Kernel(kernel), Ask::Neighbour(neighbour)) = (&self.source, ask) {
            // What comes of it is seen at the next attempt.
            let _ = lock(kernel).0.ask(*neighbour);
        }
    }
}

/// Why a host's next hops are not known.
pub(crate) struct Unseen {
    ask: Ask,
    /// For people.
    pub(crate) why: String,
}

impl Unseen {
    /// The same, with what could not be found.
    pub(crate) fn within(self, what: &str) -> Self {
        Self { why: format!("{what}: {}", self.why), ..self }
    }

    /// Waiting does not help.
    pub(crate) const fn is_lasting(&self) -> bool {
        matches!(self.ask, Ask::Nobody)
    }
}

/// Who could help.
enum Ask {
    Nobody,
    Neighbour(Neighbour),
    /// Somebody may say something of its own accord.
    Time,
}

impl Ask {
    fn of(why: &NoHop) -> Self {
        match (why.to_ask(), why) {
            (Some(neighbour), _) => Self::Neighbour(neighbour),
            (None, NoHop::Station { routes, .. }) => {
                routes.to_ask().map_or(Self::Time, Self::Neighbour)
            }
            (None, _) => Self::Nobody,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
