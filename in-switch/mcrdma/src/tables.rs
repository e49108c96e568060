//! A switch's match-action tables.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::Arc,
};

use roce::{Aeth, Bth, Headers, IpHeader, Mac, NakCode, Opcode, Patch, Serial, Syndrome};

use crate::{
    AnswerCounters, AnswerKind, Branch, Counter, Counters, GROUPS_MAX, GroupCounters, GroupKey,
    Merged, Merger, Merging, PLACES_MAX, Port, REGIONS_TOTAL_MAX, Refused, Replication, Source,
    Traced, TracedPacket,
    group::{check_sources, is_among},
};

/// The action for a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Forwarded as usual, unchanged.
    Pass,
    /// Dropped.
    Drop,
    /// Rewritten, then forwarded as usual.
    Change(Patch),
    /// Replaced by these copies; [`Branch::patch`] has each one's rewrite.
    Copy(Arc<Replication>),
    /// Answered with this packet.
    Refuse(Headers),
}

/// A group that is copied.
struct Group {
    replication: Arc<Replication>,
    packets: Counters,
    request_bytes: u64,
    /// The number of the packet that came last, since its branches were written.
    entered: Option<Serial>,
    trace: Option<Traced>,
}

impl Group {
    /// Notes a packet if it is traced.
    fn trace(&mut self, at: (u64, Port), headers: &Headers, decision: Counter) {
        if let Some(trace) = &mut self.trace {
            trace.add(TracedPacket::new(at.0, at.1, headers, decision));
        }
    }
}

/// A sender whose first switch this is.
struct Sender {
    /// The group whose answers are merged: others may use the same queue pair and only be copied here.
    key: GroupKey,
    merging: Merging,
    merger: Merger,
    /// Where each member's last answer was received, and its Ethernet header.
    ways: HashMap<IpAddr, (Port, Vec<u8>)>,
    /// In the order of `merging.members`.
    answered: Vec<AnswerCounters>,
    is_traced: bool,
}

impl Sender {
    /// A member's answer as it would come from it, the way of its last one.
    fn frame(
        &self,
        member: IpAddr,
        psn: Serial,
        aeth: Aeth,
        sender_qpn: u32,
    ) -> Option<(Port, Vec<u8>)> {
        let (port, ethernet) = self.ways.get(&member)?;
        Some((*port, answer_frame(ethernet, member, self.key.sender, sender_qpn, psn, aeth)?))
    }

    /// Place of a member, removed ones too: their answers are dropped, since the sender would take them for those of all.
    fn place(&self, address: IpAddr) -> Option<usize> {
        self.merging.members.iter().position(|member| member.address == address)
    }
}

/// A member's answer to a sender's queue pair, behind this Ethernet header. `None`: addresses of two families.
#[must_use]
pub fn answer_frame(
    ethernet: &[u8],
    member: IpAddr,
    sender: IpAddr,
    sender_qpn: u32,
    psn: Serial,
    aeth: Aeth,
) -> Option<Vec<u8>> {
    let ip = IpHeader::new(member, sender).ok()?;
    let mut headers = Headers::new(ip, Bth::new(Opcode::Acknowledge, sender_qpn, psn));
    headers.aeth = Some(aeth);
    let mut frame = ethernet.to_vec();
    frame.resize(ethernet.len() + headers.packet_bytes(0), 0);
    headers.write(&[], &mut frame[ethernet.len()..]).ok()?;
    Some(frame)
}

/// A switch's tables.
#[derive(Default)]
pub struct Tables {
    groups: HashMap<GroupKey, Group>,
    /// By the sender's address and queue pair.
    senders: HashMap<(IpAddr, u32), Sender>,
    /// Number of branches of all groups.
    copies: usize,
    /// Number of members of all groups whose answers are merged here, removed ones included.
    members: usize,
    /// Number of memory regions of all groups.
    regions: usize,
    /// Virtual addresses for which this switch answers ARP, and how many groups have each.
    addresses: HashMap<IpAddr, (Mac, usize)>,
    /// Counters of the packets that were looked up.
    pub counters: Counters,
}

const COPIES: &str = "copies";
const REGIONS: &str = "memory regions";

fn check_capacity(
    key: GroupKey,
    what: &'static str,
    others: usize,
    most: usize,
    count: usize,
) -> Result<(), Refused> {
    let free = most - others;
    if count <= free {
        return Ok(());
    }
    Err(Refused::CapacityExceeded { key, what, count, free, most })
}

