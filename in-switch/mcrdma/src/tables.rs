//! A switch's tables, and what they say of a packet's headers.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::Arc,
};

use roce::{Aeth, Bth, Headers, IpHeader, Mac, NakCode, Opcode, Patch, Serial, Syndrome};

use crate::{
    Branch, Counter, Counters, GROUPS_MAX, GroupKey, Merged, Merger, Merging, PLACES_MAX, Port,
    Refused, Replication, Source,
    group::{check_sources, is_among},
};

/// What a packet becomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It is of no group here, and goes on as it is.
    Pass,
    /// It ends here.
    Drop,
    /// It goes on, changed.
    Change(Patch),
    /// It becomes these copies; [`Branch::patch`] says what each of them is.
    Copy(Arc<Replication>),
    /// This goes back in its place.
    Refuse(Headers),
}

/// A sender that this switch is the first of.
struct Sender {
    /// The group that is merged: others may have the same queue pair, and only be copied here.
    key: GroupKey,
    merging: Merging,
    merger: Merger,
}

impl Sender {
    /// Whether answers from there are the group's: its members', also of those that were taken out,
    /// and what comes in the name of the peer that all of them are for the sender. Others may be of a
    /// connection that has got the number of the sender's queue pair since.
    fn expects(&self, source: IpAddr) -> bool {
        self.member(source).is_some() || source == self.merging.virtual_address
    }

    fn member(&self, address: IpAddr) -> Option<&Source> {
        self.merging.members.iter().find(|member| member.address == address)
    }
}

/// A switch's tables.
#[derive(Default)]
pub struct Tables {
    replications: HashMap<GroupKey, Arc<Replication>>,
    /// By address and queue pair.
    senders: HashMap<(IpAddr, u32), Sender>,
    /// Branches of all groups.
    copies: usize,
    /// Members of all groups whose answers are merged here, also those that were taken out.
    members: usize,
    /// Virtual addresses that this switch answers for, and how many groups have each.
    addresses: HashMap<IpAddr, (Mac, usize)>,
    /// What has happened.
    pub counters: Counters,
}

fn check_room(
    key: GroupKey,
    what: &'static str,
    others: usize,
    count: usize,
) -> Result<(), Refused> {
    let free = PLACES_MAX - others;
    if count <= free { Ok(()) } else { Err(Refused::NoRoom { key, what, count, free }) }
}

impl Tables {
    /// Takes a group; with `merging` where this is the sender's first switch.
    ///
    /// Errors: it is not one, or there is no room. Nothing has changed then.
    pub fn insert(
        &mut self,
        key: GroupKey,
        replication: Replication,
        merging: Option<Merging>,
    ) -> Result<(), Refused> {
        replication.check(key)?;
        if self.replications.contains_key(&key) {
            return Err(Refused::Duplicate { key });
        }
        if self.replications.len() == GROUPS_MAX {
            return Err(Refused::TableFull { key });
        }
        check_room(key, "copies", self.copies, replication.branches.len())?;
        if let Some(merging) = &merging {
            check_room(key, "members that answer", self.members, merging.members.len())?;
        }
        if let Some(merging) = merging {
            merging.check(key)?;
            let (sender, qpn) = (key.sender, replication.sender_qpn);
            let Entry::Vacant(place) = self.senders.entry((sender, qpn)) else {
                return Err(Refused::QueuePairTaken { key, sender, qpn });
            };
            if let Some(mac) = merging.virtual_mac {
                let place = self.addresses.entry(merging.virtual_address).or_insert((mac, 0));
                // What was said last holds.
                *place = (mac, place.1 + 1);
            }
            self.members += merging.members.len();
            place.insert(Sender { key, merger: Merger::new(&merging), merging });
        }
        self.copies += replication.branches.len();
        self.replications.insert(key, Arc::new(replication));
        Ok(())
    }

