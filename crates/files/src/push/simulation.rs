//! Whole pushes without any host: the coordinator among made-up receivers, which die, come back,
//! fall silent, blame each other and answer late, all by one number.

mod cases;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use proptest::prelude::*;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use rdmc::{Error, Fabric, Failure, FailureKind, Secret, Waited};

use super::{
    HostPlan, PushError, PushEvent, PushSettings, Reach, coordinator::Coordinator, host::Step,
    stage::Stage,
};
use crate::{
    SourceError,
    leftover::Leftover,
    messages::{Start, ToReceiver, ToRoot, WaitedFor},
    ranges::{RangeList, Ranges},
};

const BYTES: u64 = 1_000_000;
/// Of the source, for its digest.
const CONTENTS: &[u8] = b"the object";
/// No push takes longer, in its own time.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// The same numbers for the same seed.
struct Dice(ChaCha8Rng);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }
}

/// A made-up receiver.
#[derive(Default)]
struct Receiver {
    is_alive: bool,
    has: Ranges,
    /// What was last seen of its file by the root of an earlier session, or this one.
    left: Ranges,
    /// How often its process was killed, did not answer any more, or was told to end.
    faults: u32,
    /// How often it was expected again.
    starts: u32,
    /// How often it took part in a group that was broken by chance.
    resets: u32,
    published: bool,
    is_right: bool,
    /// It lives, but does not answer.
    is_mute: bool,
    /// Until then it cannot be started, which is said at once.
    refuses_until: Duration,
    /// How long it takes to prepare, to start its fabric, and to compare its copy.
    prepares_for: Duration,
    starts_for: Duration,
    compares_for: Duration,
    published_at: Duration,
}

/// What is on its way to the coordinator.
enum Event {
    Comes(usize),
    Refused(usize, u32),
    Says(usize, ToRoot),
    Dies(usize),
    /// The connection to one that says no more is given up.
    Silent(usize),
    Checked(usize),
    Joined(u64),
    /// Somebody comes who was not planned.
    Late,
    Moves(u64),
    Digest,
}

struct Group {
    start: Start,
    /// Hosts by rank; `None` is the root.
    members: Vec<Option<usize>>,
}

/// The stage, and everything on it.
struct World {
    dice: Dice,
    hosts: Vec<Receiver>,
    queue: BTreeMap<(Duration, u64), Event>,
    events_made: u64,
    groups: BTreeMap<u64, Group>,
    now: Duration,
    digest_told: bool,
    /// How often a host was set aside.
    set_aside: u64,
    /// When groups were started for the first time.
    first_round: Option<Duration>,
    /// When the source is written to, and its attributes tell.
    changes_at: Option<Duration>,
    /// What is read of the source from the second time on.
    later_contents: &'static [u8],
}

fn changed() -> PushError {
    let what = "it was written to".to_owned();
    SourceError::Changed { path: "object".into(), what }.into()
}

impl World {
    /// Somebody has waited for these members of a group of so many, or of more.
    fn waiting(&mut self, members: usize) -> Vec<Waited> {
        let waited = |dice: &mut Dice| Waited {
            member: dice.roll(members as u64 + 1) as u32,
            to_take: Duration::from_millis(dice.roll(20_000)),
            to_give: Duration::from_millis(dice.roll(20_000)),
        };
        (0..self.dice.roll(3)).map(|_| waited(&mut self.dice)).collect()
    }

    fn after(&mut self, most_ms: u64, event: Event) {
        let at = self.now + Duration::from_millis(self.dice.roll(most_ms.max(1)));
        self.events_made += 1;
        self.queue.insert((at, self.events_made), event);
    }

    fn says(&mut self, host: usize, message: ToRoot) {
        self.says_after(Duration::ZERO, host, message);
    }

    fn says_after(&mut self, time: Duration, host: usize, message: ToRoot) {
        // In order: each a little after the one before.
        self.events_made += 1;
        let at = self.now + time + Duration::from_millis(1);
        self.queue.insert((at, self.events_made), Event::Says(host, message));
    }

    fn fails_at(&mut self, group: u64, blamed: u32) {
        let Some(Group { members, .. }) = self.groups.remove(&group) else { return };
        let alive = |&host: &usize| self.hosts[host].is_alive;
        let members: Vec<usize> = members.into_iter().flatten().filter(alive).collect();
        for host in members {
            let has = RangeList::from(&self.hosts[host].has.clone());
            let (member, detail) = (Some(blamed), "was lost".to_owned());
            // Now and then one that is alive says no more.
            if self.dice.roll(30) == 0 {
                self.hosts[host].is_mute = true;
                self.hosts[host].faults += 1;
                self.after(40_000, Event::Silent(host));
                continue;
            }
            self.says(host, ToRoot::RoundFailed { round: group, member, detail, has });
        }
    }
}

