//! Teams in virtual time: results, members that die or call something else, and the end.

use std::{ops::Range, time::Duration};

use collective::{
    Call, Function, Kind, Op, Reduction, Thresholds, Type, WaySelection,
    model::{Team as Model, WriteCosts},
};
use engine::FailureKind;
use proptest::prelude::*;
use team::{Error, Memory, Team, TeamSettings};
use transport::{Region, Transport};
use transport_sim::{LinkConfig, SimConfig, SimNet, SimTransport};

/// After which those that wait for others give up, as they say.
const PATIENCE: Duration = Duration::from_secs(3);

/// Sums of u64, wrapping.
pub fn sum() -> Reduction {
    Reduction::new(Type::U64, Op::Sum).unwrap()
}

pub fn is_folded(kind: Kind) -> Option<Reduction> {
    kind.folds().then(sum)
}

pub fn call(kind: Kind, root: u32, bytes: u64) -> Call {
    Call::new(kind, root, bytes)
}

/// A member's contribution: each element is 1000 `operation` + 10 `rank` + its position.
pub fn contribution(operation: u64, rank: u32, bytes: u64) -> Vec<u8> {
    let element = |at: u64| (1000 * operation + 10 * u64::from(rank) + at).to_le_bytes();
    (0..bytes / 8).flat_map(element).collect()
}

/// Memory of a member's before an operation.
pub fn memory_for<T: Transport>(team: &mut Team<T>, call: &Call, operation: u64) -> Vec<u8> {
    let (rank, by) = (team.rank(), is_folded(call.kind));
    let bytes = team.memory_bytes(call.kind, call.root, call.bytes, by.as_ref()).unwrap();
    let place = part_of(call, rank);
    match call.kind {
        Kind::AllGather | Kind::Gather => {
            let mut all = vec![0; bytes as usize];
            all[place].copy_from_slice(&contribution(operation, rank, call.bytes));
            all
        }
        _ => contribution(operation, rank, bytes),
    }
}

/// Where a member's own part is in its memory.
fn part_of(call: &Call, rank: u32) -> Range<usize> {
    let bytes = call.bytes as usize;
    let is_first = call.kind.has_parts_at_root() && rank != call.root;
    let start = if is_first { 0 } else { rank as usize * bytes };
    start..start + bytes
}

/// Returns whether a member has in its memory what it has to have after an operation.
pub fn is_result(call: &Call, operation: u64, members: u32, rank: u32, memory: &[u8]) -> bool {
    let contributed = if call.kind == Kind::ReduceScatter { u64::from(members) } else { 1 };
    let all = (0..members).map(|rank| contribution(operation, rank, contributed * call.bytes));
    let folded = |all: Vec<Vec<u8>>| {
        let mut all = all.into_iter();
        let mut first = all.next().unwrap();
        all.for_each(|other| sum().fold(&mut first, &other).unwrap());
        first
    };
    let place = rank as usize * call.bytes as usize;
    let part = |whole: &[u8]| whole[place..][..call.bytes as usize].to_vec();
    let (found, expected) = match call.kind {
        Kind::Reduce if rank != call.root => return true,
        Kind::Broadcast => (memory, contribution(operation, call.root, call.bytes)),
        Kind::Reduce | Kind::AllReduce => (memory, folded(all.collect())),
        Kind::ReduceScatter => (&memory[part_of(call, rank)], part(&folded(all.collect()))),
        Kind::Scatter => {
            let whole = contribution(operation, call.root, u64::from(members) * call.bytes);
            (&memory[part_of(call, rank)], part(&whole))
        }
        Kind::Gather if rank != call.root => {
            (&memory[part_of(call, rank)], contribution(operation, rank, call.bytes))
        }
        Kind::AllGather | Kind::Gather => (memory, all.flatten().collect()),
        _ => (memory, Vec::new()),
    };
    found == expected
}

struct World {
    net: SimNet,
    teams: Vec<Option<Team<SimTransport>>>,
}

fn config() -> SimConfig {
    SimConfig { silence_timeout_ms: Some(2_000), ..SimConfig::IDEAL }
}

impl World {
    fn new(members: u32, seed: u64, adjust: impl Fn(&mut TeamSettings)) -> Self {
        Self::over(SimNet::new(config(), seed), members, adjust)
    }