    /// Gives a group other branches, as after a change of routes; what was answered is kept.
    /// Whether there is such a group.
    ///
    /// Errors: they are none. Nothing has changed then.
    pub fn replace(&mut self, key: GroupKey, replication: Replication) -> Result<bool, Refused> {
        replication.check(key)?;
        let Some(place) = self.replications.get_mut(&key) else { return Ok(false) };
        let others = self.copies - place.branches.len();
        check_room(key, "copies", others, replication.branches.len())?;
        self.copies = others + replication.branches.len();
        *place = Arc::new(replication);
        Ok(true)
    }

    /// Members' answers come in elsewhere from now on, as after a change of routes. Who is no member
    /// is left out. Whether there is such a group, whose answers are merged here.
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

    /// Forgets a group. Whether it was there.
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
        let removed = self.replications.remove(&key);
        self.copies -= removed.as_ref().map_or(0, |removed| removed.branches.len());
        removed.is_some()
    }

    /// The group's answers, if this is its sender's first switch.
    #[must_use]
    pub fn merger(&self, key: GroupKey) -> Option<&Merger> {
        Some(&self.senders.get(&self.sender_address(key)?)?.merger)
    }

    /// The group goes on without the answers of a member. Whether it was one, and not the last.
    pub fn remove_member(&mut self, key: GroupKey, member: IpAddr) -> bool {
        let address = self.sender_address(key);
        let sender = address.and_then(|address| self.senders.get_mut(&address));
        sender.is_some_and(|sender| sender.merger.remove(member))
    }

    /// A group's copies.
    #[must_use]
    pub fn replication(&self, key: GroupKey) -> Option<&Replication> {
        self.replications.get(&key).map(|replication| &**replication)
    }

    /// How a group's answers are merged, if this is its sender's first switch.
    #[must_use]
    pub fn merging(&self, key: GroupKey) -> Option<&Merging> {
        Some(&self.senders.get(&self.sender_address(key)?)?.merging)
    }

    /// Where a group's sender is among them, if its answers are merged here.
    fn sender_address(&self, key: GroupKey) -> Option<(IpAddr, u32)> {
        let address = (key.sender, self.replications.get(&key)?.sender_qpn);
        self.senders.get(&address).filter(|sender| sender.key == key).map(|_| address)
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, &Replication)> {
        self.replications.iter().map(|(key, replication)| (*key, &**replication))
    }

    /// The Ethernet address of a group's virtual address, if this switch answers for it.
    #[must_use]
    pub fn mac(&self, address: IpAddr) -> Option<Mac> {
        self.addresses.get(&address).map(|(mac, _)| *mac)
    }

    /// What becomes of a packet with these headers, which has come in at this port.
    ///
    /// What is only passed on is checked by who receives it. What is believed here has to be checked
    /// here: `is_intact` is asked of answers, which are short, and of what is to be refused.
    pub fn decide(
        &mut self,
        now_ns: u64,
        port: Port,
        headers: &Headers,
        is_intact: impl FnOnce() -> bool,
    ) -> Decision {
        let (ip, bth) = (headers.ip, headers.bth);
        let decision = if bth.opcode.is_request() {
            let key = GroupKey { sender: ip.source, id: bth.target_qpn };
            let replication = self.replications.get(&key).map(Arc::clone);
            replication.map(|replication| {
                let at = (now_ns, port);
                self.replicate(at, key, replication, headers, is_intact)
            })
        } else {
            self.answer((now_ns, port), headers, is_intact)
        };
        decision.unwrap_or_else(|| {
            self.counters.count(Counter::Foreign);
            Decision::Pass
        })
    }

    fn replicate(
        &mut self,
        (now_ns, port): (u64, Port),
        key: GroupKey,
        replication: Arc<Replication>,
        headers: &Headers,
        is_intact: impl FnOnce() -> bool,
    ) -> Decision {
        if !is_among(&replication.inputs, port) {
            self.counters.count(Counter::RequestMisplaced);
            return Decision::Drop;
        }
        if headers.ip.hop_limit <= 1 {
            self.counters.count(Counter::RequestExpired);
            return Decision::Drop;
        }
        self.counters.count(Counter::Request);
        let unknown = replication.branches.iter().find(|branch| branch.patch(headers).is_none());
        if let Some(branch) = unknown {
            self.counters.count(Counter::RegionUnknown);
            if !is_intact() {
                self.counters.count(Counter::Damaged);
                return Decision::Drop;
            }
            return self.refuse(now_ns, key, replication.sender_qpn, branch, headers);
        }
        Decision::Copy(replication)
    }

    /// Answers a WRITE to unknown memory in the member's place: the sender's operation fails as it
    /// would if a single peer did not know the memory.
    fn refuse(
        &mut self,
        now_ns: u64,
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
        let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
        let aeth = Aeth { syndrome, msn: Serial::new(0) };
        answer.aeth = Some(aeth);
        // Elsewhere it is merged when it comes by the sender's first switch.
        if let Some(sender) = self.senders.get_mut(&(key.sender, sender_qpn))
            && let Merged::Tell { psn, aeth } =
                sender.merger.answer(now_ns, branch.target, answer.bth.psn, aeth)
        {
            self.counters.count(Counter::NakTold);
            (answer.bth.psn, answer.aeth) = (psn, Some(aeth));
            answer.ip.source = sender.merging.virtual_address;
        }
        Decision::Refuse(answer)
    }

    /// `None`: it is for no sender of ours.
    fn answer(
        &mut self,
        (now_ns, port): (u64, Port),
        headers: &Headers,
        is_intact: impl FnOnce() -> bool,
    ) -> Option<Decision> {
        let (ip, bth) = (headers.ip, headers.bth);
        let sender = self.senders.get_mut(&(ip.target, bth.target_qpn))?;
        if !sender.expects(ip.source) {
            self.counters.count(Counter::AnswerForeign);
            return Some(Decision::Pass);
        }
        if !sender.member(ip.source).is_some_and(|member| is_among(&member.ports, port)) {
            self.counters.count(Counter::AnswerRefused);
            return Some(Decision::Drop);
        }
        if !is_intact() {
            self.counters.count(Counter::Damaged);
            return Some(Decision::Drop);
        }
        let mut patch = Patch { source: Some(sender.merging.virtual_address), ..Patch::default() };
        let counter = match headers.aeth {
            Some(aeth) => match sender.merger.answer(now_ns, ip.source, bth.psn, aeth) {
                Merged::Tell { psn, aeth } => {
                    (patch.psn, patch.aeth) = (Some(psn), Some(aeth));
                    match aeth.syndrome {
                        Syndrome::Ack(_) => Counter::AckTold,
                        Syndrome::ReceiverNotReady(_) => Counter::NotReadyTold,
                        _ => Counter::NakTold,
                    }
                }
                Merged::Hold => Counter::AnswerHeld,
                Merged::Foreign => Counter::AnswerRefused,
            },
            None => match sender.merger.notify(now_ns, ip.source) {
                Some(true) => Counter::NotificationTold,
                Some(false) => Counter::NotificationHeld,
                None => Counter::AnswerRefused,
            },
        };
        self.counters.count(counter);
        use Counter::{AnswerHeld, AnswerRefused, NotificationHeld};
        Some(match counter {
            AnswerHeld | AnswerRefused | NotificationHeld => Decision::Drop,
            _ => Decision::Change(patch),
        })
    }
}

impl Branch {
    /// What a packet becomes on this branch. `None`: a WRITE to memory that is not in the tables.
    #[must_use]
    pub fn patch(&self, headers: &Headers) -> Option<Patch> {
        // Like a router: or what goes in a circle would never end.
        let hop_limit = Some(headers.ip.hop_limit.saturating_sub(1));
        let mut patch = Patch { target: Some(self.target), hop_limit, ..Patch::default() };
        let Some(rewriting) = &self.rewriting else {
            return Some(patch);
        };
        patch.target_qpn = Some(rewriting.qpn);
        patch.psn = Some(headers.bth.psn.plus(rewriting.psn_offset));
        // Nobody looks at the address of a WRITE of nothing, often sent for its immediate alone.
        if let Some(reth) = headers.reth.filter(|reth| reth.bytes > 0) {
            let mut regions = rewriting.regions.iter();
            let translated = regions.find_map(|region| region.translate(reth.address, reth.bytes));
            patch.memory = Some(translated?);
        }
        Some(patch)
    }
}
