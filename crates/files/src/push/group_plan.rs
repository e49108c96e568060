//! What the members of a group are told to start it.

use std::net::SocketAddr;

use plan::choice::Choice;
use rdmc::{Algorithm, Fabric};

use super::{hosts::Hosts, parts::Part, settings::PushSettings};
use crate::{group_terms::GroupTerms, messages::Start, ranges::RangeList};

/// A group that is to replicate a part.
pub(super) struct GroupPlan<'a> {
    pub(super) part: &'a Part,
    /// `None` for the fastest.
    pub(super) algorithm: Option<Algorithm>,
    /// The length of its messages for the choice of an algorithm, and the most of them under way.
    pub(super) messages: (u64, u32),
    pub(super) settings: &'a PushSettings,
    pub(super) hosts: &'a Hosts<'a>,
    /// Where the root's context listens.
    pub(super) listening: SocketAddr,
    pub(super) fabric: &'a Fabric,
}

impl GroupPlan<'_> {
    /// The message for rank 0, which is the root unless a host is the source.
    pub(super) fn start(&self, number: u64) -> (Start, Choice) {
        let mut addresses = Vec::new();
        let mut racks = Vec::new();
        if self.part.source.is_none() {
            addresses.push(self.hosts.own_address(self.listening));
            racks.push(self.settings.root_rack);
        }
        for &host in self.part.source.iter().chain(&self.part.hosts) {
            let known = &self.hosts[host];
            addresses.extend(known.ip.map(|ip| SocketAddr::new(ip, known.port)));
            racks.push(known.plan.rack);
        }
        let (message_bytes, messages_in_flight) = self.messages;
        let choice = self.settings.choose(self.algorithm, &racks, message_bytes, self.fabric);
        let group = self.settings.group_terms(number, &choice, addresses, racks);
        let group = GroupTerms { messages_in_flight, ..group };
        (Start { group, ranges: RangeList::from(&self.part.ranges) }, choice)
    }
}
