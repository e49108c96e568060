//! Teams whose members are processes, which share memory by default, and fabrics that join nothing else, such as libfabric's shm: this
//! test program itself, started again to run only the test `member`.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use rdmc::{Context, Error, Fabric, Op, Secret, TeamSettings};

use crate::{
    common::{PATIENCE, context_settings, ends, fabric},
    teams::operations,
};

/// Rank, secret and [`Role`] of a member's process.
const MEMBER: &str = "RDMC_TEST_TEAM_MEMBER";
/// Starts what a member says, on a line of its own: its address, with whom it shares memory, and how it has ended.
const MARK: &str = "member: ";
const DONE: &str = "done";
/// A user without rights.
const OTHER_USER: u32 = 65_533;

/// What is special about a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Usual,
    /// Its settings keep all that it sends on the sockets.
    Apart,
    /// Its process is another user's.
    OtherUser,
    /// Calls operations without end.
    Endless,
}

/// Not a test: the main function of a member's process.
#[test]
fn member() {
    let Ok(told) = env::var(MEMBER) else { return };
    let words: Vec<&str> = told.split(' ').collect();
    let [rank, secret, role] = words[..] else { panic!("told {told}") };
    let rank = rank.parse().expect("a rank");
    let is = |other: Role| role == format!("{other:?}");
    testing::remove_shared_memory_of(std::process::id());
    let mut settings = context_settings(&Secret::from_hex(secret).expect("a secret"));
    if is(Role::Apart) {
        settings.tcp = settings.tcp.direct_copies(false);
    }
    let context = Context::start(settings).unwrap();
    println!("\n{MARK}{}", context.address());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the addresses come");
    let members: Vec<SocketAddr> =
        line.split_whitespace().map(|address| address.parse().expect("an address")).collect();
    let settings = TeamSettings::new(9, members, rank).ends(ends());
    let team = context.create_team(settings).unwrap();
    println!("\n{MARK}{:?}", team.shares_memory_with());
    if is(Role::Endless) {
        let sum = |length| team.all_reduce(&mut vec![1_u32; length], Op::Sum, PATIENCE);
        let failed = [1, 300_000].into_iter().cycle().find_map(|length| sum(length).err());
        let Some(Error::TeamFailed(failure)) = failed else { panic!("{failed:?}") };
        println!("\n{MARK}{:?}", failure.member);
        return;
    }
    for _ in 0..20 {
        operations(&team);
    }
    team.close(PATIENCE).unwrap();
    context.close(PATIENCE).unwrap();
    println!("\n{MARK}{DONE}");
}

/// Starts this program again.
fn this_program(role: Role) -> Command {
    if role == Role::OtherUser {
        // Who may not be able to reach its directory.
        let mut command = Command::new("/proc/self/exe");
        command.uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
        return command;
    }
    Command::new(env::current_exe().expect("the program's path is known"))
}

/// A member's process, which is killed when this is dropped.
struct Process {
    child: Child,
    says: Receiver<String>,
}

impl Process {
    fn start(rank: usize, secret: &str, role: Role) -> Self {
        let mut command = this_program(role);
        command
            .args(["team_processes::member", "--exact", "--nocapture", "--test-threads=1"])
            .env(MEMBER, format!("{rank} {secret} {role:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program can be started");
        let (sender, says) = channel();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            let said = lines.filter_map(|line| Some(line.strip_prefix(MARK)?.to_owned()));
            said.map_while(|said| sender.send(said).ok()).for_each(drop);
        });
        Self { child, says }
    }

    /// Returns what the member says next.
    fn hear(&self, rank: usize) -> String {
        self.says.recv_timeout(2 * PATIENCE).unwrap_or_else(|_| panic!("member {rank} is silent"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
        testing::remove_shared_memory_of(self.child.id());
    }
}

/// Starts a team with these members, and checks who shares memory with whom.
fn start(roles: &[Role]) -> Vec<Process> {
    let secret = Secret::random().unwrap();
    let over_tcp = context_settings(&secret).fabric == Fabric::Tcp;
    let secret = secret.to_hex();
    let mut processes: Vec<Process> =
        (0..).zip(roles).map(|(rank, &role)| Process::start(rank, &secret, role)).collect();
    let ranks = 0..roles.len();
    let addresses: Vec<String> = ranks.clone().map(|rank| processes[rank].hear(rank)).collect();
    let all = addresses.join(" ") + "\n";
    for process in &mut processes {
        let input = process.child.stdin.as_mut().expect("it is piped");
        input.write_all(all.as_bytes()).expect("it waits for them");
    }
    let shares = |rank: usize| !matches!(roles[rank], Role::Apart | Role::OtherUser);
    for (rank, process) in processes.iter().enumerate() {
        let others = ranks
            .clone()
            .filter(|&other| over_tcp && rank != other && shares(rank) && shares(other));
        assert_eq!(process.hear(rank), format!("{:?}", others.collect::<Vec<_>>()), "{rank}");
    }
    processes
}

fn run(roles: &[Role]) {
    for (rank, process) in start(roles).iter().enumerate() {
        assert_eq!(process.hear(rank), DONE);
    }
}

#[test]
fn operations_of_members_that_are_processes() {
    run(&[Role::Usual; 2]);
    run(&[Role::Usual; 4]);
}

#[test]
fn members_whose_settings_keep_them_on_sockets_share_no_memory() {
    run(&[Role::Usual, Role::Apart, Role::Usual]);
    run(&[Role::Apart, Role::Usual]);
}

#[test]
fn processes_of_another_user_share_no_memory() {
    if fabric() != Fabric::Tcp {
        // libfabric's shm joins processes of one user only.
        return;
    }
    let none = this_program(Role::OtherUser).args(["--list", "none"]).output();
    if let Err(error) = none {
        eprintln!("SKIPPED: a member of another user: this user cannot start it: {error}");
        return;
    }
    run(&[Role::Usual, Role::Usual, Role::OtherUser]);
    run(&[Role::OtherUser, Role::Usual]);
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