impl Tables {
    /// Inserts a group; with `merging` where this is the sender's first switch.
    ///
    /// Errors: it is invalid, or exceeds a limit. Nothing has changed then.
    pub fn insert(
        &mut self,
        key: GroupKey,
        mut replication: Replication,
        merging: Option<Merging>,
    ) -> Result<(), Refused> {
        replication.sort_regions();
        replication.check(key)?;
        if self.groups.contains_key(&key) {
            return Err(Refused::Duplicate { key });
        }
        if self.groups.len() == GROUPS_MAX {
            return Err(Refused::TableFull { key });
        }
        check_capacity(key, COPIES, self.copies, PLACES_MAX, replication.branches.len())?;
        check_capacity(key, REGIONS, self.regions, REGIONS_TOTAL_MAX, replication.regions())?;
        if let Some(merging) = &merging {
            let members = merging.members.len();
            check_capacity(key, "members that answer", self.members, PLACES_MAX, members)?;
        }
        if let Some(merging) = merging {
            merging.check(key)?;
            let (sender, qpn) = (key.sender, replication.sender_qpn);
            let Entry::Vacant(place) = self.senders.entry((sender, qpn)) else {
                return Err(Refused::QueuePairTaken { key, sender, qpn });
            };
            if let Some(mac) = merging.virtual_mac {
                let place = self.addresses.entry(merging.virtual_address).or_insert((mac, 0));
                // The latest Ethernet address counts.
                *place = (mac, place.1 + 1);
            }
            self.members += merging.members.len();
            let (merger, ways) = (Merger::new(&merging), HashMap::new());
            let answered = vec![AnswerCounters::default(); merging.members.len()];
            place.insert(Sender { key, merger, merging, ways, answered, is_traced: false });
        }
        self.copies += replication.branches.len();
        self.regions += replication.regions();
        let replication = Arc::new(replication);
        let packets = Counters::default();
        let group = Group { replication, packets, request_bytes: 0, entered: None, trace: None };
        self.groups.insert(key, group);
        Ok(())
    }

    /// Replaces a group's branches, as after a change of routes; the state of its answers and its counters are kept.
    /// Whether there is such a group.
    ///
    /// Errors: as [`Tables::insert`].
    pub fn replace(
        &mut self,
        key: GroupKey,
        mut replication: Replication,
    ) -> Result<bool, Refused> {
        replication.sort_regions();
        replication.check(key)?;
        let Some(group) = self.groups.get_mut(&key) else { return Ok(false) };
        let place = &mut group.replication;
        let copies = self.copies - place.branches.len();
        check_capacity(key, COPIES, copies, PLACES_MAX, replication.branches.len())?;
        let regions = self.regions - place.regions();
        check_capacity(key, REGIONS, regions, REGIONS_TOTAL_MAX, replication.regions())?;
        self.copies = copies + replication.branches.len();
        self.regions = regions + replication.regions();
        *place = Arc::new(replication);
        group.entered = None;
        Ok(true)
    }

    /// Changes the ingress ports of members' answers, as after a change of routes; addresses that are no
    /// members' are ignored. Whether there is such a group, whose answers are merged here.
    ///
    /// Errors: too many ports. Nothing has changed then.
    pub fn relocate(&mut self, key: GroupKey, now: &[Source]) -> Result<bool, Refused> {
        check_sources(key, now)?;
        let Some(address) = self.sender_address(key) else { return Ok(false) };
        let sender = self.senders.get_mut(&address);
        for member in sender.into_iter().flat_map(|sender| &mut sender.merging.members) {
            if let Some(now) = now.iter().find(|now| now.address == member.address) {
                member.ports.clone_from(&now.ports);
            }
        }
        Ok(true)
    }

    /// Removes a group. Whether it was there.
    pub fn remove(&mut self, key: GroupKey) -> bool {
        if let Some(address) = self.sender_address(key)
            && let Some(sender) = self.senders.remove(&address)
        {
            self.members -= sender.merging.members.len();
            if sender.merging.virtual_mac.is_some()
                && let Entry::Occupied(mut place) =
                    self.addresses.entry(sender.merging.virtual_address)
            {
                place.get_mut().1 -= 1;
                if place.get().1 == 0 {
                    place.remove();
                }
            }
        }
        let Some(Group { replication, .. }) = self.groups.remove(&key) else { return false };
        self.copies -= replication.branches.len();
        self.regions -= replication.regions();
        true
    }