    fn over(net: SimNet, members: u32, adjust: impl Fn(&mut TeamSettings)) -> Self {
        let transports = net.members(members as usize);
        let settings = |rank| {
            let mut settings = TeamSettings::new(7, members, rank);
            adjust(&mut settings);
            settings
        };
        let mut ends: Vec<Vec<_>> = (0..members).map(|_| Vec::new()).collect();
        for one in 0..members {
            for other in settings(one).links().into_iter().filter(|&other| other > one) {
                let (near, far) = net.connect(one as usize, other as usize);
                ends[one as usize].push((other, near));
                ends[other as usize].push((one, far));
            }
        }
        let teams = transports.into_iter().zip(ends).zip(0..);
        let team =
            |((transport, links), rank)| Some(Team::new(transport, settings(rank), links).unwrap());
        Self { teams: teams.map(team).collect(), net }
    }

    fn team(&mut self, rank: u32) -> &mut Team<SimTransport> {
        self.teams[rank as usize].as_mut().expect("the member lives")
    }

    fn start(&mut self, rank: u32, call: Call) -> Result<u64, Error> {
        let team = self.team(rank);
        // Tests start at most one operation that they do not wait for, so that the number is known here.
        let operation = STARTED.with(|started| started.get());
        let memory = Memory::Owned(memory_for(team, &call, operation));
        team.start(call.kind, call.root, call.bytes, is_folded(call.kind), memory)
    }

    /// Lets time pass until nothing happens any more, at most this long.
    fn run(&mut self, at_most: Duration) {
        let end = self.net.now() + at_most;
        let tick = Duration::from_millis(20);
        while self.net.now() < end {
            let until = (self.net.now() + tick).min(end);
            while let Some(index) = self.net.run_until(until) {
                if let Some(team) = &mut self.teams[index] {
                    team.progress(&mut [], Duration::ZERO);
                }
            }
            for team in self.teams.iter_mut().flatten() {
                team.progress(&mut [], Duration::ZERO);
            }
        }
    }
}

