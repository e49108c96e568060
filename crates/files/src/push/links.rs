//! Who sends to whom in a session whose hosts fetch: each gets the object from one member by a link ([`crate::link`]), as
//! [`schedule::attach`] decides. If several hosts with the whole object are idle, a host may get shares of it from all of them
//! ([`super::shares`], [`super::several_senders`]).
//!
//! Hosts come at any time, and leave once they have published their copies. A link that breaks, or brings other bytes than the
//! root has, is replaced; two members between which that happens again and again do not send to each other any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use schedule::{Attached, ChainMember, attach};

use super::{
    effects::Effects,
    group::PushGroup,
    host::{Host, Step},
    link_rates::LinkRates,
    pairs::Pairs,
    parts::Part,
    regroup::{CUTS_MAX, REGROUP_PART},
    several_senders::{Heads, SeveralSenders},
    shares::Shares,
};
use crate::{
    messages::ToReceiver,
    ranges::Ranges,
    resume::{ChunkDigests, Chunking},
};

/// The most digests in one message.
const DIGESTS_MAX: usize = 2048;
/// How often links between two members may break before they do not send to each other any more.
const BROKEN_MAX: u32 = 3;
/// The same for links that bring other bytes than the root has.
const ALTERED_MAX: u32 = 2;
/// In how many pieces an object is cut into shares.
const STRIPES: u64 = 16;
/// For how long a host that has everything stays for one that lacks little more than what is under way.
const LAST_CHUNKS_TIME: Duration = Duration::from_millis(500);
/// That is at most this fraction of the object: hosts report five times a second how much they have.
const LAST_CHUNKS_PART: u64 = 32;
/// The reason for a host that gets other bytes than the root has from the root itself.
const ALTERED_IN_VAIN: &str = "bytes that it received were changed in transit, also on the way from the server itself: its link, its \
                               memory or that of the server is faulty";
/// The reason for a host to which nobody can send.
const CUT_OFF: &str = "neither the server nor another host that has the object can connect to it: is there a firewall between them? \
                       see --ports";

/// What is known of all links of a session.
#[derive(Debug)]
pub(super) struct Links {
    chunking: Chunking,
    /// The digests of chunks in the order in which the root has read them.
    digests: Vec<(u32, [u8; 32])>,
    /// What was or is being read.
    requested: Ranges,
    /// How many of them were sent to each host.
    told: BTreeMap<usize, usize>,
    /// Members that do not send to each other.
    apart: Pairs,
    /// How often a link from a member to a host has broken; `None` is the root.
    broken: BTreeMap<(Option<usize>, usize), u32>,
    /// How often it has brought other bytes.
    altered: BTreeMap<(Option<usize>, usize), u32>,
    /// How often a host could not join for a reason of its own.
    own_errors: BTreeMap<usize, u32>,
    /// To how many hosts each has sent.
    served: BTreeMap<usize, u64>,
    /// How often the shares that a host gets were cut anew. After [`CUTS_MAX`] times one member sends all.
    cuts: BTreeMap<usize, u32>,
    rates: LinkRates,
    several: SeveralSenders,
}

/// What links are to be begun and ended.
#[derive(Default, Debug)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    /// Groups whose host has to get another sender.
    pub(super) released: Vec<u64>,
    /// Hosts to give up, with the reason.
    pub(super) given_up: Vec<(usize, String)>,
}

impl Links {
    /// For an object with this division.
    pub(super) fn new(chunking: Chunking) -> Self {
        Self {
            chunking,
            digests: Vec::new(),
            requested: Ranges::default(),
            told: BTreeMap::new(),
            apart: Pairs::default(),
            broken: BTreeMap::new(),
            altered: BTreeMap::new(),
            own_errors: BTreeMap::new(),
            served: BTreeMap::new(),
            cuts: BTreeMap::new(),
            rates: LinkRates::default(),
            several: SeveralSenders::default(),
        }
    }

