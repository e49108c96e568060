//! The groups of one switch: leases, paths, and the parts of downstream agents.
//!
//! Downstream switches install a group first and the own data plane last, so that no packet finds an
//! incomplete tree; on errors everything is rolled back.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use control::{Agent, Claim, ControlError, ErrorKind, Kept, proto::PlannedSwitch};
use data_plane::{Groups, MemberState, PlaneError};
use mcrdma::{
    GROUPS_MAX, GroupKey, Merging, Refused, Replication, Source,
    plan::{Group, Member},
};
use rustls::RootCertStore;
use session::certificates::Certificates;
use tokio::{
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::timeout,
};

use crate::{
    admission::{check_members, check_virtual_peer, others_of},
    clock::Clock,
    downstream::Downstream,
    forwarding::{self, Forwarding, lock},
    paths::{Paths, SplitError},
    settings::AgentSettings,
    state::{Entry, Lease, State},
    suspicion::Reports,
};

/// Deadline of downstream agents: below that of this agent's callers.
const DOWNSTREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Deadline for removing a group from downstream agents; after it their leases expire.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Groups whose delegations are checked at once; others wait.
const CHECKS_MAX: usize = 2;
/// Longest time for which a delegation counts.
const DELEGATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Cause of a trouble: routes have changed and a group has no path by them.
const ROUTES: &str = "routes";

/// The groups of one switch.
pub(crate) struct Registry {
    pub(crate) stale_after: Duration,
    pub(crate) clock: Clock,
    pub(crate) paths: Paths,
    /// Members that seem to have failed.
    pub(crate) reports: Reports,
    groups_per_host_max: usize,
    authorities: Arc<RootCertStore>,
    checks: Semaphore,
    agents: BTreeMap<String, Agent>,
    plane: Mutex<Groups>,
    /// Groups that a caller traces.
    pub(crate) traced: Mutex<BTreeSet<GroupKey>>,
    groups: Mutex<BTreeMap<GroupKey, Entry>>,
    /// Groups that a former agent has left in the data plane, and since when they have no lease.
    orphans: Mutex<BTreeMap<GroupKey, Instant>>,
}

impl Registry {
    pub(crate) fn new(
        settings: &AgentSettings,
        downstream: Downstream,
        certificates: &Certificates,
        forwarding: Forwarding,
        plane: Groups,
        clock: Clock,
    ) -> Result<Self, ControlError> {
        let agent = |address: String| Ok((address.clone(), Agent::new(&address, certificates)?));
        let agents =
            downstream.all().into_iter().map(agent).collect::<Result<_, ControlError>>()?;
        let now = clock.now();
        let orphans = plane.all().into_iter().map(|group| (group.key, now)).collect();
        Ok(Self {
            stale_after: settings.stale_after,
            clock,
            paths: Paths { name: settings.name.clone(), downstream, forwarding },
            reports: Reports::default(),
            groups_per_host_max: settings.groups_per_host_max,
            authorities: certificates.authorities(),
            checks: Semaphore::new(CHECKS_MAX),
            agents,
            plane: Mutex::new(plane),
            traced: Mutex::default(),
            groups: Mutex::default(),
            orphans: Mutex::new(orphans),
        })
    }

