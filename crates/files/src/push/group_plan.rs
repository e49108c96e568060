//! What is sent to the members of a group to start it.

use std::net::SocketAddr;

use plan::choice::Choice;
use rdmc::{Algorithm, Fabric};

use super::{
    effects::Effects,
    hosts::Hosts,
    parts::Part,
    settings::{PushError, PushSettings},
};
use crate::{
    group_terms::GroupTerms,
    messages::{Start, ToReceiver},
    ranges::RangeList,
};

/// A group that is to replicate a part.
pub(super) struct GroupPlan<'a> {
    pub(super) part: &'a Part,
    /// The root sends to all hosts itself.
    pub(super) is_direct: bool,
    /// Switches may copy if that was asked for.
    pub(super) may_switch: bool,
    /// The length of its messages for the choice of an algorithm, and the most of them under way.
    pub(super) messages: (u64, u32),
    pub(super) settings: &'a PushSettings,
    pub(super) hosts: &'a Hosts<'a>,
    /// Where the root's context listens.
    pub(super) listening: SocketAddr,
    pub(super) fabric: &'a Fabric,
}

impl GroupPlan<'_> {
    /// Starts the group: the root joins unless a host is the source, and its members are notified. Returns its number, and how the
    /// members relay.
    ///
    /// Errors: those that end the push.
    pub(super) fn begin(&self, effects: &mut impl Effects) -> Result<(u64, Choice), PushError> {
        let number = effects.group_number()?;
        let (start, choice) = self.start(number);
        if self.part.source.is_none() {
            effects.join(&start)?;
        }
        let hosts = self.part.source.iter().chain(&self.part.hosts);
        for (&host, start) in hosts.zip(start.told_from(u32::from(self.part.source.is_none()))?) {
            effects.send_message(host, &ToReceiver::Start(start));
        }
        Ok((number, choice))
    }

    /// The message for rank 0, which is the root unless a host is the source.
    fn start(&self, number: u64) -> (Start, Choice) {
        let mut addresses = Vec::new();
        let mut racks = Vec::new();
        let own = self.hosts.own_address(self.listening);
        if self.part.source.is_none() {
            addresses.push(own);
            racks.push(self.settings.root_rack);
        }
        for &host in self.part.source.iter().chain(&self.part.hosts) {
            let known = &self.hosts[host];
            addresses.extend(known.ip.map(|ip| SocketAddr::new(ip, known.port)));
            racks.push(known.plan.rack);
        }
        let (message_bytes, messages_in_flight) = self.messages;
        let (algorithm, fabric) = (self.algorithm(), self.fabric);
        let choice = self.settings.choose(algorithm, &racks, message_bytes, fabric, own.ip());
        let group = self.settings.group_terms(number, &choice, addresses, racks);
        let group = GroupTerms { messages_in_flight, ..group };
        let (ranges, reads) = (RangeList::from(&self.part.ranges), self.part.reads);
        (Start { group, ranges, reads }, choice)
    }

    /// The requested algorithm; `None` for the fastest. Switches copy only parts of the object, and what the root sends.
    fn algorithm(&self) -> Option<Algorithm> {
        if self.is_direct {
            return Some(Algorithm::Sequential);
        }
        let can_copy = self.part.source.is_none() && !self.part.is_listing() && self.may_switch;
        self.settings.algorithm.filter(|&asked| asked != Algorithm::InSwitch || can_copy)
    }
}