    /// State of the group's answers, if this is its sender's first switch.
    #[must_use]
    pub fn merger(&self, key: GroupKey) -> Option<&Merger> {
        Some(&self.senders.get(&self.sender_address(key)?)?.merger)
    }

    /// No longer waits for a member's answers. Whether it was one, and not the last.
    ///
    /// The sender does not learn of it before the next answer: [`crate::Switch::remove_member`].
    pub fn remove_member(&mut self, key: GroupKey, member: IpAddr) -> bool {
        let address = self.sender_address(key);
        let sender = address.and_then(|address| self.senders.get_mut(&address));
        sender.is_some_and(|sender| sender.merger.remove(member))
    }

    /// If the group's members have acknowledged more than the sender knows of, as after a removal: a frame that tells it
    /// so when it is handled as received at that port.
    pub(crate) fn repeat(&self, key: GroupKey) -> Option<(Port, Vec<u8>)> {
        let (sender, qpn) = self.sender_address(key)?;
        let sender = self.senders.get(&(sender, qpn))?;
        let (member, psn, aeth) = sender.merger.repeat()?;
        sender.frame(member, psn, aeth, qpn)
    }

    /// A group's branches.
    #[must_use]
    pub fn replication(&self, key: GroupKey) -> Option<&Replication> {
        self.groups.get(&key).map(|group| &*group.replication)
    }

    /// The number of the packet of a group that came last, since the group was inserted or replaced.
    #[must_use]
    pub fn entered(&self, key: GroupKey) -> Option<Serial> {
        self.groups.get(&key)?.entered
    }

    /// How a group's answers are merged, if this is its sender's first switch.
    #[must_use]
    pub fn merging(&self, key: GroupKey) -> Option<&Merging> {
        Some(&self.senders.get(&self.sender_address(key)?)?.merging)
    }

    /// Key of a group in `senders`, if its answers are merged here.
    fn sender_address(&self, key: GroupKey) -> Option<(IpAddr, u32)> {
        let address = (key.sender, self.groups.get(&key)?.replication.sender_qpn);
        self.senders.get(&address).filter(|sender| sender.key == key).map(|_| address)
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, &Replication)> {
        self.groups.iter().map(|(key, group)| (*key, &*group.replication))
    }

    /// What was counted of a group since it was inserted.
    #[must_use]
    pub fn group_counters(&self, key: GroupKey) -> Option<GroupCounters> {
        let group = self.groups.get(&key)?;
        let sender = self.sender_address(key).and_then(|address| self.senders.get(&address));
        let members = sender.into_iter().flat_map(|sender| {
            let addresses = sender.merging.members.iter().map(|member| member.address);
            addresses.zip(sender.answered.iter().copied())
        });
        let (packets, request_bytes) = (group.packets, group.request_bytes);
        Some(GroupCounters { packets, request_bytes, members: members.collect() })
    }

    /// Begins to trace a group's packets, or ends it. Whether there is such a group.
    pub fn trace(&mut self, key: GroupKey, is_on: bool) -> bool {
        let sender = self.sender_address(key).and_then(|address| self.senders.get_mut(&address));
        sender.into_iter().for_each(|sender| sender.is_traced = is_on);
        let group = self.groups.get_mut(&key);
        group.map(|group| group.trace = is_on.then(Traced::default)).is_some()
    }

    /// Takes what was traced of a group. `None`: it is not there, or not traced.
    pub fn take_traced(&mut self, key: GroupKey) -> Option<Traced> {
        self.groups.get_mut(&key)?.trace.as_mut().map(Traced::take)
    }

    /// Counts for the switch, and for a group if it is there.
    fn count(&mut self, key: GroupKey, counter: Counter) {
        self.counters.count(counter);
        if let Some(group) = self.groups.get_mut(&key) {
            group.packets.count(counter);
        }
    }

    /// Counts the copies of a packet of a group, and notes it if it is traced; the copies of these branches failed.
    pub(crate) fn on_copied(
        &mut self,
        at: (u64, Port),
        headers: &Headers,
        count: u64,
        failed: u64,
    ) {
        let number = u64::from(failed.count_ones());
        let add = |counters: &mut Counters| {
            counters.count_many(Counter::Copy, count - number);
            counters.count_many(Counter::CopyFailed, number);
        };
        add(&mut self.counters);
        let Some(group) = self.groups.get_mut(&GroupKey::of(headers)) else { return };
        add(&mut group.packets);
        if let Some(trace) = &mut group.trace {
            let mut packet = TracedPacket::new(at.0, at.1, headers, Counter::Copy);
            let copies = group.replication.branches.iter().enumerate();
            packet.copies =
                copies.map(|(place, branch)| (branch.port, failed >> place & 1 == 0)).collect();
            trace.add(packet);
        }
    }