    pub(crate) fn plane(&self) -> MutexGuard<'_, Groups> {
        lock(&self.plane)
    }

    /// An error of this switch, which names it.
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
                | Refused::CapacityExceeded { .. }
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
        self.refused(ErrorKind::Unknown, format_args!("this caller has no lease of {key}"))
    }

    /// Installs a group for a caller, or replaces the caller's former request.
    pub(crate) async fn insert(
        &self,
        group: Group,
        claim: &Claim,
        is_first: bool,
        hops_left: u32,
    ) -> Result<(), ControlError> {
        let lease = self.delegated(group).await?;
        loop {
            let entry = self.entry(claim.key)?;
            let mut state = entry.lock().await;
            if state.is_removed {
                continue;
            }
            let inserted = self.insert_into(&mut state, lease, claim, is_first, hops_left).await;
            self.remove_if_unleased(claim.key, &mut state).await;
            return inserted;
        }
    }

    /// A lease of a group whose members have agreed to it.
    async fn delegated(&self, group: Group) -> Result<Lease, ControlError> {
        let authorities = Arc::clone(&self.authorities);
        // Nobody closes it.
        let _turn = self.checks.acquire().await;
        // Up to 64 signatures, while others are served.
        let check = move || (check_members(&authorities, &group), group);
        let checked = spawn_blocking(check).await;
        let (lasts, group) = checked.map_err(|error| self.refused(ErrorKind::Failed, error))?;
        let lasts = lasts.map_err(|why| self.refused(ErrorKind::Denied, why))?;
        let renewed = self.clock.now();
        let far = renewed + DELEGATION_MAX;
        let until = |(member, lasts)| (member, renewed.checked_add(lasts).unwrap_or(far).min(far));
        Ok(Lease { group, renewed, delegated_until: lasts.into_iter().map(until).collect() })
    }

    fn entry(&self, key: GroupKey) -> Result<Entry, ControlError> {
        let mut state = lock(&self.groups);
        if state.len() >= GROUPS_MAX && !state.contains_key(&key) {
            return Err(self.refused(ErrorKind::Limit, Refused::TableFull { key }));
        }
        let (others, most) =
            (others_of(&state, &lock(&self.orphans), key), self.groups_per_host_max);
        if others >= most {
            let why = format!(
                "{key}: there are {others} groups of {} here already, and at most {most} of one host are allowed \
                 (--groups-per-host); remove groups that are no longer used",
                key.sender
            );
            return Err(self.refused(ErrorKind::Limit, why));
        }
        Ok(Arc::clone(state.entry(key).or_default()))
    }

    async fn insert_into(
        &self,
        state: &mut State,
        lease: Lease,
        claim: &Claim,
        is_first: bool,
        hops_left: u32,
    ) -> Result<(), ControlError> {
        let group = &lease.group;
        if state.leases.is_empty() {
            (state.instance, state.is_first) = (claim.instance, is_first);
            self.check_not_taken(group, is_first)?;
        } else if state.instance != claim.instance || state.is_first != is_first {
            return Err(self.refused(ErrorKind::Taken, Refused::Duplicate { key: group.key }));
        }
        let is_new = !state.leases.contains_key(&claim.caller);
        if is_new && state.requested().is_some_and(|requested| !requested.is_same(group)) {
            let why = "copies for different members of the group would meet here and could not be told apart; let the members relay instead";
            return Err(self.refused(ErrorKind::NoTree, why));
        }
        if is_first && let Some(before) = &state.group {
            let was_one =
                |member: &Member| before.members.iter().any(|m| m.address == member.address);
            if let Some(member) = group.members.iter().find(|member| !was_one(member)) {
                // Its answers would not be merged.
                let why = format!(
                    "{}: {} cannot join a group that is in use; make another group",
                    group.key, member.address
                );
                return Err(self.refused(ErrorKind::Invalid, why));
            }
        }
        if is_first {
            let installed = self.plane().get(group.key).and_then(|(_, merging)| merging);
            state.is_proven = check_virtual_peer(group, installed.as_ref())
                .map_err(|why| self.refused(ErrorKind::Denied, why))?;
        }
        state.hops_left = hops_left;
        let before = state.leases.insert(claim.caller.clone(), lease);
        let applied = self.apply_requested(state).await;
        if applied.is_err() {
            // The former lease is restored: its group is still installed.
            match before {
                Some(before) => _ = state.leases.insert(claim.caller.clone(), before),
                None => _ = state.leases.remove(&claim.caller),
            }
        }
        applied
    }

    /// Checks that the data plane has no other group with this key. The same group of a former agent is taken
    /// over.
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

    /// Installs what the callers request, if they agree. While they do not, as when routes change at several
    /// switches, the installed group stays.
    async fn apply_requested(&self, state: &mut State) -> Result<(), ControlError> {
        match state.requested().cloned() {
            Some(wanted) if state.group.as_ref() != Some(&wanted) => {
                self.apply(state, wanted).await
            }
            _ => Ok(()),
        }
    }

    /// Installs a group here and downstream.
    async fn apply(&self, state: &mut State, group: Group) -> Result<(), ControlError> {
        let split = self.paths.split_group(&group, forwarding::ATTEMPTS).await;
        let split = split.map_err(|error| self.paths.no_tree(error))?;
        if !split.downstream.is_empty() && state.hops_left == 0 {
            let why = format!("{} has passed too many switches: is there a loop?", group.key);
            return Err(self.refused(ErrorKind::NoTree, why));
        }
        let part = |members: &Vec<usize>| Group {
            members: members.iter().map(|&member| group.members[member].clone()).collect(),
            ..group.clone()
        };
        let wanted: BTreeMap<String, Group> = split
            .downstream
            .iter()
            .map(|(agent, members)| (agent.clone(), part(members)))
            .collect();
        let before = state.downstream.clone();
        let written = self.insert_downstream(state, &wanted).await.and_then(|()| {
            let replication = split.needs_entry(state.is_first).then(|| split.replication(&group));
            let merging = state.is_first.then(|| split.merging(&group, state.is_proven));
            self.write_plane(group.key, replication, merging)
        });
        if let Err(error) = written {
            // Rolls back; if that fails, downstream agents report it with the next renewal.
            let _ = self.insert_downstream(state, &before).await;
            self.remove_downstream(state, &before).await;
            return Err(error);
        }
        lock(&self.orphans).remove(&group.key);
        state.troubles.retain(|cause, _| wanted.contains_key(cause));
        (state.group, state.split) = (Some(group), split);
        self.remove_downstream(state, &wanted).await;
        Ok(())
    }

    /// Writes the data plane; members that are no longer in the merging entry are removed first, so that their
    /// answers are not waited for.
    fn write_plane(
        &self,
        key: GroupKey,
        replication: Option<Replication>,
        merging: Option<Merging>,
    ) -> Result<(), ControlError> {
        let mut plane = self.plane();
        let written = match (plane.get(key), replication) {
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
        written.map_err(|error| self.refused_by_plane(&error))
    }

    /// Installs parts at downstream agents that do not have them yet, concurrently.
    async fn insert_downstream(
        &self,
        state: &mut State,
        wanted: &BTreeMap<String, Group>,
    ) -> Result<(), ControlError> {
        let mut asked = JoinSet::new();
        let hops_left = state.hops_left.saturating_sub(1);
        for (address, group) in
            wanted.iter().filter(|(at, group)| state.downstream.get(*at) != Some(*group))
        {
            let Some(agent) = self.agents.get(address).cloned() else { continue };
            let (claim, group, address) =
                (self.claim(state, group.key), group.clone(), address.clone());
            asked.spawn(async move {
                let inserted =
                    agent.insert_at(&group, &claim, false, hops_left, DOWNSTREAM_TIMEOUT).await;
                (address, group, inserted)
            });
        }
        let mut first = Ok(());
        while let Some(answer) = asked.join_next().await {
            // A task fails only if the runtime shuts down.
            let Ok((address, group, inserted)) = answer else { continue };
            match inserted {
                Ok(_) => _ = state.downstream.insert(address, group),
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    /// Removes the group from downstream agents that are not in `wanted`.
    async fn remove_downstream(&self, state: &mut State, wanted: &BTreeMap<String, Group>) {
        let mut asked = JoinSet::new();
        let gone: Vec<(String, Group)> =
            state.downstream.extract_if(.., |address, _| !wanted.contains_key(address)).collect();
        for (address, group) in gone {
            let claim = self.claim(state, group.key);
            let Some(agent) = self.agents.get(&address).cloned() else { continue };
            asked.spawn(async move { agent.remove(&claim).await });
        }
        let removed = async { while asked.join_next().await.is_some() {} };
        let _ = timeout(LEAVE_TIMEOUT, removed).await;
    }

    pub(crate) fn claim(&self, state: &State, key: GroupKey) -> Claim {
        Claim { key, caller: self.paths.name.clone(), instance: state.instance }
    }

    /// A downstream agent.
    pub(crate) fn agent(&self, address: &str) -> Option<&Agent> {
        self.agents.get(address)
    }

    /// The group of a claim.
    fn claimed(&self, claim: &Claim) -> Result<Entry, ControlError> {
        let entry = lock(&self.groups).get(&claim.key).map(Arc::clone);
        entry.ok_or_else(|| self.unknown(claim.key))
    }

    /// Renews a lease. Returns the group's trouble and its members' progress.
    pub(crate) async fn keep(
        &self,
        claim: &Claim,
    ) -> Result<(String, Vec<MemberState>), ControlError> {
        let entry = self.claimed(claim)?;
        let mut state = entry.lock().await;
        self.check(&mut state, claim)?.renewed = self.clock.now();
        let members = if state.is_first { self.plane().members(claim.key) } else { Vec::new() };
        Ok((state.trouble(), members))
    }

    /// Checks that a caller has a lease of a group.
    pub(crate) async fn check_lease(&self, claim: &Claim) -> Result<(), ControlError> {
        let entry = self.claimed(claim)?;
        self.check(&mut *entry.lock().await, claim).map(drop)
    }

    fn check<'a>(
        &self,
        state: &'a mut State,
        claim: &Claim,
    ) -> Result<&'a mut Lease, ControlError> {
        let is_same = state.instance == claim.instance;
        let lease = state.leases.get_mut(&claim.caller).filter(|_| is_same);
        lease.ok_or_else(|| self.unknown(claim.key))
    }

    /// Removes a failed member; the group continues. Whether it was one, and not the last.
    pub(crate) async fn remove_member(
        &self,
        claim: &Claim,
        member: IpAddr,
    ) -> Result<bool, ControlError> {
        let entry = self.claimed(claim)?;
        let mut state = entry.lock().await;
        let mut wanted = self.check(&mut state, claim)?.group.clone();
        wanted.members.retain(|known| known.address != member);
        let removed = self.plane().remove_member(claim.key, member);
        if !removed.map_err(|error| self.refused_by_plane(&error))? {
            return Ok(false);
        }
        // Its answers are no longer waited for; stopping its copies is less urgent.
        self.check(&mut state, claim)?.group = wanted;
        if let Err(error) = self.apply_requested(&mut state).await {
            state.troubles.insert("members".to_owned(), error.message);
        }
        Ok(true)
    }

    /// Ends a lease. Whether there was one.
    pub(crate) async fn remove(&self, claim: &Claim) -> bool {
        let Ok(entry) = self.claimed(claim) else { return false };
        let mut state = entry.lock().await;
        let was_there = self.check(&mut state, claim).is_ok();
        if was_there {
            state.leases.remove(&claim.caller);
            self.remove_if_unleased(claim.key, &mut state).await;
            let _ = self.apply_requested(&mut state).await;
        }
        was_there
    }

    /// Removes a group without leases: from the own data plane first, so that no downstream switch gets copies
    /// of a group that it does not have.
    async fn remove_if_unleased(&self, key: GroupKey, state: &mut State) {
        if state.is_removed || !state.leases.is_empty() {
            return;
        }
        state.is_removed = true;
        if state.group.is_some() {
            let removed = self.plane().remove(key);
            removed.inspect_err(|error| tracing::warn!(%key, %error, "not removed")).ok();
        }
        self.remove_downstream(state, &BTreeMap::new()).await;
        lock(&self.groups).remove(&key);
    }

    /// Takes a downstream agent's answer to a renewal. If there is none, its switch copies on until its lease
    /// expires.
    pub(crate) async fn on_renewal(
        &self,
        state: &mut State,
        agent: String,
        answer: Result<Kept, ControlError>,
    ) {
        let trouble = match answer {
            Ok(kept) => kept.trouble,
            Err(error) if error.kind == ErrorKind::Unknown => {
                self.reinsert(state, &agent).await.err().map(|error| error.message)
            }
            Err(error) => {
                let now = self.clock.now();
                let since = *state.unreachable_since.entry(agent.clone()).or_insert(now);
                if now.saturating_duration_since(since) >= self.stale_after {
                    state.troubles.insert(agent, error.message);
                } else {
                    tracing::warn!(agent, %error, "nothing is renewed of it");
                }
                return;
            }
        };
        state.unreachable_since.remove(&agent);
        match trouble {
            Some(trouble) => state.troubles.insert(agent, trouble),
            None => state.troubles.remove(&agent),
        };
    }

    /// A downstream agent does not have the group, as after a restart: inserts it again.
    async fn reinsert(&self, state: &mut State, address: &str) -> Result<(), ControlError> {
        let wanted = state.downstream.clone();
        state.downstream.remove(address);
        let inserted = self.insert_downstream(state, &wanted).await;
        // Kept, so that it is renewed the next time, too.
        state.downstream = wanted;
        inserted
    }

    /// Recomputes a group's paths.
    pub(crate) async fn follow_routes_of(&self, key: GroupKey, state: &mut State) {
        let Some(group) = state.group.clone() else { return };
        let split = match self.paths.split_group(&group, 1).await {
            // A neighbour entry has expired: the installed paths are still valid.
            Err(SplitError::Unresolved(unresolved)) if !unresolved.is_permanent() => return,
            split => split.map_err(|error| self.paths.no_tree(error)),
        };
        let trouble = match split {
            Ok(split) if split == state.split => None,
            Ok(_) => {
                tracing::info!(%key, "routes have changed");
                self.apply(state, group).await.err()
            }
            Err(error) => Some(error),
        };
        match trouble {
            Some(error) => state.troubles.insert(ROUTES.to_owned(), error.message),
            None => state.troubles.remove(ROUTES),
        };
    }

    /// Removes expired leases, and the group if none is left.
    pub(crate) async fn sweep_group(&self, key: GroupKey, state: &mut State) {
        let now = self.clock.now();
        state.leases.retain(|_, lease| {
            let overdue = lease.overdue(now);
            if let Some(member) = overdue {
                tracing::warn!(%key, %member, "a lease has ended: the member has not renewed its delegation");
            }
            overdue.is_none() && now.saturating_duration_since(lease.renewed) < self.stale_after
        });
        if state.leases.is_empty() {
            tracing::warn!(%key, "removed: its callers have not renewed it for {} s, or a member its delegation", self.stale_after.as_secs());
        }
        self.remove_if_unleased(key, state).await;
        let _ = self.apply_requested(state).await;
        // There may be a path now.
        if state.troubles.contains_key(ROUTES) {
            self.follow_routes_of(key, state).await;
        }
    }

    /// Removes a group of a former agent.
    pub(crate) fn remove_orphan(&self, key: GroupKey) {
        if lock(&self.orphans).remove(&key).is_some() {
            tracing::warn!(%key, "removed: no caller has inserted it since this agent started");
            let removed = self.plane().remove(key);
            removed.inspect_err(|error| tracing::warn!(%key, %error, "not removed")).ok();
        }
    }

    /// All groups with leases.
    pub(crate) fn all(&self) -> Vec<(GroupKey, Entry)> {
        lock(&self.groups).iter().map(|(key, entry)| (*key, Arc::clone(entry))).collect()
    }

    /// Groups that a former agent has left, without a lease yet.
    pub(crate) fn orphans(&self) -> Vec<(GroupKey, Instant)> {
        lock(&self.orphans).iter().map(|(key, since)| (*key, *since)).collect()
    }

    /// A downstream agent's part of a plan.
    pub(crate) async fn plan_downstream(
        &self,
        agent: &str,
        sender: IpAddr,
        members: &[Member],
        hops_left: u32,
    ) -> Result<Vec<PlannedSwitch>, ControlError> {
        let circle = "the members' paths pass too many switches: is there a loop?";
        let hops_left =
            hops_left.checked_sub(1).ok_or_else(|| self.refused(ErrorKind::NoTree, circle))?;
        match self.agents.get(agent) {
            Some(agent) => agent.plan_at(sender, members, false, hops_left).await,
            None => Ok(Vec::new()),
        }
    }
}

/// Whether a group is the installed one: members may have been removed since, and packet numbers advanced.
fn is_part_of(now: &Merging, before: &Merging) -> bool {
    now.virtual_address == before.virtual_address
        && now.members.iter().all(|member| is_among(member, before))
}

/// Whether a member is in the merging entry; ingress ports are not compared.
fn is_among(member: &Source, merging: &Merging) -> bool {
    let is_same =
        |known: &Source| (known.address, known.psn_offset) == (member.address, member.psn_offset);
    merging.members.iter().any(is_same)
}
