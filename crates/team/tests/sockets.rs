//! Teams over TCP, each member on a thread that drives its own network.

use std::{
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use collective::{Call, Kind};
use team::{Memory, Team, TeamSettings, WriteEnds};
use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

use crate::simulated::{call, is_folded, is_result, memory_for};

const PATIENCE: Duration = Duration::from_secs(60);

fn teams(members: u32, ways: &[WriteEnds]) -> Vec<Team<TcpTransport>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ends: Vec<Vec<(u32, TcpLink)>> = (0..members).map(|_| Vec::new()).collect();
    for one in 0..members {
        for other in
            TeamSettings::new(1, members, one).links().into_iter().filter(|&other| other > one)
        {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            ends[one as usize].push((other, near.into()));
            ends[other as usize].push((one, listener.accept().unwrap().0.into()));
        }
    }
    let team = |(links, rank)| {
        let transport =
            TcpTransport::new(TcpSettings::default().silence_timeout(PATIENCE)).unwrap();
        let mut settings = TeamSettings::new(1, members, rank);
        settings.ends = ways[rank as usize % ways.len()];
        Team::new(transport, settings, links).unwrap()
    };
    ends.into_iter().zip(0..).map(team).collect()
}

fn run(team: &mut Team<TcpTransport>, operation: u64, call: Call, members: u32) {
    let deadline = Instant::now() + PATIENCE;
    let mut memory = memory_for(team, &call, operation);
    let by = is_folded(call.kind);
    let is_long = team.is_long(call.kind, call.bytes, by.as_ref());
    let kept = if is_long { Memory::Owned(memory.clone()) } else { Memory::Lent(&mut memory) };
    assert_eq!(team.start(call.kind, call.root, call.bytes, by, kept).unwrap(), operation);
    while !team.is_complete(operation).unwrap() {
        assert!(Instant::now() < deadline, "{call:?}");
        team.progress(&mut memory, Duration::from_millis(50));
    }
    let kept = team.take(operation).unwrap();
    assert_eq!(kept.len(), if is_long { memory.len() } else { 0 });
    let memory = if is_long { kept } else { memory };
    let is_right = is_result(&call, operation, members, team.rank(), &memory);
    assert!(is_right, "{call:?} at {}", team.rank());
}

#[test]
fn operations_of_all_kinds_and_the_end() {
    operations(&[WriteEnds::Auto]);
}

/// TCP vouches for the order of bytes. Members without flags are beside those that have them.
#[test]
fn operations_by_flags() {
    operations(&[WriteEnds::LastByte, WriteEnds::LastByte, WriteEnds::Reports]);
}

fn operations(ways: &[WriteEnds]) {
    let members = 5;
    let calls = [
        call(Kind::AllReduce, 0, 8),
        call(Kind::Broadcast, 3, 1_000_000),
        call(Kind::AllReduce, 0, 1_000_000),
        call(Kind::AllGather, 0, 4_000),
        call(Kind::Reduce, 4, 12_000),
        call(Kind::Barrier, 0, 0),
        call(Kind::ReduceScatter, 0, 8),
        call(Kind::ReduceScatter, 0, 200_000),
        call(Kind::Scatter, 2, 8),
        call(Kind::Gather, 3, 200_000),
    ];
    let members_of = |team: Team<TcpTransport>| {
        let mut team = team;
        thread::spawn(move || {
            for operation in 0..300 {
                let call = if operation < 10 { calls[operation as usize] } else { calls[0] };
                run(&mut team, operation, call, members);
            }
            team.leave().unwrap();
            let deadline = Instant::now() + PATIENCE;
            while !team.has_ended() {
                assert!(Instant::now() < deadline, "the team does not end");
                team.progress(&mut [], Duration::from_millis(50));
            }
            assert_eq!(team.failure(), None);
        })
    };
    let threads: Vec<_> = teams(members, ways).into_iter().map(members_of).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A member that has completed an operation has sent what others need for it, although it does nothing afterwards.
#[test]
fn members_that_are_done_have_sent_everything() {
    for members in [2, 3, 4, 6] {
        let mut teams = teams(members, &[WriteEnds::Auto]);
        let kinds = [
            Kind::Barrier,
            Kind::Broadcast,
            Kind::AllReduce,
            Kind::Reduce,
            Kind::AllGather,
            Kind::ReduceScatter,
            Kind::Scatter,
            Kind::Gather,
        ];
        for (operation, kind) in (0..).zip(kinds) {
            let call = call(kind, 0, if kind == Kind::Barrier { 0 } else { 16 });
            for team in &mut teams {
                let memory = memory_for(team, &call, operation);
                let by = is_folded(kind);
                let started = team.start(kind, 0, call.bytes, by, Memory::Owned(memory));
                assert_eq!(started.unwrap(), operation);
            }
            let deadline = Instant::now() + PATIENCE;
            let is_complete = |team: &Team<TcpTransport>| team.is_complete(operation).unwrap();
            while !teams.iter().all(is_complete) {
                assert!(Instant::now() < deadline, "{call:?} of {members} members");
                for team in teams.iter_mut().filter(|team| !is_complete(team)) {
                    team.progress(&mut [], Duration::from_millis(1));
                }
            }
        }
    }
}