impl Stage for World {
    type Connection = ();
    type Group = ();

    fn welcome(&mut self, _: usize, _: (), _: &HostPlan) -> Result<(IpAddr, IpAddr), Error> {
        unreachable!("the coordinator is told directly")
    }

    fn turn_away(&mut self, _connection: (), _reason: &str) {}

    fn add_host(&mut self, _connection: &()) {}

    fn is_current(&self, _host: usize, _connection: u64) -> bool {
        true
    }

    fn hang_up(&mut self, _host: usize, _connection: u64) -> bool {
        true
    }

    fn connected(&self) -> Vec<usize> {
        Vec::new()
    }

    fn stands(&mut self, _number: u64, _group: ()) {}

    fn let_go(&mut self, _number: u64, _group: ()) {}

    fn ended(&mut self, _number: u64) {}

    fn tell(&mut self, host: usize, message: &ToReceiver) {
        if !self.hosts[host].is_alive {
            return;
        }
        match message {
            ToReceiver::Use { has, .. } => {
                self.hosts[host].has = has.within(BYTES);
                self.says_after(self.hosts[host].starts_for, host, ToRoot::Ready { port: 1 });
            }
            ToReceiver::Start(start) => {
                let sends = start.rank == 0;
                let ranges = start.ranges.within(BYTES);
                let has = &self.hosts[host].has;
                assert!(
                    !sends || ranges.iter().all(|range| has.covers(range)),
                    "sends what it lacks"
                );
                let members = start.addresses.len();
                let entry = Group { start: start.clone(), members: vec![None; members] };
                let group = self.groups.entry(start.round).or_insert(entry);
                group.members[start.rank as usize] = Some(host);
                if sends {
                    self.after(3_000, Event::Moves(start.round));
                }
            }
            ToReceiver::Leave { round } => {
                self.groups.remove(round);
                if self.hosts[host].is_mute {
                    return;
                }
                let has = RangeList::from(&self.hosts[host].has);
                let detail = "left".to_owned();
                self.says(host, ToRoot::RoundFailed { round: *round, member: None, detail, has });
            }
            ToReceiver::Digest { .. } => {
                assert!(self.hosts[host].has.covers((0, BYTES)) && self.digest_told);
                let Receiver { is_right: equal, compares_for, .. } = self.hosts[host];
                // It gets on every minute.
                for minute in 0..compares_for.as_secs() / 60 {
                    let worked = ToRoot::Worked { bytes: minute + 1 };
                    self.says_after(Duration::from_secs(60 * minute), host, worked);
                }
                self.says_after(compares_for, host, ToRoot::Compared { equal });
            }
            ToReceiver::Publish => {
                assert!(self.hosts[host].is_right && self.hosts[host].has.covers((0, BYTES)));
                let is_source = |group: &Group| group.members[0] == Some(host);
                assert!(!self.groups.values().any(is_source), "publishes while it sends");
                self.hosts[host].published = true;
                self.hosts[host].published_at = self.now;
                self.says(host, ToRoot::Published { peak_resident_bytes: None, was_there: false });
            }
            ToReceiver::Abort { keep, .. } => {
                let known = &mut self.hosts[host];
                known.left = if *keep { known.has.clone() } else { Ranges::default() };
                known.is_alive = false;
                known.faults += 1;
            }
            _ => {}
        }
    }

    fn leave(&mut self, _host: usize) {}

    fn expect_again(&mut self, host: usize, start: u32) {
        self.hosts[host].starts = start;
        if self.now < self.hosts[host].refuses_until {
            self.after(1, Event::Refused(host, start));
        } else {
            self.after(40_000, Event::Comes(host));
        }
    }

    fn observe(&mut self, event: PushEvent) {
        if matches!(event, PushEvent::Round { .. }) {
            self.first_round.get_or_insert(self.now);
        }
        self.set_aside += u64::from(matches!(event, PushEvent::SetAside { .. }));
    }

    fn waited(&mut self, group: u64) -> Vec<Waited> {
        let members = self.groups.get(&group).map_or(0, |group| group.members.len());
        self.waiting(members)
    }

    fn check(&mut self, host: usize, _leftover: Leftover) {
        self.after(2_000, Event::Checked(host));
    }

    fn check_source(&mut self) -> Result<(), PushError> {
        match self.changes_at {
            Some(at) if self.now >= at => Err(changed()),
            _ => Ok(()),
        }
    }

    fn digest(&mut self) -> Result<(), PushError> {
        self.after(5_000, Event::Digest);
        Ok(())
    }

    fn reads_differently(&self) -> PushError {
        changed()
    }