thread_local! {
    static STARTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Runs one operation at all members, and checks the results.
fn check(world: &mut World, operation: u64, call: Call) {
    STARTED.with(|started| started.set(operation));
    let members = world.teams.len() as u32;
    for rank in 0..members {
        assert_eq!(world.start(rank, call).unwrap(), operation);
    }
    world.run(Duration::from_millis(200));
    for rank in 0..members {
        let team = world.team(rank);
        assert!(team.is_complete(operation).unwrap(), "{call:?} at {rank}");
        let memory = team.take(operation).unwrap();
        let is_right = is_result(&call, operation, members, rank, &memory);
        assert!(is_right, "{call:?} at {rank}: {memory:?}");
    }
}

#[test]
fn every_kind_with_any_number_of_members() {
    for members in [1, 2, 3, 4, 7, 16, 33] {
        let mut world = World::new(members, 1, |settings| settings.core.slot_bytes = 256);
        let last = members - 1;
        let calls = [
            call(Kind::Broadcast, last, 8),
            call(Kind::AllReduce, 0, 4096),
            call(Kind::Barrier, 0, 0),
            call(Kind::Reduce, last, 808),
            call(Kind::AllGather, 0, 104),
            call(Kind::ReduceScatter, 0, 64),
            call(Kind::Scatter, last, 104),
            call(Kind::Gather, last / 2, 56),
            call(Kind::Broadcast, 0, 0),
            call(Kind::AllReduce, 0, 8),
        ];
        for (operation, call) in (0..).zip(calls) {
            check(&mut world, operation, call);
        }
    }
}

/// Messages from 400 bytes on are long, in blocks of 136 bytes.
fn long(settings: &mut TeamSettings) {
    set(settings, |it| (it.long_bytes, it.block_bytes) = (400, 136));
}

/// Changes the thresholds by which ways are chosen.
fn set(settings: &mut TeamSettings, change: impl FnOnce(&mut Thresholds)) {
    let mut thresholds = match settings.core.ways {
        WaySelection::ByThresholds(thresholds) => thresholds,
        WaySelection::ByCosts(_) => Thresholds::default(),
    };
    change(&mut thresholds);
    settings.core.ways = WaySelection::ByThresholds(thresholds);
}

#[test]
fn every_kind_of_long_operations() {
    for members in [2, 3, 4, 7, 16, 33] {
        let mut world = World::new(members, 1, long);
        let (last, middle) = (members - 1, members / 2);
        let calls = [
            call(Kind::Broadcast, last, 4096),
            call(Kind::AllReduce, 0, 16_384),
            call(Kind::Barrier, 0, 0),
            call(Kind::Reduce, middle, 808),
            call(Kind::Broadcast, middle, 400),
            call(Kind::AllReduce, 0, 8),
            call(Kind::AllGather, 0, 1000),
            call(Kind::ReduceScatter, 0, 1000),
            call(Kind::Scatter, middle, 1000),
            call(Kind::Gather, last, 1000),
            call(Kind::Scatter, 0, 8),
        ];
        for (operation, call) in (0..).zip(calls) {
            let is_long =
                world.team(0).is_long(call.kind, call.bytes, is_folded(call.kind).as_ref());
            assert_eq!(is_long, call.bytes >= 400, "{call:?}");
            check(&mut world, operation, call);
        }
    }
}

#[test]
fn regions_are_given_back() {
    let mut world = World::new(2, 1, long);
    let regions: Vec<Region> = (0..2).map(|_| Region::zeroed(1000)).collect();
    for (operation, bytes) in [(0, 1000), (1, 80)] {
        for (rank, region) in (0..).zip(&regions) {
            region.write(0..1000).unwrap().fill(rank as u8 + 1);
            let memory = Memory::Region(region.slice(0..bytes).unwrap());
            let by = is_folded(Kind::AllReduce);
            let started = world.team(rank).start(Kind::AllReduce, 0, bytes as u64, by, memory);
            assert_eq!(started.unwrap(), operation);
            if bytes == 80 {
                let memory = Memory::Region(region.clone());
                let again = world.team(rank).start(Kind::AllReduce, 0, 1000, Some(sum()), memory);
                assert!(matches!(again, Err(Error::Memory(_))), "it is in use: {again:?}");
            }
        }
        world.run(Duration::from_millis(200));
        for (rank, region) in (0..).zip(&regions) {
            assert!(world.team(rank).is_complete(operation).unwrap());
            assert_eq!(world.team(rank).take(operation), Some(Vec::new()));
            let bytes = &region.write(0..1000).expect("it is given back")[..bytes];
            assert!(bytes.iter().all(|&byte| byte == 3), "{bytes:?}");
        }
    }
}

#[test]
fn a_long_operation_has_no_lent_memory() {
    let mut world = World::new(2, 1, long);
    let mut lent = vec![0; 400];
    let memory = Memory::Lent(&mut lent);
    let refused = world.team(0).start(Kind::Broadcast, 0, 400, None, memory).unwrap_err();
    assert!(refused.to_string().contains("an operation of 400 bytes is long"), "{refused}");
    assert_eq!(world.start(0, call(Kind::Broadcast, 0, 400)).unwrap(), 0, "nothing was started");
}

#[test]
fn a_dead_member_is_named_at_all_others() {
    for (dead, bytes) in (0..5).flat_map(|dead| [(dead, 64), (dead, 4000)]) {
        let mut world = World::new(5, u64::from(dead), long);
        check(&mut world, 0, call(Kind::Barrier, 0, 0));
        for rank in (0..5).filter(|&rank| rank != dead) {
            world.start(rank, call(Kind::AllReduce, 0, bytes)).unwrap();
        }
        world.net.kill(dead as usize);
        world.teams[dead as usize] = None;
        world.run(Duration::from_secs(10));
        for rank in (0..5).filter(|&rank| rank != dead) {
            let team = world.team(rank);
            let error = team.is_complete(1).unwrap_err();
            let Error::Failed(failure) = &error else { panic!("{error}") };
            assert_eq!((failure.team, failure.member), (7, Some(dead)), "at {rank}: {failure}");
            assert!(matches!(failure.kind, FailureKind::Lost | FailureKind::Silent));
            assert!(team.has_ended(), "{rank} has links left");
            let again = team.start(Kind::Barrier, 0, 0, None, Memory::Owned(Vec::new()));
            assert_eq!(again.unwrap_err().to_string(), error.to_string());
        }
    }
}

/// Costs of a network where bytes take long.
const DEAR: WriteCosts = WriteCosts { transmit_us_per_byte: 5.0, ..WriteCosts::PAPER };

/// Settings by which only rank 0 has these costs.
fn told(settings: &mut TeamSettings) {
    settings.takes_costs = true;
    if settings.core.rank == 0 {
        settings.core.ways = WaySelection::ByCosts(DEAR);
    }
}

#[test]
fn all_choose_by_the_costs_of_rank_0() {
    let mut differ = false;
    for members in [1, 2, 5, 16, 40] {
        let mut world = World::new(members, 1, told);
        if members > 1 {
            let early = world.start(members - 1, call(Kind::Barrier, 0, 0));
            assert!(matches!(early, Err(Error::NotTold)), "{early:?}");
        }
        world.run(Duration::from_millis(200));
        for (operation, bytes) in (0..).zip([8, 800, 8_000]) {
            assert!((0..members).all(|rank| world.team(rank).is_ready().unwrap()), "{members}");
            let long = |rank| world.team(rank).is_long(Kind::AllReduce, bytes, Some(&sum()));
            let long: Vec<bool> = (0..members).map(long).collect();
            assert!(long.iter().all(|&it| it == long[0]), "{members} members, {bytes} B");
            let call = Call::folding(Kind::AllReduce, 0, bytes, &sum());
            let is_long = |costs: &WriteCosts| {
                let slot_room_bytes = 32 << 10;
                Model { members, slot_room_bytes, costs }.choose(&call).way.is_long()
            };
            assert_eq!(long[0], is_long(&DEAR), "{members} members, {bytes} B");
            // What the other members have of their own is not used.
            differ |= long[0] != is_long(&WriteCosts::TCP);
            check(&mut world, operation, self::call(Kind::AllReduce, 0, bytes));
        }
    }
    assert!(differ);
}

#[test]
fn a_member_that_does_not_tell_is_named() {
    let mut world = World::new(4, 1, |settings| {
        told(settings);
        settings.takes_costs = settings.core.rank != 0;
    });
    world.run(Duration::from_secs(1));
    assert!(!world.team(1).is_ready().unwrap());
    world.team(1).time_out(PATIENCE);
    world.run(Duration::from_secs(1));
    for rank in 0..4 {
        let failure = world.team(rank).failure().expect("all know").clone();
        assert_eq!((failure.member, failure.kind), (Some(0), FailureKind::Stalled));
        assert!(failure.detail.contains("has not sent how ways are chosen"), "{failure}");
        assert_eq!(world.team(rank).is_ready().is_err(), rank > 0);
    }
}

/// As [`told`], where rank 0 measures the time of a write first.
fn probed(settings: &mut TeamSettings) {
    settings.takes_costs = true;
    settings.probed = Some(1);
}

#[test]
fn rank_0_measures_how_long_a_write_takes() {
    let (members, bytes) = (16, 64 << 10);
    let call = Call::folding(Kind::AllReduce, 0, bytes, &sum());
    let mut differ = Vec::new();
    for hop_us in [10, 10_000] {
        let link = LinkConfig { latency_ns: hop_us * 1000, ..LinkConfig::IDEAL };
        let net = SimNet::new(SimConfig { link, ..config() }, 1);
        let mut world = World::over(net, members, probed);
        assert!(matches!(world.start(0, self::call(Kind::Barrier, 0, 0)), Err(Error::NotTold)));
        world.run(Duration::from_secs(1));
        let costs = &WriteCosts::TCP.with_hop_us(hop_us as f64);
        let chosen = Model { members, slot_room_bytes: 32 << 10, costs }.choose(&call);
        for rank in 0..members {
            let is_long = world.team(rank).is_long(Kind::AllReduce, bytes, Some(&sum()));
            assert_eq!(is_long, chosen.way.is_long(), "member {rank}, {hop_us} us");
        }
        differ.push(chosen.way.is_long());
    }
    assert_ne!(differ[0], differ[1], "both networks have the same choice");
}

#[test]
fn a_member_that_does_not_answer_a_probe_is_named() {
    let mut world = World::new(4, 1, probed);
    let mut silent = world.teams[1].take();
    world.run(Duration::from_secs(1));
    for rank in [0, 2, 3] {
        assert!(!world.team(rank).is_ready().unwrap());
    }
    world.team(0).time_out(PATIENCE);
    std::mem::swap(&mut world.teams[1], &mut silent);
    world.run(Duration::from_secs(1));
    for rank in 0..4 {
        let failure = world.team(rank).failure().expect("all know").clone();
        assert_eq!((failure.member, failure.kind), (Some(1), FailureKind::Stalled));
        assert!(failure.detail.contains("has not answered a probe"), "{failure}");
    }
}

#[test]
fn costs_that_nobody_waits_for_fail_the_team() {
    let mut world = World::new(3, 1, |settings| {
        told(settings);
        settings.takes_costs = settings.core.rank != 2;
    });
    world.run(Duration::from_secs(1));
    let failure = world.team(2).failure().expect("it was told").clone();
    assert_eq!((failure.member, failure.kind), (Some(0), FailureKind::Protocol), "{failure}");
}

#[test]
fn members_that_call_different_things_fail_the_team() {
    let different = [
        call(Kind::Broadcast, 2, 64),
        call(Kind::Broadcast, 1, 72),
        call(Kind::AllGather, 0, 64),
        call(Kind::Barrier, 0, 0),
    ];
    let cases = different.into_iter().flat_map(|it| [(it, u64::MAX), (it, 1), (it, 70)]);
    for (index, (different, long_bytes)) in cases.enumerate() {
        let mut world =
            World::new(4, index as u64, |settings| set(settings, |it| it.long_bytes = long_bytes));
        for rank in 0..4 {
            let call = if rank == 3 { different } else { call(Kind::Broadcast, 1, 64) };
            // A member may learn of it already now.
            let _ = world.start(rank, call);
        }
        world.run(Duration::from_secs(5));
        let failures: Vec<_> = (0..4).map(|rank| world.team(rank).failure().cloned()).collect();
        for (rank, failure) in failures.iter().enumerate() {
            let failure =
                failure.as_ref().unwrap_or_else(|| panic!("{rank} knows nothing of {different:?}"));
            assert!(failure.member == Some(3) || failure.reporter == 3, "at {rank}: {failure}");
            assert_eq!(failure.kind, FailureKind::Application);
        }
    }
}

/// Member 3 never calls: any member that times out names it, even one that waits for others that wait for it.
/// A one-sided write is seen before the words that were sent after it.
#[test]
fn a_failure_that_was_sent_after_a_write_goes_before_what_the_write_shows() {
    let mut world = World::new(2, 1, |_| {});
    world.start(0, call(Kind::Close, 0, 0)).unwrap();
    world.run(Duration::from_millis(50));
    world.team(0).abort("enough");
    world.team(0).progress(&mut [], Duration::ZERO);
    let until = world.net.now() + Duration::from_millis(50);
    while world.net.run_until(until).is_some() {}
    let found = world.start(1, call(Kind::Broadcast, 0, 8)).unwrap_err();
    let Error::Failed(failure) = found else { panic!("{found:?}") };
    assert_eq!((failure.member, failure.detail.as_str()), (Some(0), "enough"));
    let others = world.team(0).failure().cloned().unwrap();
    assert_eq!(others.detail, "enough");
    world.run(Duration::from_millis(500));
    assert!((0..2).all(|rank| world.team(rank).has_ended()));
}

#[test]
fn a_member_that_does_not_call_is_named_by_the_timeout() {
    for (first_to_time_out, bytes) in [0, 1, 2].into_iter().flat_map(|it| [(it, 64), (it, 640)]) {
        let mut world = World::new(4, 3, |settings| {
            long(settings);
            set(settings, |it| (it.degree, it.exchange_bytes) = (1, 0));
        });
        for rank in 0..3 {
            world.start(rank, call(Kind::AllReduce, 0, bytes)).unwrap();
        }
        world.run(Duration::from_secs(3));
        assert!(
            (0..3).all(|rank| !world.team(rank).is_complete(0).unwrap()),
            "waiting fails nothing"
        );
        world.team(first_to_time_out).time_out(PATIENCE);
        world.run(Duration::from_secs(3));
        for rank in 0..4 {
            let failure = world.team(rank).failure().expect("all know").clone();
            let named = (failure.member, failure.kind, failure.reporter);
            assert_eq!(named, (Some(3), FailureKind::Stalled, first_to_time_out), "{failure}");
            assert!(failure.detail.contains("it has called 0 after 3s"), "{failure}");
        }
    }
}

/// Member 0 waits for 2, which waits for 3, which never calls; 2 hears from 0 more often than it would tell by itself.
#[test]
fn those_who_hear_that_others_wait_tell_what_they_wait_for() {
    let mut world =
        World::new(4, 3, |settings| set(settings, |it| (it.degree, it.exchange_bytes) = (1, 0)));
    world.start(0, call(Kind::AllReduce, 0, 64)).unwrap();
    world.run(Duration::from_millis(50));
    for rank in [1, 2] {
        world.start(rank, call(Kind::AllReduce, 0, 64)).unwrap();
    }
    world.run(Duration::from_secs(3));
    world.team(0).time_out(PATIENCE);
    let failure = world.team(0).failure().expect("it has timed out");
    assert_eq!((failure.member, failure.kind), (Some(3), FailureKind::Stalled), "{failure}");
}

#[test]
fn a_connection_lost_before_the_team_is_made_fails_it() {
    let net = SimNet::new(config(), 5);
    let mut transports = net.members(2).into_iter();
    let (near, far) = net.connect(0, 1);
    net.inject(transport_sim::Fault::Reset(0, 1));
    for (rank, link) in [(0, near), (1, far)] {
        let transport = transports.next().expect("there are two");
        let settings = TeamSettings::new(7, 2, rank);
        let mut team = Team::new(transport, settings, [(1 - rank, link)]).unwrap();
        team.progress(&mut [], Duration::ZERO);
        let failure = team.failure().expect("its only link is lost");
        assert_eq!((failure.member, failure.kind), (Some(1 - rank), FailureKind::Lost));
    }
}

#[test]
fn a_member_that_does_not_leave_is_named_by_the_timeout() {
    let mut world = World::new(5, 9, |_| {});
    check(&mut world, 0, call(Kind::Barrier, 0, 0));
    for rank in [0, 1, 2, 4] {
        world.team(rank).leave().unwrap();
    }
    world.run(Duration::from_secs(1));
    world.team(4).time_out(PATIENCE);
    world.run(Duration::from_secs(1));
    for rank in 0..5 {
        let failure = world.team(rank).failure().expect("all know").clone();
        let named = (failure.member, failure.kind, failure.reporter);
        assert_eq!(named, (Some(3), FailureKind::Stalled, 4), "{failure}");
        assert!(failure.detail.contains("has not left the team after 3s"), "{failure}");
    }
}

#[test]
fn a_team_ends_when_all_have_left() {
    let mut world = World::new(5, 9, |_| {});
    check(&mut world, 0, call(Kind::Broadcast, 3, 10_000));
    for rank in 0..4 {
        world.team(rank).leave().unwrap();
    }
    world.run(Duration::from_secs(1));
    assert!((0..5).all(|rank| !world.team(rank).has_ended()), "member 4 has not left");
    world.team(4).leave().unwrap();
    world.run(Duration::from_secs(3));
    for rank in 0..5 {
        let team = world.team(rank);
        assert!(team.has_ended() && team.failure().is_none(), "{:?} at {rank}", team.failure());
        let late = team.start(Kind::Barrier, 0, 0, None, Memory::Owned(Vec::new()));
        assert!(matches!(late, Err(Error::Closed(7))));
    }
}

/// Its root is done with a broadcast when it has called it.
#[test]
fn a_team_does_not_close_if_a_member_has_called_less() {
    for leaves_first in [true, false] {
        let mut world = World::new(2, 9, |_| {});
        check(&mut world, 0, call(Kind::Barrier, 0, 0));
        if leaves_first {
            world.team(1).leave().unwrap();
            world.run(Duration::from_secs(1));
        }
        let last = call(Kind::Broadcast, 0, 8);
        let memory = Memory::Owned(memory_for(world.team(0), &last, 1));
        let started = world.team(0).start(last.kind, 0, last.bytes, None, memory);
        assert_eq!(started.is_err(), leaves_first);
        if !leaves_first {
            world.team(0).leave().unwrap();
            world.team(1).leave().unwrap();
        }
        world.run(Duration::from_secs(3));
        for rank in 0..2 {
            let failure = world.team(rank).failure().expect("both know");
            assert_eq!(failure.kind, FailureKind::Application);
            assert!(failure.detail.contains("it left after"), "{failure}");
        }
    }
}

#[test]
fn what_makes_no_team_or_call_is_refused() {
    let net = SimNet::new(config(), 1);
    let refused = |settings: TeamSettings, part: &str| {
        let error = Team::new(net.member(), settings, []).err().expect("refused").to_string();
        assert!(error.contains(part), "{error}");
    };
    let with = |adjust: fn(&mut TeamSettings)| {
        let mut settings = TeamSettings::new(1, 2, 0);
        adjust(&mut settings);
        settings
    };
    refused(with(|it| it.core.members = 0), "members is 0; use 1 to");
    refused(with(|it| it.core.rank = 2), "rank is 2; use 0 to 1");
    refused(with(|it| it.core.slots = 0), "slots is 0; use 1 to");
    refused(with(|it| it.core.slot_bytes = 63), "slot_bytes is 63; use 64 to");
    refused(with(|it| set(it, |it| it.degree = 0)), "degree is 0; use 1 to");
    refused(with(|it| set(it, |it| it.block_bytes = 0)), "block_bytes is 0; use 1 to");
    let negative = |it: &mut TeamSettings| {
        it.core.ways = WaySelection::ByCosts(WriteCosts { post_us: -1.0, ..WriteCosts::PAPER });
    };
    refused(with(negative), "are not all finite and at least 0");
    refused(with(|_| {}), "there is no link to member 1");
    let mut world = World::new(1, 1, |_| {});
    let mut refused = |kind, root, bytes, by: Option<Reduction>, memory: usize, part: &str| {
        let memory = Memory::Owned(vec![0; memory]);
        let error = world.team(0).start(kind, root, bytes, by, memory).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let long = |bytes| Some(Function::new("long", bytes, |_, _| {}).unwrap().into());
    refused(Kind::Broadcast, 0, 8, None, 7, "the memory has 7 bytes; 8 are needed");
    refused(Kind::Broadcast, 1, 8, None, 8, "root is 1; use 0 to 0");
    refused(Kind::AllReduce, 0, 8, None, 8, "all_reduce needs an operator or a function");
    refused(Kind::Broadcast, 0, 8, Some(sum()), 8, "broadcast folds nothing");
    refused(
        Kind::AllReduce,
        0,
        12,
        Some(sum()),
        12,
        "12 bytes are not a whole number of elements of 8",
    );
    let element = "element_bytes is 33000; use 1 to 32768";
    refused(Kind::AllReduce, 0, 66_000, long(33_000), 66_000, element);
    let completed = world.team(0).start(Kind::Barrier, 0, 0, None, Memory::Owned(Vec::new()));
    assert_eq!(completed.unwrap(), 0, "nothing was started before");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Members run ahead, slots are few, and the network delays at random.
    #[test]
    fn many_operations_under_way(members in 2_u32..9, seed: u64, slots in 1_u32..5) {
        let mut world = World::new(members, seed, |settings| {
            (settings.core.slots, settings.core.slot_bytes) = (slots, 128);
            if seed % 2 == 0 {
                set(settings, |it| (it.long_bytes, it.block_bytes) = (160, 40));
            }
        });
        let kinds = [
            Kind::Broadcast,
            Kind::AllReduce,
            Kind::Reduce,
            Kind::AllGather,
            Kind::Barrier,
            Kind::ReduceScatter,
            Kind::Scatter,
            Kind::Gather,
        ];
        let calls: Vec<Call> = (0..20)
            .map(|index| {
                let choice = (seed >> (index % 40)) as usize;
                let kind = kinds[choice % kinds.len()];
                let has_root = matches!(kind, Kind::Broadcast | Kind::Reduce) || kind.has_parts_at_root();
                let root = if has_root { (choice / 5) as u32 % members } else { 0 };
                call(kind, root, if kind == Kind::Barrier { 0 } else { 8 * (choice as u64 % 60) })
            })
            .collect();
        for rank in 0..members {
            for (operation, &call) in (0..).zip(&calls) {
                STARTED.with(|started| started.set(operation));
                prop_assert_eq!(world.start(rank, call).unwrap(), operation);
            }
        }
        world.run(Duration::from_secs(1));
        for rank in 0..members {
            for (operation, call) in (0..).zip(&calls) {
                prop_assert!(world.team(rank).is_complete(operation).unwrap(), "{call:?} at {rank}");
                let memory = world.team(rank).take(operation).unwrap();
                let is_right = is_result(call, operation, members, rank, &memory);
                prop_assert!(is_right, "{call:?} at {rank}");
            }
        }
    }
}
