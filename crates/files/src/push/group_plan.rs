//! What the members of a group are told to start it.

use std::net::SocketAddr;

use plan::choice::Choice;
use rdmc::{Algorithm, Fabric};

use super::{hosts::Hosts, parts::Part, settings::PushSettings};
use crate::{messages::Start, ranges::RangeList};

/// A group that is to replicate a part.
pub(super) struct GroupPlan<'a> {
    pub(super) part: &'a Part,
    /// `None` for the fastest.
    pub(super) algorithm: Option<Algorithm>,
    /// The length of its messages for the choice of an algorithm, and the most of them under way.
    pub(super) messages: (u64, u32),
}

impl GroupPlan<'_> {
    /// The message for rank 0, which is the root unless a host is the source. `here`: where the root listens, and the fabric.
    pub(super) fn start(
        &self,
        number: u64,
        settings: &PushSettings,
        hosts: &Hosts<'_>,
        (listening, fabric): (SocketAddr, &Fabric),
    ) -> (Start, Choice) {
        let mut addresses = Vec::new();
        let mut racks = Vec::new();
        if self.part.source.is_none() {
            addresses.push(hosts.own_address(listening));
            racks.push(settings.root_rack);
        }
        for &host in self.part.source.iter().chain(&self.part.hosts) {
            let known = &hosts[host];
            addresses.extend(known.ip.map(|ip| SocketAddr::new(ip, known.port)));
            racks.push(known.plan.rack);
        }
        let (message_bytes, messages_in_flight) = self.messages;
        let choice = settings.choose(self.algorithm, &racks, message_bytes, fabric);
        let window = settings.window(addresses.len(), choice.block_bytes);
        let start = Start {
            group: number,
            rank: 0,
            ranges: RangeList::from(&self.part.ranges),
            addresses,
            racks,
            algorithm: choice.algorithm.code(),
            block_bytes: choice.block_bytes,
            window_receives: window.receives,
            window_sends: window.sends,
            messages_in_flight,
            offload: settings.offload,
        };
        (start, choice)
    }
}
