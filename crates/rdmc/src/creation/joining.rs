//! What is being created at one member.

use std::{net::SocketAddr, time::Duration};

use super::{
    choice::{Question, RootChoice},
    messages::{Asks, Request},
    terms::{Addresses, GroupTerms, TeamTerms, Terms},
};
use crate::{ContextSettings, GroupSettings, Offload, TeamSettings};

/// What is being created at one member.
pub struct Joining {
    /// Number of the group or the team.
    pub number: u64,
    /// This member's rank.
    pub rank: u32,
    /// The rank of the group's root; `None` for a team.
    pub root: Option<u32>,
    /// Where each member listens, by rank.
    pub addresses: Vec<SocketAddr>,
    /// How long creating it may take, of which some may have passed.
    pub timeout: Duration,
    /// What this member needs of the others now.
    pub wants: Wants,
    /// Whether connections may be shared with other groups, and links be channels of those.
    pub is_shared: bool,
}

/// What a member needs of the others.
pub enum Wants {
    /// What the root has chosen, to be asked of this member, the first step if this one leaves it open.
    Choice(u32),
    /// The links to its neighbours.
    Links {
        /// The members to which this one has links.
        neighbours: Vec<u32>,
        /// What has to be the same at all members.
        terms: Terms,
        /// What is answered to others that ask what the root has chosen; `None` for a team.
        choice: Option<RootChoice>,
    },
}

impl Joining {
    /// Asks a member what the root of a group has chosen.
    pub(crate) fn for_choice(of: &GroupSettings, member: u32, context: &ContextSettings) -> Self {
        let wants = Wants::Choice(member);
        Self::of_group(of, wants, context, true)
    }

    /// Asks the neighbours in a group for links.
    pub(crate) fn for_links(
        of: &GroupSettings,
        made: &engine::GroupSettings,
        offload: Offload,
        context: &ContextSettings,
    ) -> Self {
        let ContextSettings { streams, fabric, .. } = context;
        let protection = context.tcp_protection();
        let addresses = &of.members;
        let terms = GroupTerms::new(made, addresses, *streams, &fabric.name(), offload, protection);
        let wants = Wants::Links {
            neighbours: made.neighbours(),
            terms: Terms::Group(terms),
            choice: Some(RootChoice::of(made)),
        };
        Self::of_group(of, wants, context, !made.is_in_switch())
    }

    fn of_group(
        of: &GroupSettings,
        wants: Wants,
        context: &ContextSettings,
        is_shared: bool,
    ) -> Self {
        Self {
            number: of.number,
            rank: of.rank,
            root: Some(of.root),
            addresses: of.members.clone(),
            timeout: of.connect_timeout.unwrap_or(context.connect_timeout),
            wants,
            is_shared,
        }
    }

    /// Asks the neighbours in a team for links.
    pub(crate) fn for_team(
        of: &TeamSettings,
        made: &team::TeamSettings,
        context: &ContextSettings,
    ) -> Self {
        let fabric = context.fabric.name();
        let terms = Terms::Team(TeamTerms::new(of, &fabric, context.tcp_protection()));
        Self {
            number: made.number,
            rank: made.core.rank,
            root: None,
            addresses: of.members.clone(),
            timeout: of.connect_timeout.unwrap_or(context.connect_timeout),
            wants: Wants::Links { neighbours: made.links(), terms, choice: None },
            is_shared: false,
        }
    }

    /// Returns the members that this one asks.
    pub(crate) fn asked(&self) -> Vec<u32> {
        match &self.wants {
            Wants::Choice(member) => vec![*member],
            Wants::Links { neighbours, .. } => {
                neighbours.iter().copied().filter(|&rank| rank < self.rank).collect()
            }
        }
    }

    /// Returns the members that ask this one for a link.
    pub(crate) fn expected(&self) -> Vec<u32> {
        match &self.wants {
            Wants::Choice(_) => Vec::new(),
            Wants::Links { neighbours, .. } => {
                neighbours.iter().copied().filter(|&rank| rank >= self.rank).collect()
            }
        }
    }

    /// Returns the terms of links; `None` while links are not wanted yet.
    pub(crate) fn terms(&self) -> Option<&Terms> {
        match &self.wants {
            Wants::Choice(_) => None,
            Wants::Links { terms, .. } => Some(terms),
        }
    }

    /// Asks a member for what is wanted of it. `context` and `attempt`: see [`Request`].
    pub(crate) fn asks(&self, to: u32, context: u128, attempt: u64, timeout_ms: u64) -> Asks {
        let (group, from) = (self.number, self.rank);
        match &self.wants {
            Wants::Choice(_) => Asks::Choice(Question {
                group,
                from,
                to,
                root: self.root.unwrap_or_default(),
                addresses: Addresses::new(&self.addresses),
                timeout_ms,
            }),
            Wants::Links { terms, .. } => Asks::Link(Request {
                group,
                from,
                to,
                context,
                attempt,
                terms: terms.clone(),
                offer: Vec::new(),
                timeout_ms,
            }),
        }
    }
}
