//! Members that are processes: the test program itself, started again to run only a test that is a member's main function.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use rdmc::{Context, Secret};

use super::{PATIENCE, context_settings};

/// Rank, secret and [`Role`] of a member's process.
const MEMBER: &str = "RDMC_TEST_MEMBER";
/// Starts what a member says, on a line of its own.
const MARK: &str = "member: ";
pub const DONE: &str = "done";
/// A user without rights.
const OTHER_USER: u32 = 65_533;

/// What is special about a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Usual,
    /// Its settings keep all that it sends on the sockets.
    Apart,
    /// Its process is another user's.
    OtherUser,
    /// Goes on without end.
    Endless,
}

/// A member, in its own process.
pub struct Member {
    pub rank: u32,
    pub context: Context,
    pub members: Vec<SocketAddr>,
    role: String,
}

impl Member {
    /// Returns the member of which this process is the main function, with its context; `None` if it is none.
    pub fn of_this_process() -> Option<Self> {
        let told = env::var(MEMBER).ok()?;
        let words: Vec<&str> = told.split(' ').collect();
        let [rank, secret, role] = words[..] else { panic!("told {told}") };
        let (rank, role) = (rank.parse().expect("a rank"), role.to_owned());
        testing::remove_shared_memory_of(std::process::id());
        let mut settings = context_settings(&Secret::from_hex(secret).expect("a secret"));
        if role == format!("{:?}", Role::Apart) {
            settings.tcp = settings.tcp.direct_copies(false);
        }
        let context = Context::start(settings).unwrap();
        say(context.address());
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("the addresses come");
        let members =
            line.split_whitespace().map(|address| address.parse().expect("an address")).collect();
        Some(Self { rank, context, members, role })
    }

    pub fn is(&self, role: Role) -> bool {
        self.role == format!("{role:?}")
    }
}

/// Tells the test something, on a line of its own.
pub fn say(what: impl std::fmt::Display) {
    println!("\n{MARK}{what}");
}

/// Starts this program again, by a path that any user may reach.
fn this_program(role: Role) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.current_dir("/");
    if role == Role::OtherUser {
        command.uid(OTHER_USER).gid(OTHER_USER);
    }
    command
}

/// A member's process, which is killed when this is dropped.
pub struct Process {
    pub child: Child,
    says: Receiver<String>,
}

impl Process {
    /// `main`: the test that is its main function.
    fn start(main: &str, rank: usize, secret: &str, role: Role) -> Self {
        let mut command = this_program(role);
        command
            .args([main, "--exact", "--nocapture", "--test-threads=1"])
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
    pub fn hear(&self, rank: usize) -> String {
        self.says.recv_timeout(2 * PATIENCE).unwrap_or_else(|_| panic!("member {rank} is silent"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
        testing::remove_shared_memory_of(self.child.id());
    }
}

/// Starts a process for each of these members, and tells them their addresses.
pub fn start(main: &str, roles: &[Role]) -> Vec<Process> {
    let secret = Secret::random().unwrap().to_hex();
    let mut processes: Vec<Process> =
        (0..).zip(roles).map(|(rank, &role)| Process::start(main, rank, &secret, role)).collect();
    let addresses: Vec<String> =
        (0..).zip(&processes).map(|(rank, process)| process.hear(rank)).collect();
    let all = addresses.join(" ") + "\n";
    for process in &mut processes {
        let input = process.child.stdin.as_mut().expect("it is piped");
        input.write_all(all.as_bytes()).expect("it waits for them");
    }
    processes
}

/// Returns whether members of these roles share memory.
pub fn share_memory(roles: &[Role]) -> bool {
    !roles.iter().any(|role| matches!(role, Role::Apart | Role::OtherUser))
}

/// Waits until all members have done their part.
pub fn finish(processes: &[Process]) {
    for (rank, process) in processes.iter().enumerate() {
        assert_eq!(process.hear(rank), DONE);
    }
}

/// Starts members by `start`, some of which have settings that keep them on sockets, and waits for them.
pub fn run_some_apart(start: fn(&[Role]) -> Vec<Process>) {
    finish(&start(&[Role::Usual, Role::Apart, Role::Usual]));
    finish(&start(&[Role::Apart, Role::Usual]));
}

/// Starts members by `start`, some of which are another user's, and waits for them, if this user can.
pub fn run_some_of_another_user(start: fn(&[Role]) -> Vec<Process>) {
    if can_be_another_user() {
        finish(&start(&[Role::Usual, Role::Usual, Role::OtherUser]));
        finish(&start(&[Role::OtherUser, Role::Usual]));
    }
}

/// Returns whether this user can start processes of another one; says so if not.
fn can_be_another_user() -> bool {
    let none = this_program(Role::OtherUser).args(["--list", "none"]).output();
    none.inspect_err(|error| {
        eprintln!("SKIPPED: a member of another user: this user cannot start it: {error}");
    })
    .is_ok()
}
