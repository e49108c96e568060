//! How the end of a write shows: by reports and by flags, in networks that show bytes of writes before they report them.

use std::time::Duration;

use collective::{Call, Kind};
use team::{Memory, PlantedBug, Team, TeamSettings, WriteEnds};
use transport::{Completion, OneSidedWrites, Transport};
use transport_sim::{LinkConfig, Placement, SimConfig, SimLink, SimNet, SimTransport};

use crate::simulated::{call, is_folded, is_result, memory_for};

/// A multiple of the virtual time that a run takes, but below that after which members tell what they wait for.
const PATIENCE: Duration = Duration::from_millis(20);
/// Several looks at a write while its bytes become visible.
const LOOK: Duration = Duration::from_nanos(300);
const GLANCES: u32 = 10;
const SEEDS: u64 = 8;
const OPERATIONS: u64 = 35;

/// Loses the reports of writes, if so asked.
struct Listening {
    inner: SimTransport,
    is_deaf: bool,
}

impl Transport for Listening {
    type Link = SimLink;

    transport::forward!(inner; now, block_bytes_max, open, post_receive, post_send, write_control, close, waker);

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        self.inner.one_sided()
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        self.inner.poll(completions, wait);
        completions.retain(|completion| {
            !self.is_deaf || !matches!(completion, Completion::Written { .. })
        });
    }
}

/// What is run, and in which network.
#[derive(Clone, Copy, Debug)]
struct Scene {
    placement: Option<Placement>,
    ends: WriteEnds,
    members: u32,
    seed: u64,
    planted: Option<PlantedBug>,
    is_deaf: bool,
    looks: Looks,
}

/// How members that have nothing to do go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looks {
    /// They poll again and again.
    Polls,
    /// They look at memory where writes show there, and poll now and then.
    Glances,
    /// They poll again only when their transport has something to report.
    Sleeps,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Right,
    /// This operation has another result at this member.
    Wrong(u64, u32),
    Failed(String),
    /// This many operations were not complete anywhere in time.
    Stuck(usize),
}

fn placement(in_order: bool, whole_words: bool) -> Option<Placement> {
    Some(Placement { in_order, whole_words, lasting_ns: 4_000 })
}

impl Scene {
    fn new(placement: Option<Placement>, ends: WriteEnds, seed: u64) -> Self {
        let members = 2 + (seed % 6) as u32;
        Self { placement, ends, members, seed, planted: None, is_deaf: false, looks: Looks::Polls }
    }

    fn settings(&self, rank: u32) -> TeamSettings {
        let mut settings = TeamSettings::new(7, self.members, rank);
        // Contents of more and of fewer bytes than a slot has room for, and than words may hold.
        (settings.core.slots, settings.core.slot_bytes) = (1 + (self.seed % 4) as u32, 512);
        (settings.ends, settings.planted) = (self.ends, self.planted);
        settings
    }

    fn call(&self, operation: u64) -> Call {
        let kinds =
            [Kind::Broadcast, Kind::AllReduce, Kind::Reduce, Kind::AllGather, Kind::Barrier];
        let kind = kinds[((operation + self.seed) % 5) as usize];
        let root = match kind {
            Kind::Broadcast | Kind::Reduce => (operation / 5) as u32 % self.members,
            _ => 0,
        };
        let bytes = [0, 8, 64, 120, 456, 8, 1_600][(operation * (1 + self.seed) % 7) as usize];
        call(kind, root, if kind == Kind::Barrier { 0 } else { bytes })
    }

    fn run(self) -> Outcome {
        let link = LinkConfig { latency_ns: 1_000, ..LinkConfig::IDEAL };
        let (write_placement, control_jitter_ns_max) = (self.placement, 3_000);
        let config = SimConfig { link, write_placement, control_jitter_ns_max, ..SimConfig::IDEAL };
        let net = SimNet::new(config, self.seed);
        let mut teams = self.teams(&net);
        for team in &mut teams {
            for operation in 0..OPERATIONS {
                let call = self.call(operation);
                let memory = memory_for(team, &call, operation);
                let (kind, root, bytes) = (call.kind, call.root, call.bytes);
                if let Err(error) =
                    team.start(kind, root, bytes, is_folded(kind), Memory::Owned(memory))
                {
                    return Outcome::Failed(error.to_string());
                }
            }
        }
        match self.looks {
            Looks::Polls => look_often(&net, &mut teams),
            Looks::Glances => glance_often(&net, &mut teams),
            Looks::Sleeps => sleep_and_wake(&net, &mut teams),
        }
        self.outcome(teams)
    }

    fn teams(&self, net: &SimNet) -> Vec<Team<Listening>> {
        let transports = net.members(self.members as usize);
        let mut ends: Vec<Vec<_>> = (0..self.members).map(|_| Vec::new()).collect();
        for one in 0..self.members {
            for other in self.settings(one).links().into_iter().filter(|&other| other > one) {
                let (near, far) = net.connect(one as usize, other as usize);
                ends[one as usize].push((other, near));
                ends[other as usize].push((one, far));
            }
        }
        let team = |((inner, links), rank)| {
            let transport = Listening { inner, is_deaf: self.is_deaf };
            Team::new(transport, self.settings(rank), links).unwrap()
        };
        transports.into_iter().zip(ends).zip(0..).map(team).collect()
    }

