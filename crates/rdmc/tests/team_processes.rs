//! A team whose members are processes, for fabrics that join nothing else, such as shm: this test
//! program itself, started again to run only the test `member`.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use rdmc::{Context, Secret, TeamSettings};

use crate::{
    common::{PATIENCE, context_settings, ends},
    teams::operations,
};

/// Rank and secret of a member's process.
const MEMBER: &str = "RDMC_TEST_TEAM_MEMBER";
/// Starts what a member says, on a line of its own: its address, then that it is done.
const MARK: &str = "member: ";
const DONE: &str = "done";

/// Not a test: the main function of a member's process.
#[test]
fn member() {
    let Ok(told) = env::var(MEMBER) else { return };
    let (rank, secret) = told.split_once(' ').expect("a rank and a secret");
    let rank = rank.parse().expect("a rank");
    let secret = Secret::from_hex(secret).expect("a secret");
    testing::remove_shared_memory_of(std::process::id());
    let context = Context::start(context_settings(&secret)).unwrap();
    println!("\n{MARK}{}", context.address());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the addresses come");
    let members: Vec<SocketAddr> =
        line.split_whitespace().map(|address| address.parse().expect("an address")).collect();
    let settings = TeamSettings::new(9, members, rank).ends(ends());
    let team = context.create_team(settings).unwrap();
    for _ in 0..20 {
        operations(&team);
    }
    team.close(PATIENCE).unwrap();
    context.close(PATIENCE).unwrap();
    println!("\n{MARK}{DONE}");
}

/// A member's process, which is killed when this is dropped.
struct Process {
    child: Child,
    says: Receiver<String>,
}

impl Process {
    fn start(rank: usize, secret: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("the program's path is known"))
            .args(["team_processes::member", "--exact", "--nocapture", "--test-threads=1"])
            .env(MEMBER, format!("{rank} {secret}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
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

#[test]
fn operations_of_members_that_are_processes() {
    let secret = Secret::random().unwrap().to_hex();
    for members in [2, 4] {
        let mut processes: Vec<Process> =
            (0..members).map(|rank| Process::start(rank, &secret)).collect();
        let addresses: Vec<String> = (0..members).map(|rank| processes[rank].hear(rank)).collect();
        let all = addresses.join(" ") + "\n";
        for process in &mut processes {
            let input = process.child.stdin.as_mut().expect("it is piped");
            input.write_all(all.as_bytes()).expect("it waits for them");
        }
        for (rank, process) in processes.iter().enumerate() {
            assert_eq!(process.hear(rank), DONE);
        }
    }
}
