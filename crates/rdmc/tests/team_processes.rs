//! Teams whose members are processes, which share memory by default, and fabrics that join nothing else, such as libfabric's shm.

use std::{
    thread,
    time::{Duration, Instant},
};

use rdmc::{Error, Fabric, Op, TeamSettings};

use crate::{
    common::{
        PATIENCE, ends, fabric,
        processes::{
            DONE, Member, Process, Role, finish, run_some_apart, run_some_of_another_user, say,
            share_memory,
        },
    },
    teams::operations,
};

/// Not a test: the main function of a member's process.
#[test]
fn member() {
    let Some(member) = Member::of_this_process() else { return };
    let settings = TeamSettings::new(9, member.members.clone(), member.rank).ends(ends());
    let team = member.context.create_team(settings).unwrap();
    say(format_args!("{:?}", team.shares_memory_with()));
    if member.is(Role::Endless) {
        let sum = |length| team.all_reduce(&mut vec![1_u32; length], Op::Sum, PATIENCE);
        let failed = [1, 300_000].into_iter().cycle().find_map(|length| sum(length).err());
        let Some(Error::TeamFailed(failure)) = failed else { panic!("{failed:?}") };
        say(format_args!("{:?}", failure.member));
        return;
    }
    for _ in 0..20 {
        operations(&team);
    }
    team.close(PATIENCE).unwrap();
    member.context.close(PATIENCE).unwrap();
    say(DONE);
}

/// Starts a team with these members, and checks who shares memory with whom.
fn start(roles: &[Role]) -> Vec<Process> {
    let processes = crate::common::processes::start("team_processes::member", roles);
    let over_tcp = fabric() == Fabric::Tcp;
    for (rank, process) in processes.iter().enumerate() {
        let others = (0..roles.len()).filter(|&other| {
            over_tcp && rank != other && share_memory(&[roles[rank], roles[other]])
        });
        assert_eq!(process.hear(rank), format!("{:?}", others.collect::<Vec<_>>()), "{rank}");
    }
    processes
}

#[test]
fn operations_of_members_that_are_processes() {
    finish(&start(&[Role::Usual; 2]));
    finish(&start(&[Role::Usual; 4]));
}

#[test]
fn members_whose_settings_keep_them_on_sockets_share_no_memory() {
    run_some_apart(start);
}

#[test]
fn processes_of_another_user_share_no_memory() {
    // libfabric's shm joins processes of one user only.
    if fabric() == Fabric::Tcp {
        run_some_of_another_user(start);
    }
}

#[test]
fn a_killed_member_is_named() {
    const KILLED: usize = 1;
    let mut processes = start(&[Role::Endless; 3]);
    thread::sleep(Duration::from_millis(50));
    processes[KILLED].child.kill().unwrap();
    let start = Instant::now();
    for rank in [0, 2] {
        assert_eq!(processes[rank].hear(rank), format!("{:?}", Some(KILLED)));
    }
    assert!(start.elapsed() < PATIENCE, "named by a timeout");
}
