//! A context: its creations, and where it is.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use rdmc::{
    Algorithm, Protection, TeamSettings,
    creation::{
        choice::{RootChoice, parent},
        creations::Creations,
        joining::{Joining, Wants},
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

/// Returns what the root of a group has chosen. `differs`: other settings than the other members have.
pub(super) fn choice(differs: bool) -> RootChoice {
    RootChoice::new(Algorithm::Chain, 1 + u64::from(differs))
}

/// Returns what a member asks of which one if it leaves open what the root has chosen.
pub(super) fn question(number: u64, plan: &GroupPlan, rank: u32) -> Option<Joining> {
    let asked = parent(rank, 0, plan.members.len() as u32);
    let asked = asked.filter(|_| plan.seats[rank as usize].is_open)?;
    Some(joining(number, plan, rank, Wants::Choice(asked)))
}

/// Returns what a member needs of its neighbours, with this choice of the root.
pub(super) fn links(number: u64, plan: &GroupPlan, rank: u32, chosen: RootChoice) -> Joining {
    let mut settings = TeamSettings::new(number, addresses(plan), rank);
    settings.slots += u32::from(chosen != choice(false));
    let terms = Terms::Team(TeamTerms::new(&settings, "tcp", Protection::default()));
    let neighbours = plan.neighbours(rank);
    joining(number, plan, rank, Wants::Links { neighbours, terms, choice: Some(chosen) })
}

fn joining(number: u64, plan: &GroupPlan, rank: u32, wants: Wants) -> Joining {
    let (addresses, is_shared) = (addresses(plan), plan.is_shared);
    // Only named in errors.
    let timeout = Duration::ZERO;
    Joining { number, rank, root: Some(0), addresses, timeout, wants, is_shared }
}

fn addresses(plan: &GroupPlan) -> Vec<SocketAddr> {
    plan.members.iter().map(|&it| address(it)).collect()
}

/// Converts a time.
pub(super) fn at(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}