    fn start_fabric(&mut self, common: &dyn Fn(&Fabric) -> bool) -> Result<Fabric, PushError> {
        assert!(common(&Fabric::Tcp));
        Ok(Fabric::Tcp)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 9))
    }

    fn group_number(&mut self) -> Result<u64, PushError> {
        self.events_made += 1;
        Ok(self.events_made)
    }

    fn join(&mut self, start: &Start) -> Result<(), PushError> {
        let members = vec![None; start.addresses.len()];
        self.groups.insert(start.round, Group { start: start.clone(), members });
        self.after(300, Event::Joined(start.round));
        Ok(())
    }

    fn send(&mut self, group: u64, _ranges: &Ranges) -> Result<(), PushError> {
        self.after(3_000, Event::Moves(group));
        Ok(())
    }

    fn abort(&mut self, group: u64, _reason: &str) {
        self.groups.remove(&group);
    }
}

fn plan(host: usize) -> HostPlan {
    HostPlan { name: format!("h{host}"), destination: "x".into(), rack: 0, reach: Reach::Calls }
}

fn settings(hosts: usize, retries: u32) -> PushSettings {
    let mut settings = PushSettings::new((0..hosts).map(plan).collect(), Secret::random().unwrap());
    settings.retries = retries;
    settings
}

/// One thing happens.
fn happen(core: &mut Coordinator<'_>, world: &mut World, event: Event) -> Result<(), PushError> {
    match event {
        Event::Comes(host) if core.expects(host) => {
            let known = &mut world.hosts[host];
            (known.is_alive, known.is_mute) = (true, false);
            known.has = Ranges::default();
            let leftover = (known.left.bytes() > 0).then(Leftover::made_up);
            let ip = IpAddr::from(Ipv4Addr::new(10, 0, 0, host as u8));
            core.came(world, host, ip, ip);
            let prepared = ToRoot::Prepared { fabrics: vec!["tcp".into()], leftover };
            world.says_after(world.hosts[host].prepares_for, host, prepared);
        }
        Event::Comes(_) => {}
        Event::Refused(host, start) => core.not_started(world, host, start, "refused"),
        Event::Says(host, message) if world.hosts[host].is_alive => core.said(world, host, message),
        Event::Says(..) => {}
        Event::Checked(host) if world.hosts[host].is_alive => {
            core.checked(world, host, world.hosts[host].left.clone());
        }
        Event::Checked(_) => {}
        Event::Dies(host) if world.hosts[host].is_alive && !world.hosts[host].published => {
            let known = &mut world.hosts[host];
            (known.is_alive, known.left) = (false, known.has.clone());
            known.faults += 1;
            let in_it = |group: &Group| group.members.contains(&Some(host));
            let broken: Vec<u64> =
                world.groups.iter().filter(|(_, group)| in_it(group)).map(|(&n, _)| n).collect();
            for number in broken {
                let rank = world.groups[&number].members.iter().position(|m| *m == Some(host));
                world.fails_at(number, rank.unwrap_or(0) as u32);
            }
            // The root notices now, or only hears of it.
            core.gone(world, host, "connection reset");
        }
        Event::Dies(_) => {}
        Event::Silent(host) if world.hosts[host].is_alive && world.hosts[host].is_mute => {
            core.gone(world, host, "nothing was heard of it");
        }
        Event::Silent(_) => {}
        Event::Joined(group) => core.joined(world, group, Ok(()))?,
        Event::Moves(number) => moves(core, world, number),
        Event::Late if core.is_over() => {}
        Event::Late => {
            let host = core.admit(plan(world.hosts.len()));
            assert_eq!(host, world.hosts.len());
            world.hosts.push(Receiver { is_right: true, ..Receiver::default() });
            world.after(5_000, Event::Comes(host));
        }
        Event::Digest => {
            let is_first = !std::mem::replace(&mut world.digest_told, true);
            let contents = if is_first { CONTENTS } else { world.later_contents };
            core.digested(world, blake3::hash(contents))?;
        }
    }
    Ok(())
}

/// A group goes on: some bytes arrive somewhere, it closes, or it is broken by chance.
fn moves(core: &mut Coordinator<'_>, world: &mut World, number: u64) {
    let Some(Group { start, members }) = world.groups.get(&number) else { return };
    let (ranges, members) = (start.ranges.within(BYTES), members.clone());
    let root_sends = members[0].is_none();
    match world.dice.roll(8) {
        0 => {
            world.groups.remove(&number);
            for host in members.iter().flatten().copied() {
                world.hosts[host].has.extend(ranges.iter());
                world.says(host, ToRoot::RoundClosed { round: number });
            }
            if root_sends {
                core.ended(world, number, Ok(()));
            }
        }
        1 if world.dice.roll(4) == 0 => {
            let blamed = world.dice.roll(members.len() as u64) as u32;
            for host in members.iter().flatten().copied() {
                world.hosts[host].resets += 1;
            }
            world.fails_at(number, blamed);
            if root_sends {
                let (kind, detail) = (FailureKind::Lost, String::new());
                let failure =
                    Failure { group: number, member: Some(blamed), reporter: 0, kind, detail };
                core.ended(world, number, Err(failure));
            }
        }
        _ => {
            let ranks = members.len();
            for host in members.into_iter().skip(1).flatten() {
                let waited = world.waiting(ranks).into_iter().map(WaitedFor::from).collect();
                world.says(host, ToRoot::Waited { round: number, waited });
                let bytes = world.hosts[host].has.bytes();
                world.says(host, ToRoot::Progress { bytes });
                let length = 1 + world.dice.roll(BYTES / 4);
                let offset = world.dice.roll(BYTES);
                let some: Ranges = [(offset, offset + length)].into_iter().collect();
                world.hosts[host].has.extend(ranges.intersection(&some).iter());
            }
            world.after(3_000, Event::Moves(number));
        }
    }
}