    /// A copy that was counted as sent was refused by its port.
    pub fn refuse_copy(&mut self, key: GroupKey) {
        let group = self.groups.get_mut(&key).map(|group| &mut group.packets);
        group.into_iter().chain([&mut self.counters]).for_each(Counters::refuse_copy);
    }

    /// The Ethernet address of a virtual address, if this switch answers ARP for it.
    #[must_use]
    pub fn mac(&self, address: IpAddr) -> Option<Mac> {
        self.addresses.get(&address).map(|(mac, _)| *mac)
    }

    /// Looks up a packet with these headers that was received at `port`, behind this Ethernet header. It has this many
    /// bytes, from its IP header on.
    ///
    /// Receivers check the ICRC of what is only forwarded. `is_intact` is called for packets that change
    /// state here or are answered here: answers, which are short, and requests that are refused.
    pub fn decide(
        &mut self,
        now_ns: u64,
        port: Port,
        ethernet: &[u8],
        headers: &Headers,
        bytes: u64,
        is_intact: impl FnOnce() -> bool,
    ) -> Decision {
        let decision = if headers.bth.opcode.has_payload() {
            self.replicate(now_ns, port, headers, bytes, is_intact)
        } else {
            self.answer(now_ns, port, ethernet, headers, is_intact)
        };
        decision.unwrap_or_else(|| {
            self.counters.count(Counter::Foreign);
            Decision::Pass
        })
    }

    /// `None`: of no group.
    fn replicate(
        &mut self,
        now_ns: u64,
        port: Port,
        headers: &Headers,
        bytes: u64,
        is_intact: impl FnOnce() -> bool,
    ) -> Option<Decision> {
        let key = GroupKey::of(headers);
        let group = self.groups.get_mut(&key)?;
        let replication = Arc::clone(&group.replication);
        let dropped = match () {
            () if !is_among(&replication.inputs, port) => Some(Counter::RequestMisplaced),
            () if headers.ip.hop_limit <= 1 => Some(Counter::RequestExpired),
            () => None,
        };
        if let Some(counter) = dropped {
            group.trace((now_ns, port), headers, counter);
            self.count(key, counter);
            return Some(Decision::Drop);
        }
        group.packets.count(Counter::Request);
        group.request_bytes += bytes;
        group.entered = Some(headers.bth.psn);
        self.counters.count(Counter::Request);
        let mut branches = replication.branches.iter();
        let (refusing, counter, code) = match headers.bth.opcode.is_unicast() {
            true => (branches.next(), Counter::RequestRefused, NakCode::InvalidRequest),
            false => {
                let unknown = branches.find(|branch| branch.patch(headers).is_none());
                (unknown, Counter::RegionUnknown, NakCode::RemoteAccess)
            }
        };
        let Some(branch) = refusing else { return Some(Decision::Copy(replication)) };
        let is_intact = is_intact();
        if let Some(group) = self.groups.get_mut(&key) {
            let decision = if is_intact { counter } else { Counter::IcrcError };
            group.trace((now_ns, port), headers, decision);
        }
        self.count(key, counter);
        if !is_intact {
            self.count(key, Counter::IcrcError);
            return Some(Decision::Drop);
        }
        Some(self.refuse(now_ns, code, key, replication.sender_qpn, branch, headers))
    }

    /// Answers a request for the member with this NAK, so that the sender's operation fails at once.
    fn refuse(
        &mut self,
        now_ns: u64,
        code: NakCode,
        key: GroupKey,
        sender_qpn: u32,
        branch: &Branch,
        asked: &Headers,
    ) -> Decision {
        let mut answer = Headers {
            ip: IpHeader { source: branch.target, target: key.sender, ..asked.ip },
            bth: Bth::new(Opcode::Acknowledge, sender_qpn, asked.bth.psn),
            reth: None,
            immediate: None,
            aeth: None,
        };
        if let Some(rewriting) = &branch.rewriting {
            answer.bth.psn = asked.bth.psn.plus(rewriting.psn_offset);
        }
        let syndrome = Syndrome::Nak(code);
        let aeth = Aeth { syndrome, msn: Serial::new(0) };
        answer.aeth = Some(aeth);
        // At another switch than the first, the answer is merged on its way to the sender.
        if let Some(sender) = self.senders.get_mut(&(key.sender, sender_qpn))
            && let Merged::Forward { psn, aeth } =
                sender.merger.answer(now_ns, branch.target, answer.bth.psn, aeth)
        {
            self.counters.count(Counter::NakForwarded);
            (answer.bth.psn, answer.aeth) = (psn, Some(aeth));
            answer.ip.source = sender.merging.virtual_address;
        }
        Decision::Refuse(answer)
    }

