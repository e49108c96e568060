//! The groups of one switch: who wants them, where they part here, and what others were asked to do.
//!
//! The switches behind are told first and the own data plane last, so that no packet meets half a
//! tree; what fails is taken back.

mod admission;
mod upkeep;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use data_plane::{Groups, MemberState, PlaneError};
use mcrdma::{
    GROUPS_MAX, GroupKey, Merging, Port, Refused, Replication, Source,
    plan::{Group, Member},
};
use rdmc::bootstrap::Certificates;
use roce::Mac;
use routes::Station;
use rustls::RootCertStore;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    next::Behind,
    settings::AgentSettings,
    sight::{self, Sight, Unseen},
    split::{Split, Way, ports},
};
use control::{Agent, Claim, ControlError, ErrorKind, proto::PlannedSwitch};

/// The switches behind have answered within this time: less than who asks here waits for.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(10);
/// Those that need no longer know a group are told within this time, or forget it by themselves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The groups of one switch.
pub(crate) struct Registry {
    /// What the switch is called in what it says.
    pub(crate) name: String,
    pub(crate) stale_after: Duration,
    pub(crate) behind: Behind,
    groups_per_host_max: usize,
    authorities: Arc<RootCertStore>,
    agents: BTreeMap<String, Agent>,
    sight: Sight,
    plane: Mutex<Groups>,
    held: Mutex<BTreeMap<GroupKey, Entry>>,
    /// In the data plane from an agent before, and since when nobody has wanted them.
    orphans: Mutex<BTreeMap<GroupKey, Instant>>,
}

type Entry = Arc<tokio::sync::Mutex<Held>>;

/// A group, while somebody wants it.
#[derive(Default)]
pub(crate) struct Held {
    /// It was forgotten while somebody waited for it.
    is_gone: bool,
    instance: u64,
    pub(crate) is_first: bool,
    /// The switch may answer who asks for the virtual address.
    is_proven: bool,
    hops_left: u32,
    /// By their names.
    pub(crate) callers: BTreeMap<String, Wanted>,
    /// What is in force.
    pub(crate) group: Option<Group>,
    pub(crate) split: Split,
    /// What the agents behind were asked to do.
    behind: BTreeMap<String, Group>,
    /// Agents behind of which nothing is heard, and since when.
    unheard: BTreeMap<String, Instant>,
    /// By what causes it.
    troubles: BTreeMap<String, String>,
}

/// What a caller wants.
pub(crate) struct Wanted {
    group: Group,
    pub(crate) heard: Instant,
}

impl Held {
    /// Why packets may not reach all members.
    pub(crate) fn trouble(&self) -> String {
        self.troubles.values().cloned().collect::<Vec<_>>().join("; ")
    }

    /// What all callers want, if they agree.
    fn wanted(&self) -> Option<&Group> {
        let mut all = self.callers.values().map(|wanted| &wanted.group);
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }
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
            name: settings.name.clone(),
            stale_after: settings.stale_after,
            behind,
            groups_per_host_max: settings.groups_per_host_max,
            authorities: certificates.authorities(),
            agents,
            sight,
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
        ControlError::new(kind, format!("switch {}: {why}", self.name))
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
        let (others, most) = (self.others_of(&held, key), self.groups_per_host_max);
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
            held.is_proven = self.check_virtual_peer(&group)?;
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

    /// Where the members part here.
    pub(crate) async fn split(&self, members: &[Station]) -> Result<Split, ControlError> {
        let ways = self.ways(members, sight::ATTEMPTS).await;
        let ways = ways.map_err(|unseen| self.refused(ErrorKind::NoTree, unseen.why))?;
        self.part(&ways)
    }

    async fn ways(&self, members: &[Station], attempts: u32) -> Result<Vec<Way>, Unseen> {
        let mut ways = Vec::with_capacity(members.len());
        for &member in members {
            let hops = self.sight.find(member, attempts).await?;
            let agents = self.behind.agents(member.address, &hops);
            ways.push(Way { hops, agents });
        }
        Ok(ways)
    }

    /// Where a group's packets come in: where this switch would send packets for its sender.
    async fn inputs(&self, group: &Group, attempts: u32) -> Result<Vec<Port>, Unseen> {
        let sender = Station { address: group.key.sender, mac: group.sender_mac };
        let hops = self.sight.find(sender, attempts).await;
        hops.map(|hops| ports(&hops)).map_err(|unseen| unseen.within("where its sender is"))
    }

    /// Where a group comes in, and parts.
    async fn split_group(&self, group: &Group, attempts: u32) -> Result<Split, Lost> {
        let ways = self.ways(&stations(group), attempts).await?;
        let inputs = self.inputs(group, attempts).await?;
        Ok(self.part(&ways)?.coming_in(inputs))
    }

    fn no_tree(&self, lost: Lost) -> ControlError {
        match lost {
            Lost::Unseen(unseen) => self.refused(ErrorKind::NoTree, unseen.why),
            Lost::Refused(error) => error,
        }
    }

    fn part(&self, ways: &[Way]) -> Result<Split, ControlError> {
        Split::new(ways).map_err(|agent| {
            let why = format!(
                "copies for different members of the group would meet at {agent}, which could not tell them apart; let the members relay instead"
            );
            self.refused(ErrorKind::NoTree, why)
        })
    }

    /// Answers have to pass the switch that merges them, and no other before it.
    pub(crate) async fn check_first(
        &self,
        sender: IpAddr,
        mac: Option<Mac>,
    ) -> Result<(), ControlError> {
        let hops = self.sight.find(Station { address: sender, mac }, sight::ATTEMPTS).await;
        // A bridge that knows stations by their Ethernet addresses alone cannot tell.
        let agents =
            hops.map_or_else(|_| Default::default(), |hops| self.behind.agents(sender, &hops));
        match agents.first() {
            None => Ok(()),
            Some(agent) => {
                let why =
                    format!("it is not the first switch of {sender}: ask the agent at {agent}");
                Err(self.refused(ErrorKind::NoTree, why))
            }
        }
    }

    /// Makes this the group that is in force, here and behind.
    async fn apply(&self, held: &mut Held, group: Group) -> Result<(), ControlError> {
        let split = self.split_group(&group, sight::ATTEMPTS).await;
        let split = split.map_err(|lost| self.no_tree(lost))?;
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

    fn claim(&self, held: &Held, key: GroupKey) -> Claim {
        Claim { key, caller: self.name.clone(), instance: held.instance }
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

fn stations(group: &Group) -> Vec<Station> {
    let station = |member: &Member| Station { address: member.address, mac: member.mac };
    group.members.iter().map(station).collect()
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

/// Why it cannot be told where a group comes in and parts.
enum Lost {
    Unseen(Unseen),
    Refused(ControlError),
}

impl From<Unseen> for Lost {
    fn from(unseen: Unseen) -> Self {
        Self::Unseen(unseen)
    }
}

impl From<ControlError> for Lost {
    fn from(error: ControlError) -> Self {
        Self::Refused(error)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
