//! The next hops by which this switch forwards to a host.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use data_plane::UserspaceTables;
use mcrdma::Port;
use routes::{Hop, Kernel, Neighbour, NoHop, RoutesError, Snapshot, Station};
use tokio::time::sleep;

/// Attempts to resolve a next hop.
pub(crate) const ATTEMPTS: u32 = 20;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A switch's forwarding state.
pub(crate) struct Forwarding {
    ports: BTreeSet<Port>,
    source: Source,
}

enum Source {
    /// The kernel's routes, neighbours and bridges.
    Kernel(Mutex<Known>),
    /// Addresses that the bridge in userspace has learnt.
    Bridge(UserspaceTables),
}

struct Known {
    kernel: Kernel,
    snapshot: Snapshot,
    /// It has changed since this was last asked for.
    has_changed: bool,
}

impl Known {
    /// Reads the kernel's state again if it has sent notifications.
    fn refresh(&mut self) -> Result<(), RoutesError> {
        while self.kernel.changed(Duration::ZERO)? {
            let now = self.kernel.snapshot()?;
            self.has_changed |= now != self.snapshot;
            self.snapshot = now;
        }
        Ok(())
    }
}

impl Forwarding {
    /// Of the kernel, in this thread's network namespace.
    pub(crate) fn of_kernel(ports: BTreeSet<Port>) -> Result<Self, RoutesError> {
        let mut kernel = Kernel::open()?;
        let snapshot = kernel.snapshot()?;
        let known = Known { kernel, snapshot, has_changed: false };
        Ok(Self { ports, source: Source::Kernel(Mutex::new(known)) })
    }

    /// Of a bridge in userspace.
    pub(crate) const fn of_bridge(tables: UserspaceTables) -> Self {
        Self { ports: BTreeSet::new(), source: Source::Bridge(tables) }
    }

    /// Reads the kernel's state again if it has sent notifications. Returns whether it has changed since the
    /// last call; for a bridge in userspace, which sends none, always true.
    pub(crate) fn has_changed(&self) -> Result<bool, RoutesError> {
        let Source::Kernel(known) = &self.source else { return Ok(true) };
        let mut known = lock(known);
        known.refresh()?;
        Ok(std::mem::take(&mut known.has_changed))
    }

    /// A host's next hops, as far as they are known.
    pub(crate) fn hops(&self, to: Station) -> Result<BTreeSet<Hop>, Unresolved> {
        match &self.source {
            Source::Kernel(known) => {
                let found = lock(known).snapshot.hops(&self.ports, to);
                found.map_err(|why| Unresolved { remedy: Remedy::of(&why), why: why.to_string() })
            }
            Source::Bridge(tables) => {
                let Some(mac) = to.mac else {
                    let why = format!(
                        "a bridge in userspace finds hosts by their Ethernet addresses, and that of {} is missing from the request",
                        to.address
                    );
                    return Err(Unresolved { remedy: Remedy::None, why });
                };
                let hop = |port| BTreeSet::from([Hop { port, gateway: None, mac }]);
                tables.station(mac).map(hop).ok_or_else(|| {
                    let why = format!(
                        "{mac} ({}) has not been learnt at a port: let it send a packet",
                        to.address
                    );
                    Unresolved { remedy: Remedy::Wait, why }
                })
            }
        }
    }

    /// A host's next hops; has the kernel resolve neighbours if needed.
    pub(crate) async fn resolve(
        &self,
        to: Station,
        attempts: u32,
    ) -> Result<BTreeSet<Hop>, Unresolved> {
        let mut found = self.hops(to);
        for _ in 1..attempts {
            match &found {
                Ok(_) => break,
                Err(unresolved) if unresolved.is_permanent() => break,
                Err(unresolved) => self.solicit(&unresolved.remedy),
            }
            sleep(AGAIN_AFTER).await;
            if let Source::Kernel(known) = &self.source {
                // An error is reported by the regular check of routes, which is left what has changed, too: other
                // groups depend on it.
                let _ = lock(known).refresh();
            }
            found = self.hops(to);
        }
        found
    }

    /// Interval at which changes are checked for.
    pub(crate) const fn interval(&self) -> Duration {
        match self.source {
            Source::Kernel(_) => Duration::from_millis(200),
            Source::Bridge(_) => Duration::from_secs(2),
        }
    }

    fn solicit(&self, remedy: &Remedy) {
        if let (Source::Kernel(known), Remedy::Neighbour(neighbour)) = (&self.source, remedy) {
            // The reply is seen at the next attempt.
            let _ = lock(known).kernel.ask(*neighbour);
        }
    }
}

/// Why a host's next hops are not known.
pub(crate) struct Unresolved {
    remedy: Remedy,
    /// For messages.
    pub(crate) why: String,
}

impl Unresolved {
    /// The same, with a prefix.
    pub(crate) fn within(self, what: &str) -> Self {
        Self { why: format!("{what}: {}", self.why), ..self }
    }

    /// Whether waiting does not help.
    pub(crate) const fn is_permanent(&self) -> bool {
        matches!(self.remedy, Remedy::None)
    }
}

/// What could resolve it.
enum Remedy {
    None,
    Neighbour(Neighbour),
    /// Waiting, until the host sends a packet.
    Wait,
}

impl Remedy {
    fn of(why: &NoHop) -> Self {
        match (why.to_ask(), why) {
            (Some(neighbour), _) => Self::Neighbour(neighbour),
            (None, NoHop::Station { routes, .. }) => {
                routes.to_ask().map_or(Self::Wait, Self::Neighbour)
            }
            (None, _) => Self::None,
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Whether this process may make a network namespace of its own; prints why not.
    fn is_possible() -> bool {
        let possible = lab::enter_own_network();
        if let Err(error) = &possible {
            println!("SKIPPED: needs root (network namespaces): {error}");
        }
        possible.is_ok()
    }

    /// Other groups' paths may depend on it.
    #[test]
    fn a_change_that_is_read_while_a_host_is_resolved_is_reported_later() {
        if !is_possible() {
            return;
        }
        let forwarding = Forwarding::of_kernel(BTreeSet::new()).unwrap();
        assert!(!forwarding.has_changed().unwrap());
        lab::ip("link add v0 type veth peer name v1").unwrap();
        lab::ip("addr add 10.0.0.1/24 dev v0").unwrap();
        lab::ip("link set v0 up").unwrap();
        lab::ip("link set v1 up").unwrap();
        let host = Station { address: Ipv4Addr::new(10, 0, 0, 2).into(), mac: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert!(runtime.block_on(forwarding.resolve(host, 2)).is_err(), "no port leads to it");
        assert!(forwarding.has_changed().unwrap());
        assert!(!forwarding.has_changed().unwrap());
    }
}