    /// Length of most messages.
    pub(super) fn message_bytes(&self) -> u64 {
        self.chunking.chunk_bytes.min(self.chunking.bytes)
    }

    /// What has to be read so that a host that has these ranges can compare what it gets; empty if it was requested before.
    pub(super) fn request(&mut self, has: &Ranges) -> Ranges {
        let lacking = self.lacking(has);
        let new: Ranges = lacking.iter().flat_map(|range| self.requested.gaps(range)).collect();
        self.requested.extend(new.iter());
        new
    }

    /// The chunks of which a host with these ranges lacks a part.
    fn lacking(&self, has: &Ranges) -> Ranges {
        let missing = has.missing(self.chunking.bytes);
        missing.iter().map(|range| self.chunking.whole(range)).collect()
    }

    /// The root has read further chunks.
    pub(super) fn on_read(&mut self, ChunkDigests(digests): ChunkDigests) {
        self.digests.extend(digests);
    }

    /// Sends hosts the digests that they do not have. Only to those that have been told the fabric.
    pub(super) fn tell(&mut self, effects: &mut impl Effects, hosts: &[Host]) {
        for (index, host) in hosts.iter().enumerate() {
            if !matches!(host.step, Step::Starting(_) | Step::Ready) {
                continue;
            }
            let told = self.told.entry(index).or_insert(0);
            for part in self.digests[*told..].chunks(DIGESTS_MAX) {
                effects.send_message(index, &ToReceiver::Chunks(ChunkDigests(part.to_vec())));
                *told += part.len();
            }
        }
    }

    /// Whether a host with a verified copy stays for those that get its last chunks, at most [`LAST_CHUNKS_TIME`]. Others get the rest
    /// from another member.
    pub(super) fn needs(
        &self,
        host: usize,
        hosts: &[Host],
        groups: &BTreeMap<u64, PushGroup>,
        now: Duration,
    ) -> bool {
        let few = self.chunking.bytes / LAST_CHUNKS_PART + self.chunking.chunk_bytes;
        let gets_last = |group: &PushGroup| {
            group.part.source == Some(host)
                && !group.is_failing()
                && group.left(hosts, self.chunking.bytes) <= few
        };
        now < hosts[host].progressed_at + LAST_CHUNKS_TIME && groups.values().any(gets_last)
    }

    /// When something is due if nothing happens.
    pub(super) fn deadline(&self, hosts: &[Host], now: Duration) -> Option<Duration> {
        let verified = hosts.iter().filter(|host| host.step == Step::Verified);
        let times = verified.map(|host| host.progressed_at + LAST_CHUNKS_TIME);
        times
            .chain(self.rates.deadline())
            .chain(self.several.deadline())
            .filter(|&at| now < at)
            .min()
    }

