//! The groups of one switch: who wants them, where they part here, and what others were asked to do.
//!
//! The switches behind are told first and the own data plane last, so that no packet meets half a
//! tree; what fails is taken back.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use certificates::Certificates;
use control::{Agent, Claim, ControlError, ErrorKind, Kept, proto::PlannedSwitch};
use data_plane::{Groups, MemberState, PlaneError};
use mcrdma::{
    GROUPS_MAX, GroupKey, Merging, Refused, Replication, Source,
    plan::{Group, Member},
};
use rustls::RootCertStore;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    admission::{check_virtual_peer, others_of},
    held::{Entry, Held, Wanted},
    next::Behind,
    paths::{Lost, Paths},
    settings::AgentSettings,
    sight::{self, Sight},
};

/// The switches behind have answered within this time: less than who asks here waits for.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(10);
/// Those that need no longer know a group are told within this time, or forget it by themselves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// What causes trouble when routes have changed and a group cannot follow.
const ROUTES: &str = "routes";

/// The groups of one switch.
pub(crate) struct Registry {
    pub(crate) stale_after: Duration,
    pub(crate) paths: Paths,
    groups_per_host_max: usize,
    authorities: Arc<RootCertStore>,
    agents: BTreeMap<String, Agent>,
    plane: Mutex<Groups>,
    held: Mutex<BTreeMap<GroupKey, Entry>>,
    /// In the data plane from an agent before, and since when nobody has wanted them.
    orphans: Mutex<BTreeMap<GroupKey, Instant>>,
}

impl Registry {
    pub(crate) fn new(
        settings: &AgentSettings,
        behind: Behind,
        certificates: &Certificates,
        (sight, plane): (Sight, Groups),
    ) -> Result<Self, ControlError> {
        let agent = |address: String| Ok((address.clone(), Agent::new(&address, certificates)?));
        let agents = behind.all().into_iter().map(agent).collect::<Result<_, ControlError>>()?;
        let now = Instant::now();
        let orphans = plane.all().into_iter().map(|group| (group.key, now)).collect();
        Ok(Self {
            stale_after: settings.stale_after,
            paths: Paths { name: settings.name.clone(), behind, sight },
            groups_per_host_max: settings.groups_per_host_max,
            authorities: certificates.authorities(),
            agents,
            plane: Mutex::new(plane),
            held: Mutex::default(),
            orphans: Mutex::new(orphans),
        })
    }

