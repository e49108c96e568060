//! Groups whose members are processes of one machine, which share memory by default.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rdmc::{Algorithm, Error, Fabric, Group, GroupSettings, Region, Scheduling, SmallMessages};

use crate::common::{
    PATIENCE, contents, fabric,
    processes::{
        DONE, Member, Process, Role, finish, run_some_apart, run_some_of_another_user, say,
        share_memory, start,
    },
};

/// Written one-sided, in one block, and in many.
const LENGTHS: [usize; 6] = [0, 1, 10_000, 20_000, 64_000, 3_000_001];
const MESSAGES: u64 = 120;
/// Clock ticks that a member may take in [`IDLE`]: 2 % of it at 100 a second.
const IDLE_TICKS_MAX: u64 = 4;
const IDLE: Duration = Duration::from_secs(2);

/// Not a test: the main function of a member's process.
#[test]
fn member() {
    let Some(member) = Member::of_this_process() else { return };
    let group = create(&member, 1);
    say(format_args!("{:?}", group.shares_memory_with()));
    if member.is(Role::Endless) {
        let failed = (0..).find_map(|number| message(&group, number).err());
        let Some(Error::Failed(failure)) = failed else { panic!("{failed:?}") };
        say(format_args!("{:?}", failure.member));
        return;
    }
    // Groups that use the same connections, one after the other and at once.
    let other = create(&member, 2);
    for group in [&group, &other] {
        (0..MESSAGES).for_each(|number| message(group, number).unwrap());
    }
    let before = ticks();
    thread::sleep(IDLE);
    let ticks = ticks() - before;
    assert!(ticks <= IDLE_TICKS_MAX, "an idle member has taken {ticks} clock ticks");
    message(&group, MESSAGES).unwrap();
    for group in [group, other] {
        group.close(PATIENCE).unwrap();
    }
    member.context.close(PATIENCE).unwrap();
    say(DONE);
}

fn create(member: &Member, number: u64) -> Group {
    let settings = GroupSettings::new(number, member.members.clone(), member.rank)
        .schedule(Scheduling::Algorithm(Algorithm::BinomialPipeline))
        .block_bytes(64 << 10)
        .small(Some(SmallMessages::default()));
    member.context.create_group(settings).unwrap()
}

/// Sends a message at the root, until all have it, and receives it at others.
fn message(group: &Group, number: u64) -> Result<(), Error> {
    let bytes = contents(number, LENGTHS[number as usize % LENGTHS.len()]);
    if group.settings().rank == group.settings().root {
        group.send(Region::from_vec(bytes), PATIENCE)?;
        group.wait_delivered(number + 1, PATIENCE)
    } else {
        let message = group.receive(PATIENCE)?.ok_or(Error::Closed(group.settings().number))?;
        let received = message.into_region(PATIENCE)?;
        assert_eq!(received.try_into_vec().unwrap(), bytes, "message {number}");
        Ok(())
    }
}

/// Returns the processor time that this process has taken, in clock ticks.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Starts a group with these members, the first of which is the root and has a link to every other one.
fn start_group(roles: &[Role]) -> Vec<Process> {
    let processes = start("group_processes::member", roles);
    let shares = |one: usize, other: usize| {
        fabric() == Fabric::Tcp && share_memory(&[roles[one], roles[other]])
    };
    for (rank, process) in processes.iter().enumerate() {
        let said = process.hear(rank);
        let said: Vec<usize> = said
            .trim_matches(['[', ']'])
            .split_terminator(", ")
            .map(|rank| rank.parse().expect("a rank"))
            .collect();
        assert!(said.iter().all(|&other| shares(rank, other)), "{rank}: {said:?}");
        if rank == 0 {
            let all = (1..roles.len()).filter(|&other| shares(0, other));
            assert_eq!(said, all.collect::<Vec<_>>());
        } else {
            assert_eq!(said.contains(&0), shares(rank, 0), "{rank}: {said:?}");
        }
    }
    processes
}

#[test]
fn members_that_are_processes_share_memory() {
    finish(&start_group(&[Role::Usual; 2]));
    finish(&start_group(&[Role::Usual; 4]));
}

#[test]
fn members_whose_settings_keep_them_on_sockets_share_no_memory() {
    run_some_apart(start_group);
}

#[test]
fn processes_of_another_user_share_no_memory() {
    run_some_of_another_user(start_group);
}

/// Also where the members copy blocks out of each other's memory, as those of an ordinary user.
#[test]
fn members_of_an_ordinary_user_share_memory() {
    let tests = ["group_processes::members_that", "group_processes::a_killed"];
    if let Some(said) = testing::run_as_ordinary_user(&tests) {
        assert!(said.text.contains("2 passed"), "{}", said.text);
    }
}

#[test]
fn a_killed_member_is_named() {
    for killed in [0, 1, 2] {
        let mut processes = start_group(&[Role::Endless; 3]);
        thread::sleep(Duration::from_millis(50));
        processes[killed].child.kill().unwrap();
        let start = Instant::now();
        for rank in (0..3).filter(|&rank| rank != killed) {
            assert_eq!(processes[rank].hear(rank), format!("Some({killed})"), "{rank}");
        }
        assert!(start.elapsed() < PATIENCE, "named by a timeout");
    }
}