    /// The links that have to begin and end, given those that there are.
    pub(super) fn plan(
        &mut self,
        hosts: &[Host],
        groups: &BTreeMap<u64, PushGroup>,
        shares: &Shares<'_>,
        now: Duration,
    ) -> Plan {
        let mut released = self.rates.judge(hosts, groups, self.chunking.bytes, now);
        released.extend(self.uneven(hosts, groups));
        if !self.several.is_known() {
            let heads = self.heads(hosts, groups);
            let replaced = self.several.advance(&heads, hosts, self.chunking.bytes, now);
            released.extend(replaced.into_iter().flat_map(|host| links_to(host, groups)));
        }
        let has_link = |host: usize| groups.values().any(|group| group.part.hosts.contains(&host));
        let waits = |host: usize| {
            hosts[host].is_ready() && !self.is_complete(&hosts[host]) && !has_link(host)
        };
        if !(0..hosts.len()).any(waits) {
            return Plan { released, ..Plan::default() };
        }
        let members = Members::new(hosts, groups);
        let listed: Vec<ChainMember> =
            members.hosts().map(|host| self.member(host, hosts, &members)).collect();
        let is_apart =
            |one: usize, other: usize| match (members.host_at(one), members.host_at(other)) {
                (Some(one), other) | (other, Some(one)) => self.apart.has(one, other),
                (None, None) => false,
            };
        let Attached { links, blocked, cut_off } = attach(&listed, is_apart);
        let mut plan = Plan { released, ..Plan::default() };
        let links: Vec<(Option<usize>, Option<usize>)> = links
            .into_iter()
            .map(|(from, to)| (members.host_at(from), members.host_at(to)))
            .collect();
        let mut idle = self.idle(hosts, groups);
        links
            .iter()
            .filter_map(|(source, _)| *source)
            .for_each(|host| idle.retain(|&it| it != host));
        for (source, to) in links {
            let Some(to) = to else { continue };
            let parts = self.shares_for(to, source, &mut idle, hosts, shares);
            for host in parts.iter().filter_map(|part| part.source) {
                *self.served.entry(host).or_insert(0) += 1;
            }
            plan.parts.extend(parts);
        }
        let blocked: Vec<usize> =
            blocked.into_iter().filter_map(|at| members.host_at(at)).collect();
        let is_released = |group: &PushGroup| {
            !group.is_failing() && group.part.source.is_some_and(|host| blocked.contains(&host))
        };
        let others = groups.iter().filter(|(_, group)| is_released(group));
        plan.released.extend(others.map(|(&number, _)| number));
        let cut_off = cut_off.into_iter().filter_map(|at| members.host_at(at));
        plan.given_up = cut_off.map(|host| (host, self.why_cut_off(host))).collect();
        plan
    }

    /// Hosts with the whole object that are no senders now.
    fn idle(&self, hosts: &[Host], groups: &BTreeMap<u64, PushGroup>) -> Vec<usize> {
        let senders: BTreeSet<usize> =
            groups.values().filter_map(|group| group.part.source).collect();
        let is_idle = |host: &usize| !senders.contains(host) && self.can_send_all(*host, hosts);
        (0..hosts.len()).filter(is_idle).collect()
    }

    fn can_send_all(&self, index: usize, hosts: &[Host]) -> bool {
        let host = &hosts[index];
        let can_send = host.may_send() && !host.keeps_unread && self.is_complete(host);
        can_send && !self.alters(Some(index))
    }

    /// The hosts at the head of chains from hosts that have everything.
    fn heads(&self, hosts: &[Host], groups: &BTreeMap<u64, PushGroup>) -> Heads {
        let running = groups.iter().filter(|(_, group)| group.is_running());
        let of_holders = running.filter(|(_, group)| {
            group.part.source.is_some_and(|source| self.can_send_all(source, hosts))
        });
        let (mut alone, mut shared) = (Vec::new(), Vec::new());
        for (&link, group) in of_holders {
            match group.part.shares {
                1 => alone.extend(group.part.hosts.first().map(|&host| (host, link))),
                _ => shared.extend(&group.part.hosts),
            }
        }
        Heads { alone, shared, are_some_idle: !self.idle(hosts, groups).is_empty() }
    }