    pub(crate) fn plane(&self) -> MutexGuard<'_, Groups> {
        lock(&self.plane)
    }

    /// This switch's own refusals say whose they are.
    pub(crate) fn refused(&self, kind: ErrorKind, why: impl std::fmt::Display) -> ControlError {
        self.paths.refused(kind, why)
    }

    fn refused_by_plane(&self, error: &PlaneError) -> ControlError {
        let kind = match error {
            PlaneError::Refused(Refused::Duplicate { .. } | Refused::QueuePairTaken { .. }) => {
                ErrorKind::Taken
            }
            PlaneError::Refused(
                Refused::TableFull { .. }
                | Refused::NoRoom { .. }
                | Refused::Members { .. }
                | Refused::Ports { .. }
                | Refused::Regions { .. },
            ) => ErrorKind::Limit,
            PlaneError::Refused(_) => ErrorKind::Invalid,
            _ => ErrorKind::Failed,
        };
        self.refused(kind, error)
    }

    fn unknown(&self, key: GroupKey) -> ControlError {
        self.refused(
            ErrorKind::Unknown,
            format_args!("there is no {key} that this caller has asked for"),
        )
    }

    /// Takes a group that a caller wants, or what it now wants of it.
    pub(crate) async fn insert(
        &self,
        group: Group,
        claim: &Claim,
        is_first: bool,
        hops_left: u32,
    ) -> Result<(), ControlError> {
        loop {
            let entry = self.entry(group.key)?;
            let mut held = entry.lock().await;
            if held.is_gone {
                continue;
            }
            let inserted = self.insert_into(&mut held, group, claim, (is_first, hops_left)).await;
            self.forget_if_unwanted(claim.key, &mut held).await;
            return inserted;
        }
    }

    fn entry(&self, key: GroupKey) -> Result<Entry, ControlError> {
        let mut held = lock(&self.held);
        if held.len() >= GROUPS_MAX && !held.contains_key(&key) {
            return Err(self.refused(ErrorKind::Limit, Refused::TableFull { key }));
        }
        let (others, most) =
            (others_of(&held, &lock(&self.orphans), key), self.groups_per_host_max);
        if others >= most {
            let why = format!(
                "{key}: there are {others} groups of {} here already, and may be {most} of one host (--groups-per-host); remove groups that are no longer used",
                key.sender
            );
            return Err(self.refused(ErrorKind::Limit, why));
        }
        Ok(Arc::clone(held.entry(key).or_default()))
    }

    async fn insert_into(
        &self,
        held: &mut Held,
        group: Group,
        claim: &Claim,
        (is_first, hops_left): (bool, u32),
    ) -> Result<(), ControlError> {
        if held.callers.is_empty() {
            (held.instance, held.is_first) = (claim.instance, is_first);
            self.check_not_taken(&group, is_first)?;
        } else if held.instance != claim.instance || held.is_first != is_first {
            return Err(self.refused(ErrorKind::Taken, Refused::Duplicate { key: group.key }));
        }
        let is_new = !held.callers.contains_key(&claim.caller);
        if is_new && held.wanted().is_some_and(|wanted| *wanted != group) {
            let why = "copies for different members of the group would meet here and could not be told apart; let the members relay instead";
            return Err(self.refused(ErrorKind::NoTree, why));
        }
        if is_first && let Some(before) = &held.group {
            let was_one =
                |member: &Member| before.members.iter().any(|m| m.address == member.address);
            if let Some(member) = group.members.iter().find(|member| !was_one(member)) {
                // It would get copies, and nobody would wait for it.
                let why = format!(
                    "{}: {} cannot join while packets are on their way; make another group",
                    group.key, member.address
                );
                return Err(self.refused(ErrorKind::Invalid, why));
            }
        }
        if is_first {
            let told = self.plane().get(group.key).and_then(|(_, merging)| merging);
            held.is_proven = check_virtual_peer(&self.authorities, &group, told.as_ref())
                .map_err(|why| self.refused(ErrorKind::Denied, why))?;
        }
        held.hops_left = hops_left;
        let wanted = Wanted { group, heard: Instant::now() };
        let before = held.callers.insert(claim.caller.clone(), wanted);
        let applied = self.follow(held).await;
        if applied.is_err() {
            // Who had it keeps what was in force.
            match before {
                Some(before) => _ = held.callers.insert(claim.caller.clone(), before),
                None => _ = held.callers.remove(&claim.caller),
            }
        }
        applied
    }

    /// What the data plane has from an agent before is taken over, if it is the same group.
    fn check_not_taken(&self, group: &Group, is_first: bool) -> Result<(), ControlError> {
        let Some((replication, merging)) = self.plane().get(group.key) else { return Ok(()) };
        let is_same = replication.sender_qpn == group.sender_qpn
            && merging.is_some() == is_first
            && merging.is_none_or(|merging| is_part_of(&group.merging(), &merging));
        if is_same {
            return Ok(());
        }
        Err(self.refused(ErrorKind::Taken, Refused::Duplicate { key: group.key }))
    }

    /// Does what the callers want, if they agree and it is not done. If they do not, as when routes
    /// change at several switches, the next of them that asks will.
    async fn follow(&self, held: &mut Held) -> Result<(), ControlError> {
        match held.wanted().cloned() {
            Some(wanted) if held.group.as_ref() != Some(&wanted) => self.apply(held, wanted).await,
            _ => Ok(()),
        }
    }

    /// Makes this the group that is in force, here and behind.
    async fn apply(&self, held: &mut Held, group: Group) -> Result<(), ControlError> {
        let split = self.paths.split_group(&group, sight::ATTEMPTS).await;
        let split = split.map_err(|lost| self.paths.no_tree(lost))?;
        if !split.behind.is_empty() && held.hops_left == 0 {
            let why = format!(
                "{} has come through too many switches: do they lie in a circle?",
                group.key
            );
            return Err(self.refused(ErrorKind::NoTree, why));
        }
        let part = |members: &Vec<usize>| Group {
            members: members.iter().map(|&member| group.members[member].clone()).collect(),
            ..group.clone()
        };
        let wanted: BTreeMap<String, Group> =
            split.behind.iter().map(|(agent, members)| (agent.clone(), part(members))).collect();
        let before = held.behind.clone();
        let told = self.tell_behind(held, &wanted).await.and_then(|()| {
            let replication = split.is_told(held.is_first).then(|| split.replication(&group));
            let merging = held.is_first.then(|| split.merging(&group, held.is_proven));
            self.tell_plane(group.key, replication, merging)
        });
        if let Err(error) = told {
            // The switches behind get back what was in force; that they do not is told by their agents.
            let _ = self.tell_behind(held, &before).await;
            self.leave_behind(held, &before).await;
            return Err(error);
        }
        lock(&self.orphans).remove(&group.key);
        held.troubles.retain(|cause, _| wanted.contains_key(cause));
        (held.group, held.split) = (Some(group), split);
        self.leave_behind(held, &wanted).await;
        Ok(())
    }

    /// Members that an agent before had taken out, or this one would, hold nobody up.
    fn tell_plane(
        &self,
        key: GroupKey,
        replication: Option<Replication>,
        merging: Option<Merging>,
    ) -> Result<(), ControlError> {
        let mut plane = self.plane();
        let told = match (plane.get(key), replication) {
            (Some((_, before)), Some(replication)) => {
                let gone = before
                    .iter()
                    .flat_map(|before| &before.members)
                    .filter(|member| merging.as_ref().is_some_and(|now| !is_among(member, now)));
                let gone = gone.map(|member| plane.remove_member(key, member.address));
                let removed = gone.collect::<Result<Vec<_>, _>>();
                let moved = removed.and_then(|_| match &merging {
                    Some(merging) => plane.relocate(key, &merging.members),
                    None => Ok(false),
                });
                moved.and_then(|_| plane.replace(key, replication)).map(drop)
            }
            (None, Some(replication)) => plane.insert(key, replication, merging),
            (Some(_), None) => plane.remove(key).map(drop),
            (None, None) => Ok(()),
        };
        told.map_err(|error| self.refused_by_plane(&error))
    }

    /// Asks the agents behind for what they do not do yet, all at once.
    async fn tell_behind(
        &self,
        held: &mut Held,
        wanted: &BTreeMap<String, Group>,
    ) -> Result<(), ControlError> {
        let mut asked = JoinSet::new();
        let hops_left = held.hops_left.saturating_sub(1);
        for (address, group) in
            wanted.iter().filter(|(at, group)| held.behind.get(*at) != Some(*group))
        {
            let Some(agent) = self.agents.get(address).cloned() else { continue };
            let (claim, group, address) =
                (self.claim(held, group.key), group.clone(), address.clone());
            asked.spawn(async move {
                let inserted =
                    agent.insert_at(&group, &claim, false, hops_left, BEHIND_TIMEOUT).await;
                (address, group, inserted)
            });
        }
        let mut first = Ok(());
        while let Some(answer) = asked.join_next().await {
            // It ends otherwise only if the program does.
            let Ok((address, group, inserted)) = answer else { continue };
            match inserted {
                Ok(_) => _ = held.behind.insert(address, group),
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    /// The agents behind that are not among these need no longer know the group.
    async fn leave_behind(&self, held: &mut Held, wanted: &BTreeMap<String, Group>) {
        let mut asked = JoinSet::new();
        let gone: Vec<(String, Group)> =
            held.behind.extract_if(.., |address, _| !wanted.contains_key(address)).collect();
        for (address, group) in gone {
            let claim = self.claim(held, group.key);
            let Some(agent) = self.agents.get(&address).cloned() else { continue };
            asked.spawn(async move { agent.remove(&claim).await });
        }
        let told = async { while asked.join_next().await.is_some() {} };
        let _ = timeout(LEAVE_TIMEOUT, told).await;
    }

    pub(crate) fn claim(&self, held: &Held, key: GroupKey) -> Claim {
        Claim { key, caller: self.paths.name.clone(), instance: held.instance }
    }

    /// An agent behind.
    pub(crate) fn agent(&self, address: &str) -> Option<&Agent> {
        self.agents.get(address)
    }

    /// The group that a caller has asked for, if it has.
    fn claimed(&self, claim: &Claim) -> Result<Entry, ControlError> {
        let entry = lock(&self.held).get(&claim.key).map(Arc::clone);
        entry.ok_or_else(|| self.unknown(claim.key))
    }

    /// A caller still wants a group: how it is.
    pub(crate) async fn keep(
        &self,
        claim: &Claim,
    ) -> Result<(String, Vec<MemberState>), ControlError> {
        let entry = self.claimed(claim)?;
        let mut held = entry.lock().await;
        self.check(&mut held, claim)?.heard = Instant::now();
        let members = if held.is_first { self.plane().members(claim.key) } else { Vec::new() };
        Ok((held.trouble(), members))
    }

    fn check<'a>(&self, held: &'a mut Held, claim: &Claim) -> Result<&'a mut Wanted, ControlError> {
        let is_same = held.instance == claim.instance;
        let wanted = held.callers.get_mut(&claim.caller).filter(|_| is_same);
        wanted.ok_or_else(|| self.unknown(claim.key))
    }

    /// The group goes on without a member. Whether it was one, and not the last.
    pub(crate) async fn remove_member(
        &self,
        claim: &Claim,
        member: IpAddr,
    ) -> Result<bool, ControlError> {
        let entry = self.claimed(claim)?;
        let mut held = entry.lock().await;
        let mut wanted = self.check(&mut held, claim)?.group.clone();
        wanted.members.retain(|known| known.address != member);
        let removed = self.plane().remove_member(claim.key, member);
        if !removed.map_err(|error| self.refused_by_plane(&error))? {
            return Ok(false);
        }
        // From here on nobody waits for it; that it gets no copies any more is less urgent.
        self.check(&mut held, claim)?.group = wanted;
        if let Err(error) = self.follow(&mut held).await {
            held.troubles.insert("members".to_owned(), error.message);
        }
        Ok(true)
    }

    /// A caller no longer wants a group. Whether it did.
    pub(crate) async fn remove(&self, claim: &Claim) -> bool {
        let Ok(entry) = self.claimed(claim) else { return false };
        let mut held = entry.lock().await;
        let was_there = self.check(&mut held, claim).is_ok();
        if was_there {
            held.callers.remove(&claim.caller);
            self.forget_if_unwanted(claim.key, &mut held).await;
            let _ = self.follow(&mut held).await;
        }
        was_there
    }

    /// The own data plane first: then nobody behind gets copies that it does not know.
    async fn forget_if_unwanted(&self, key: GroupKey, held: &mut Held) {
        if held.is_gone || !held.callers.is_empty() {
            return;
        }
        held.is_gone = true;
        if held.group.is_some() {
            let removed = self.plane().remove(key);
            removed.inspect_err(|error| tracing::warn!(%key, %error, "not removed")).ok();
        }
        self.leave_behind(held, &BTreeMap::new()).await;
        lock(&self.held).remove(&key);
    }

    /// What an agent behind has said of a group. Its switch goes on without it, until it would have
    /// forgotten the group.
    pub(crate) async fn hear(
        &self,
        held: &mut Held,
        agent: String,
        answer: Result<Kept, ControlError>,
    ) {
        let trouble = match answer {
            Ok(kept) => kept.trouble,
            Err(error) if error.kind == ErrorKind::Unknown => {
                self.again(held, &agent).await.err().map(|error| error.message)
            }
            Err(error) => {
                let since = *held.unheard.entry(agent.clone()).or_insert_with(Instant::now);
                if since.elapsed() >= self.stale_after {
                    held.troubles.insert(agent, error.message);
                } else {
                    tracing::warn!(agent, %error, "nothing is heard of it");
                }
                return;
            }
        };
        held.unheard.remove(&agent);
        match trouble {
            Some(trouble) => held.troubles.insert(agent, trouble),
            None => held.troubles.remove(&agent),
        };
    }

    /// An agent behind has forgotten what it was asked to do, as after a restart.
    async fn again(&self, held: &mut Held, address: &str) -> Result<(), ControlError> {
        let wanted = held.behind.clone();
        held.behind.remove(address);
        let told = self.tell_behind(held, &wanted).await;
        // It is asked for it the next time, too.
        held.behind = wanted;
        told
    }

    /// Works out a group again.
    pub(crate) async fn follow_ways(&self, key: GroupKey, held: &mut Held) {
        let Some(group) = held.group.clone() else { return };
        let split = match self.paths.split_group(&group, 1).await {
            // Somebody's Ethernet address has become old: what is in force still holds.
            Err(Lost::Unseen(unseen)) if !unseen.is_lasting() => return,
            split => split.map_err(|lost| self.paths.no_tree(lost)),
        };
        let trouble = match split {
            Ok(split) if split == held.split => None,
            Ok(_) => {
                tracing::info!(%key, "routes have changed");
                self.apply(held, group).await.err()
            }
            Err(error) => Some(error),
        };
        match trouble {
            Some(error) => held.troubles.insert(ROUTES.to_owned(), error.message),
            None => held.troubles.remove(ROUTES),
        };
    }

    /// Forgets callers of whom nothing was heard, and the group if nobody wants it.
    pub(crate) async fn sweep_group(&self, key: GroupKey, held: &mut Held) {
        held.callers.retain(|_, wanted| wanted.heard.elapsed() < self.stale_after);
        if held.callers.is_empty() {
            tracing::warn!(%key, "nobody has asked for it for {} s", self.stale_after.as_secs());
        }
        self.forget_if_unwanted(key, held).await;
        let _ = self.follow(held).await;
        // What could not be done then may be possible now.
        if held.troubles.contains_key(ROUTES) {
            self.follow_ways(key, held).await;
        }
    }

    /// Forgets a group of an agent before, that nobody has asked for.
    pub(crate) fn forget_orphan(&self, key: GroupKey) {
        if lock(&self.orphans).remove(&key).is_some() {
            tracing::warn!(%key, "nobody has asked for it since this agent has started");
            let removed = self.plane().remove(key);
            removed.inspect_err(|error| tracing::warn!(%key, %error, "not removed")).ok();
        }
    }

    /// All groups that somebody wants.
    pub(crate) fn all(&self) -> Vec<(GroupKey, Entry)> {
        lock(&self.held).iter().map(|(key, entry)| (*key, Arc::clone(entry))).collect()
    }

    /// Those that an agent before has left, and nobody has asked for yet.
    pub(crate) fn orphans(&self) -> Vec<(GroupKey, Instant)> {
        lock(&self.orphans).iter().map(|(key, since)| (*key, *since)).collect()
    }

    /// What an agent behind would do.
    pub(crate) async fn plan_behind(
        &self,
        agent: &str,
        sender: IpAddr,
        members: &[Member],
        hops_left: u32,
    ) -> Result<Vec<PlannedSwitch>, ControlError> {
        let circle = "they have come through too many switches: do they lie in a circle?";
        let hops_left =
            hops_left.checked_sub(1).ok_or_else(|| self.refused(ErrorKind::NoTree, circle))?;
        match self.agents.get(agent) {
            Some(agent) => agent.plan_at(sender, members, false, hops_left).await,
            None => Ok(Vec::new()),
        }
    }
}

/// Members may have been taken out since; the kernel has gone on from the first packet number.
fn is_part_of(now: &Merging, before: &Merging) -> bool {
    now.virtual_address == before.virtual_address
        && now.members.iter().all(|member| is_among(member, before))
}

/// Wherever its answers come in.
fn is_among(member: &Source, merging: &Merging) -> bool {
    let is_same =
        |known: &Source| (known.address, known.psn_offset) == (member.address, member.psn_offset);
    merging.members.iter().any(is_same)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