impl World {
    /// So many receivers that have not come.
    fn new(seed: u64, hosts: usize) -> Self {
        let hosts = (0..hosts).map(|_| Receiver { is_right: true, ..Receiver::default() });
        Self {
            dice: Dice(ChaCha8Rng::seed_from_u64(seed)),
            hosts: hosts.collect(),
            queue: BTreeMap::new(),
            events_made: 0,
            groups: BTreeMap::new(),
            now: Duration::ZERO,
            digest_told: false,
            set_aside: 0,
            first_round: None,
            changes_at: None,
            later_contents: CONTENTS,
        }
    }

    /// Until the push is over.
    fn run(&mut self, core: &mut Coordinator<'_>) -> Result<(), PushError> {
        core.advance(self)?;
        while !core.is_over() {
            let next = self.queue.keys().next().map(|&(at, _)| at);
            let until = next.into_iter().chain(core.deadline()).min();
            let Some(until) = until else { panic!("{} is for ever", core.describe()) };
            self.now = until.max(self.now);
            assert!(self.now < LONGEST, "it does not end: {}", core.describe());
            core.now = self.now;
            let is_due = |(&at, _): (&(Duration, u64), &Event)| at;
            let due = self.queue.iter().next().map(is_due).filter(|&(at, _)| at <= self.now);
            if let Some(event) = due.and_then(|key| self.queue.remove(&key)) {
                happen(core, self, event)?;
            }
            core.advance(self)?;
        }
        Ok(())
    }
}

/// Answers how often a host was set aside.
fn push(
    seed: u64,
    hosts: usize,
    (retries, deaths, late): (u32, u64, u64),
    rate_min: Option<u64>,
) -> u64 {
    let mut settings = settings(hosts, retries);
    settings.rate_min = rate_min;
    let mut core = Coordinator::new(&settings, BYTES);
    let mut world = World::new(seed, hosts);
    for host in 0..hosts {
        // The latest are too late.
        world.after(31_000, Event::Comes(host));
    }
    for _ in 0..deaths {
        let host = world.dice.roll(hosts as u64) as usize;
        world.after(90_000, Event::Dies(host));
    }
    for _ in 0..late {
        world.after(60_000, Event::Late);
    }
    world.after(50_000, Event::Digest);
    let outcome = world.run(&mut core);
    match outcome {
        // Nobody was blamed who could be.
        Err(PushError::Group(_)) => assert!(world.hosts.iter().any(|host| host.resets > 0)),
        Err(error) => panic!("seed {seed}: {error}"),
        Ok(()) => {}
    }
    for (host, known) in core.hosts.iter().enumerate() {
        let made_up = &world.hosts[host];
        match &known.step {
            Step::Published => assert!(made_up.published),
            Step::Failed(reason) => {
                // It came back as often as it might, and had more than one chance reset or worse.
                let is_lost = made_up.faults > 0 || made_up.resets > 1;
                let explained =
                    made_up.starts >= retries && (is_lost || reason.contains("call back within"));
                assert!(explained, "seed {seed}, host {host}: {reason}");
            }
            step => assert!(outcome.is_err(), "seed {seed}, host {host}: {step:?}"),
        }
    }
    world.set_aside
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_push_ends_and_who_lives_has_a_copy(
        seed in any::<u64>(),
        hosts in 1..9_usize,
        retries in 0..3_u32,
        deaths in 0..6_u64,
        late in 0..3_u64,
        rate_min in prop::option::of(1..BYTES),
    ) {
        push(seed, hosts, (retries, deaths, late), rate_min);
    }
}

#[test]
fn hosts_are_set_aside_only_below_the_rate_that_was_asked_for() {
    let set_aside = |rate_min| (0..50).map(|seed| push(seed, 6, (0, 0, 0), rate_min)).sum::<u64>();
    assert_eq!(set_aside(None), 0);
    assert!(set_aside(Some(100 * BYTES)) > 5);
}