    /// What a host lacks, from this member; if that is a host that has everything, in shares from it and idle ones, which then are
    /// taken out of `idle`.
    fn shares_for(
        &self,
        to: usize,
        source: Option<usize>,
        idle: &mut Vec<usize>,
        hosts: &[Host],
        shares: &Shares<'_>,
    ) -> Vec<Part> {
        let ranges = self.lacking(&hosts[to].has);
        let is_cut_often = self.cuts.get(&to).is_some_and(|&cuts| cuts >= CUTS_MAX);
        let has_one = is_cut_often || !self.several.has_several(to);
        if has_one || !source.is_some_and(|host| self.can_send_all(host, hosts)) {
            return vec![Part::of(source, vec![to], ranges)];
        }
        let others = idle.iter().copied().filter(|&host| !self.apart.has(host, Some(to)));
        let members: Vec<Option<usize>> = [source].into_iter().chain(others.map(Some)).collect();
        let mut senders = shares.senders(ranges.bytes(), members, |_| 0);
        shares.leave_out_slow(ranges.bytes(), &mut senders);
        // A chunk is in one share, and the shares of a stripe may be short.
        let shares = Shares { bytes_min: 0, unit: self.chunking.chunk_bytes, ..*shares };
        let mut cut: BTreeMap<Option<usize>, Ranges> = BTreeMap::new();
        for stripe in self.stripes(&ranges) {
            for (sender, share) in shares.cut(&stripe, senders.clone()) {
                cut.entry(sender).or_default().extend(share.iter());
            }
        }
        idle.retain(|&host| !cut.contains_key(&Some(host)));
        let count = cut.len();
        let part = |(source, ranges)| Part { shares: count, ..Part::of(source, vec![to], ranges) };
        cut.into_iter().map(part).collect()
    }

    /// Consecutive pieces of these ranges. Senders of shares have one of each, so that all send at about the same place of the object:
    /// the root reads it in order, and files complete in order.
    fn stripes(&self, ranges: &Ranges) -> impl Iterator<Item = Ranges> {
        let bytes =
            (self.chunking.bytes / STRIPES).max(1).next_multiple_of(self.chunking.chunk_bytes);
        let count = self.chunking.bytes.div_ceil(bytes);
        let stripes = (0..count).map(move |stripe| {
            let stripe = (stripe * bytes, (stripe + 1) * bytes);
            ranges.intersection(&[stripe].into_iter().collect())
        });
        stripes.filter(|stripe| !stripe.is_empty())
    }

    /// The links of hosts that no longer get all shares of what they lack: one has failed, or is done while much of the others is
    /// left. They are cut anew.
    fn uneven(&mut self, hosts: &[Host], groups: &BTreeMap<u64, PushGroup>) -> Vec<u64> {
        let mut by_host: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (&number, group) in groups.iter().filter(|(_, group)| group.part.shares > 1) {
            by_host.entry(group.part.hosts[0]).or_default().push(number);
        }
        let mut uneven = Vec::new();
        for (host, links) in by_host {
            let its = || links.iter().map(|link| &groups[link]);
            let is_whole = links.len() == groups[&links[0]].part.shares;
            if is_whole || its().any(PushGroup::is_failing) {
                continue;
            }
            let coming: Ranges = its().flat_map(|group| group.part.ranges.iter()).collect();
            let lacking = self.lacking(&hosts[host].has);
            let is_covered = lacking.iter().all(|range| coming.covers(range));
            let left = self.chunking.bytes.saturating_sub(hosts[host].bytes);
            if !is_covered || left > self.chunking.bytes / REGROUP_PART {
                *self.cuts.entry(host).or_insert(0) += 1;
                uneven.extend(links);
            }
        }
        uneven
    }

    fn is_complete(&self, host: &Host) -> bool {
        host.replication.is_some() || host.has.covers((0, self.chunking.bytes))
    }

    /// A member in the list that [`attach`] gets; `None` is the root.
    fn member(&self, host: Option<usize>, hosts: &[Host], members: &Members) -> ChainMember {
        let is_last = self.alters(host) || host.is_some_and(|host| self.rates.is_slow(host));
        let Some(index) = host else { return ChainMember { is_last, ..ChainMember::root() } };
        let known = &hosts[index];
        ChainMember {
            has: known.has.bytes().max(known.bytes),
            is_complete: self.is_complete(known),
            sender: members.senders.get(&index).copied(),
            is_busy: members.busy.contains(&index),
            served: self.served.get(&index).copied().unwrap_or(0),
            // What it keeps unread may differ from the source.
            sends: !known.keeps_unread && known.may_send(),
            is_last,
        }
    }