    /// `None`: not for a sender whose answers are merged here.
    fn answer(
        &mut self,
        now_ns: u64,
        port: Port,
        ethernet: &[u8],
        headers: &Headers,
        is_intact: impl FnOnce() -> bool,
    ) -> Option<Decision> {
        let (traced, counter, decision) = self.merge(now_ns, port, ethernet, headers, is_intact)?;
        if let Some(group) = traced.and_then(|key| self.groups.get_mut(&key)) {
            group.trace((now_ns, port), headers, counter);
        }
        Some(decision)
    }

    /// By what an answer is counted, and what becomes of it; with its group if that is traced.
    fn merge(
        &mut self,
        now_ns: u64,
        port: Port,
        ethernet: &[u8],
        headers: &Headers,
        is_intact: impl FnOnce() -> bool,
    ) -> Option<(Option<GroupKey>, Counter, Decision)> {
        let (ip, bth) = (headers.ip, headers.bth);
        let sender = self.senders.get_mut(&(ip.target, bth.target_qpn))?;
        let (key, traced) = (sender.key, sender.is_traced.then_some(sender.key));
        let Some(place) = sender.place(ip.source) else {
            // Others than the virtual peer may belong to a later connection that reuses the queue pair number.
            let (counter, decision) = match ip.source == sender.merging.virtual_address {
                true => (Counter::AnswerDropped, Decision::Drop),
                false => (Counter::AnswerForeign, Decision::Pass),
            };
            self.count(key, counter);
            return Some((traced, counter, decision));
        };
        let counted = &mut sender.answered[place];
        if !is_among(&sender.merging.members[place].ports, port) {
            self.counters.count(Counter::AnswerDropped);
            counted.dropped += 1;
            return Some((traced, Counter::AnswerDropped, Decision::Drop));
        }
        if !is_intact() {
            self.counters.count(Counter::IcrcError);
            counted.icrc_errors += 1;
            return Some((traced, Counter::IcrcError, Decision::Drop));
        }
        if headers.aeth.is_some() {
            let way = sender.ways.entry(ip.source).or_default();
            way.0 = port;
            way.1.clear();
            way.1.extend_from_slice(ethernet);
        }
        let mut patch = Patch { source: Some(sender.merging.virtual_address), ..Patch::default() };
        let counter = match headers.aeth {
            Some(aeth) => match sender.merger.answer(now_ns, ip.source, bth.psn, aeth) {
                Merged::Forward { psn, aeth } => {
                    (patch.psn, patch.aeth) = (Some(psn), Some(aeth));
                    match aeth.syndrome {
                        Syndrome::Ack(_) => Counter::AckForwarded,
                        Syndrome::ReceiverNotReady(_) => Counter::RnrNakForwarded,
                        _ => Counter::NakForwarded,
                    }
                }
                Merged::Suppress => Counter::AnswerSuppressed,
                Merged::Unknown => Counter::AnswerDropped,
            },
            None => match sender.merger.notify(now_ns, ip.source) {
                Some(true) => Counter::CnpForwarded,
                Some(false) => Counter::CnpSuppressed,
                None => Counter::AnswerDropped,
            },
        };
        self.counters.count(counter);
        use Counter::{AnswerDropped, AnswerSuppressed, CnpSuppressed};
        let (counts, decision) = match counter {
            AnswerDropped => (None, Decision::Drop),
            AnswerSuppressed | CnpSuppressed => (Some(&mut counted.suppressed), Decision::Drop),
            _ => (Some(&mut counted.forwarded), Decision::Change(patch)),
        };
        match counts.zip(AnswerKind::of(headers.aeth)) {
            Some((counts, kind)) => counts[kind as usize] += 1,
            None => counted.dropped += 1,
        }
        Some((traced, counter, decision))
    }
}
