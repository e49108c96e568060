//! A context: its creations, and where it is.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use rdmc::{
    Protection, TeamSettings,
    creation::{
        creations::Creations,
        joining::Joining,
        terms::{TeamTerms, Terms},
    },
};

use super::{
    links::{Channels, Links, Simulated},
    scenario::GroupPlan,
};

/// A context that runs.
pub(super) struct Node {
    pub(super) creations: Creations<Simulated>,
    /// How often contexts have started here before.
    pub(super) life: u32,
    links: Rc<RefCell<Links>>,
}

impl Node {
    pub(super) fn new(context: usize, life: u32, links: &Rc<RefCell<Links>>) -> Self {
        let identity = (context as u128) << 64 | u128::from(life);
        Self { creations: Creations::new(identity), life, links: Rc::clone(links) }
    }

    /// Calls the state machine.
    pub(super) fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Creations<Simulated>, &mut Channels) -> T,
    ) -> T {
        act(&mut self.creations, &mut Channels(Rc::clone(&self.links)))
    }
}

/// Returns where a context listens.
pub(super) fn address(context: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, context as u8 + 1)), 7)
}

/// Returns the context that listens at an address.
pub(super) fn context_at(address: SocketAddr) -> usize {
    let IpAddr::V4(address) = address.ip() else { return usize::MAX };
    usize::from(address.octets()[3]).wrapping_sub(1)
}

/// Returns what a member creates. `differs`: with other settings than the others.
pub(super) fn joining(number: u64, plan: &GroupPlan, rank: u32, differs: bool) -> Joining {
    let addresses: Vec<SocketAddr> = plan.members.iter().map(|&it| address(it)).collect();
    let mut settings = TeamSettings::new(number, addresses.clone(), rank);
    settings.slots += u32::from(differs);
    let terms = Terms::Team(TeamTerms::new(&settings, "tcp", Protection::default()));
    let (neighbours, is_shared) = (plan.neighbours(rank), plan.is_shared);
    Joining { number, rank, addresses, neighbours, terms, is_shared }
}

/// Converts a time.
pub(super) fn at(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}