    /// Whether hosts got other bytes from this member than the root has.
    fn alters(&self, member: Option<usize>) -> bool {
        let times = self.altered.iter().filter(|((source, _), _)| *source == member);
        times.map(|(_, times)| times).sum::<u32>() >= ALTERED_MAX
    }

    fn why_cut_off(&self, host: usize) -> String {
        let by_root = self.altered.get(&(None, host)).is_some_and(|&times| times >= ALTERED_MAX);
        if by_root { ALTERED_IN_VAIN } else { CUT_OFF }.to_owned()
    }

    /// A link has failed. Returns hosts to give up, with the reason.
    pub(super) fn on_failed(
        &mut self,
        group: &PushGroup,
        silent: &[usize],
        hosts: &[Host],
    ) -> Vec<(usize, String)> {
        let (source, Some(&host)) = (group.part.source, group.part.hosts.first()) else {
            return Vec::new();
        };
        if group.altered.contains(&host) {
            let times = self.altered.entry((source, host)).or_insert(0);
            *times += 1;
            if *times >= ALTERED_MAX {
                self.apart.add(host, source);
            }
            return Vec::new();
        }
        if group.has_lost() || !silent.is_empty() || !group.is_wanted {
            return Vec::new();
        }
        if !group.unjoined().is_empty() {
            self.apart.extend(group.unjoined());
            return Vec::new();
        }
        if !group.own_errors().is_empty() {
            let mut given_up = Vec::new();
            for (&host, why) in group.own_errors() {
                let times = self.own_errors.entry(host).or_insert(0);
                *times += 1;
                if *times >= BROKEN_MAX && hosts[host].is_ready() {
                    given_up.push((host, why.clone()));
                }
            }
            return given_up;
        }
        let times = self.broken.entry((source, host)).or_insert(0);
        *times += 1;
        if *times >= BROKEN_MAX {
            self.apart.add(host, source);
        }
        Vec::new()
    }
}

/// The links that bring a host something.
fn links_to(host: usize, groups: &BTreeMap<u64, PushGroup>) -> impl Iterator<Item = u64> {
    groups
        .iter()
        .filter(move |(_, group)| group.part.hosts.contains(&host) && !group.is_failing())
        .map(|(&number, _)| number)
}

/// The root and the hosts that can take part, in the order in which [`attach`] gets them.
struct Members {
    present: Vec<usize>,
    /// By host: the place in that order of the member that sends to it.
    senders: BTreeMap<usize, usize>,
    /// Hosts whose links are ending.
    busy: BTreeSet<usize>,
}

impl Members {
    fn new(hosts: &[Host], groups: &BTreeMap<u64, PushGroup>) -> Self {
        // One that leaves sends on to those that get the object from it.
        let running = groups.values().filter(|group| !group.is_failing());
        let sources: BTreeSet<usize> = running.filter_map(|group| group.part.source).collect();
        let is_present = |&host: &usize| hosts[host].may_send() || sources.contains(&host);
        let present: Vec<usize> = (0..hosts.len()).filter(is_present).collect();
        let places: BTreeMap<usize, usize> = present.iter().copied().zip(1..).collect();
        let mut senders = BTreeMap::new();
        for group in groups.values().filter(|group| !group.is_failing()) {
            let source = match group.part.source {
                None => Some(0),
                Some(host) => places.get(&host).copied(),
            };
            senders.extend(group.part.hosts.iter().filter_map(|&host| Some((host, source?))));
        }
        // A host whose link fails still writes what that has brought.
        let failing = groups.values().filter(|group| group.is_failing());
        let busy = failing.flat_map(|group| group.part.hosts.iter().copied()).collect();
        Self { present, senders, busy }
    }

    /// `None` is the root.
    fn hosts(&self) -> impl Iterator<Item = Option<usize>> {
        [None].into_iter().chain(self.present.iter().copied().map(Some))
    }

    fn host_at(&self, place: usize) -> Option<usize> {
        place.checked_sub(1).map(|place| self.present[place])
    }
}