    fn outcome(&self, teams: Vec<Team<Listening>>) -> Outcome {
        let mut stuck = 0;
        for mut team in teams {
            if let Some(failure) = team.failure() {
                return Outcome::Failed(failure.to_string());
            }
            for operation in 0..OPERATIONS {
                let (call, rank) = (self.call(operation), team.rank());
                let Some(memory) = team.take(operation) else {
                    stuck += 1;
                    continue;
                };
                if !is_result(&call, operation, self.members, rank, &memory) {
                    return Outcome::Wrong(operation, rank);
                }
            }
        }
        if stuck > 0 { Outcome::Stuck(stuck) } else { Outcome::Right }
    }
}

fn are_done(teams: &[Team<Listening>]) -> bool {
    let done = |team: &Team<Listening>| team.failure().is_some() || !team.is_waiting();
    teams.iter().all(done)
}

/// All members look at their slots again and again.
fn look_often(net: &SimNet, teams: &mut [Team<Listening>]) {
    while !are_done(teams) && net.now() < PATIENCE {
        net.run_until(net.now() + LOOK);
        teams.iter_mut().for_each(|team| team.progress(&mut [], Duration::ZERO));
    }
}

/// Between two polls of a member are many looks at its memory, of which some find something where writes show.
fn glance_often(net: &SimNet, teams: &mut [Team<Listening>]) {
    let (mut shows, mut found) = (false, false);
    while !are_done(teams) && net.now() < PATIENCE {
        for _ in 0..GLANCES {
            net.run_until(net.now() + LOOK);
            for team in teams.iter_mut().filter(|team| team.shows_writes()) {
                shows = true;
                found |= team.glance(&mut []);
            }
        }
        teams.iter_mut().for_each(|team| team.progress(&mut [], Duration::ZERO));
    }
    assert_eq!(shows, found);
}

/// Members sleep until their transport has something to report.
fn sleep_and_wake(net: &SimNet, teams: &mut [Team<Listening>]) {
    let mut are_awake = vec![true; teams.len()];
    while !are_done(teams) && net.now() < PATIENCE {
        for (team, is_awake) in teams.iter_mut().zip(&mut are_awake).filter(|(_, it)| **it) {
            // The shortest wait, before which a member does all that it does before a long one. One that does not wait looks
            // again.
            let before = net.now();
            team.progress(&mut [], Duration::from_nanos(1));
            *is_awake = net.now() == before;
        }
        let until = if are_awake.contains(&true) { net.now() + LOOK } else { PATIENCE };
        if let Some(index) = net.run_until(until) {
            are_awake[index] = true;
        }
    }
}

/// Runs a scene with several seeds, and returns those whose outcome is not right.
fn wrong(change: impl Fn(u64) -> Scene) -> Vec<(u64, Outcome)> {
    let outcomes = (0..SEEDS).map(|seed| (seed, change(seed).run()));
    outcomes.filter(|(_, outcome)| *outcome != Outcome::Right).collect()
}

#[test]
fn every_way_is_right_where_the_network_keeps_what_it_needs() {
    let any = [(false, false), (false, true), (true, false), (true, true)];
    for (in_order, whole_words) in any {
        let ways = [
            Some(WriteEnds::Auto),
            Some(WriteEnds::Reports),
            in_order.then_some(WriteEnds::LastByte),
            whole_words.then_some(WriteEnds::Words),
        ];
        for ends in ways.into_iter().flatten() {
            for looks in [Looks::Polls, Looks::Glances, Looks::Sleeps] {
                let wrong = wrong(|seed| Scene {
                    looks,
                    ..Scene::new(placement(in_order, whole_words), ends, seed)
                });
                assert_eq!(wrong, [], "{ends:?} {in_order} {whole_words} {looks:?}");
            }
        }
    }
    assert_eq!(wrong(|seed| Scene::new(None, WriteEnds::Auto, seed)), []);
}

/// Flags are wrong where bytes become visible in any order, and a test sees it.
#[test]
fn flags_are_seen_to_be_wrong_where_bytes_become_visible_in_any_order() {
    let wrongly = [
        (WriteEnds::LastByte, placement(false, false)),
        (WriteEnds::LastByte, placement(false, true)),
        (WriteEnds::Words, placement(false, false)),
    ];
    for (ends, placement) in wrongly {
        let wrong = wrong(|seed| Scene::new(placement, ends, seed));
        assert!(wrong.len() as u64 >= SEEDS / 2, "{ends:?} {placement:?}: {wrong:?}");
    }
}

#[test]
fn the_same_flag_for_all_uses_of_a_slot_is_seen_to_be_wrong() {
    for (ends, placement) in
        [(WriteEnds::LastByte, placement(true, false)), (WriteEnds::Words, placement(false, true))]
    {
        let planted = Some(PlantedBug::SameFlag);
        let wrong = wrong(|seed| Scene { planted, ..Scene::new(placement, ends, seed) });
        assert!(wrong.len() as u64 >= SEEDS / 2, "{ends:?}: {wrong:?}");
    }
}

#[test]
fn flags_need_no_reports() {
    let is_deaf = true;
    let last_byte =
        |seed| Scene { is_deaf, ..Scene::new(placement(true, false), WriteEnds::LastByte, seed) };
    assert_eq!(wrong(last_byte), []);
    let both = |seed| Scene { is_deaf, ..Scene::new(placement(true, true), WriteEnds::Auto, seed) };
    assert_eq!(wrong(both), []);
    let reports =
        |seed| Scene { is_deaf, ..Scene::new(placement(true, true), WriteEnds::Reports, seed) };
    assert!(wrong(reports).iter().all(|(_, outcome)| matches!(outcome, Outcome::Stuck(_))));
    assert_eq!(wrong(reports).len() as u64, SEEDS);
}
