//! Whose memory is read: a reader, which is an ordinary user's process, and processes of other users and other states, which the
//! test, as root, has introduced to it. They hold what they have to place whatever they are: the test puts it into their memory.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{FileExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior},
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use transport::{Completion, Region, Transport};

use testing::USER;

use crate::common::*;

/// Another user and group.
const OTHER: u32 = 65_532;
/// Which part a started process has.
const PART: &str = "RDMC_TEST_PROCESSES_PART";
const BLOCK_BYTES: usize = 50_000;

/// Another process of this program, which has a part in a test.
struct Part {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Starts it as a user: this program, or the one that `command` has begun with.
    fn start(part: &str, uid: u32, gid: u32, command: &[&str]) -> Self {
        let (first, rest) = command.split_first().unwrap_or((&"/proc/self/exe", &[]));
        let mut command = Command::new(first);
        command
            .args(rest)
            .args([&format!("processes::{part}"), "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, "1")
            .current_dir("/")
            .uid(uid)
            .gid(gid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = unless_busy(|| command.spawn()).unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the rest of the next line that starts with this word; `None` if it has ended before.
    fn try_hear(&mut self, word: &str) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            // The line that the test program has begun may stand before it.
            if let Some((_, rest)) = line.split_once(&format!("# {word}")) {
                return Some(rest.trim().into());
            }
            line.clear();
        }
        None
    }

    fn hear(&mut self, word: &str) -> String {
        self.try_hear(word).unwrap_or_else(|| panic!("it has ended before {word:?}"))
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Has it do what the line says.
    fn order(&mut self, line: &str) {
        self.tell(line);
        self.hear("done");
    }

    /// Has it become a program that sleeps in the end.
    fn exec(&mut self, command: &str) {
        self.tell(&format!("exec {command} 60"));
        let deadline = Instant::now() + PATIENCE;
        let name = format!("/proc/{}/cmdline", self.pid());
        let sleeps = |words: &[u8]| words.ends_with(b"\x0060\0") && !words.starts_with(b"/proc");
        let is_last = |words: &[u8]| words.split(|&byte| byte == 0).count() == 3;
        while !fs::read(&name).is_ok_and(|words| sleeps(&words) && is_last(&words)) {
            assert!(Instant::now() < deadline, "no other program");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Puts bytes into its memory, as root can, and returns their address.
    fn place(&self, bytes: &[u8]) -> u64 {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let stack = maps.lines().find(|line| line.contains("[stack]")).unwrap();
        let address = u64::from_str_radix(stack.split('-').next().unwrap(), 16).unwrap();
        let memory = File::options().write(true).open(format!("/proc/{}/mem", self.pid()));
        memory.unwrap().write_all_at(bytes, address).unwrap();
        address
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a program that was just written. A process that another thread has forked meanwhile may still have it open.
fn unless_busy<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match start() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// A copy of a program, which every user can reach and start, and which runs as its owner.
struct Program(PathBuf);

impl Program {
    fn new(of: &str, name: &str, owner: u32) -> Self {
        let path = std::env::temp_dir().join(format!("rdmc{name}{}", std::process::id() % 10_000));
        fs::copy(of, &path).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// Says a line to the test.
fn say(line: &str) {
    println!("# {line}");
}

/// The reader.
#[test]
fn as_a_reader() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    say("ready");
    let mut orders = std::io::stdin().lines().map(Result::unwrap);
    let (only, none) = (CapabilitySet::SYS_PTRACE, CapabilitySet::empty());
    let capable = |of| CapabilitySets { effective: of, permitted: of, inheritable: none };
    match &*orders.next().unwrap() {
        "be a user with CAP_SYS_PTRACE" => {
            let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_keep_capabilities(true).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            set_capabilities(None, capable(only)).unwrap();
        }
        "be root without CAP_SYS_PTRACE" => set_capabilities(None, capable(none)).unwrap(),
        other => assert_eq!(other, "be yourself"),
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    say(&format!("address {}", listener.local_addr().unwrap()));
    let mut transport = transport(&patient());
    let endpoint = transport.open(listener.accept().unwrap().0.into()).unwrap();
    let into = Region::zeroed(BLOCK_BYTES);
    post_receive(&mut transport, endpoint, &into, 1);
    poll_until_state(&mut transport, |transport| {
        let counters = transport.counters();
        counters.refused_introductions + counters.direct_streams_in > 0
    });
    say(if transport.counters().direct_streams_in > 0 { "answer read" } else { "answer refused" });
    orders.next();
    let completions = poll_until(&mut transport, |all| {
        let received = |it: &Completion| matches!(it, Completion::Received { .. });
        ended(all) || all.iter().any(received)
    });
    say(&format!("outcome {} {completions:?}", transport.counters().bytes_copied));
}

/// A process that may be read or not.
#[test]
fn as_a_peer() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    say("ready");
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        match order.split_once(' ').unwrap() {
            ("identify", name) => {
                use std::os::{linux::net::SocketAddrExt, unix::net};
                let address = net::SocketAddr::from_abstract_name(name).unwrap();
                net::UnixStream::connect_addr(&address).unwrap();
            }
            ("be", "undumpable") => {
                set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
            }
            ("be", "dumpable") => set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap(),
            ("exec", command) => {
                let words: Vec<_> = command.split(' ').collect();
                unless_busy::<()>(|| Err(Command::new(words[0]).args(&words[1..]).exec())).unwrap();
            }
            other => panic!("{other:?}"),
        }
        say("done");
    }
}

/// A reader and the socket to it, which the test holds.
struct Reader {
    part: Part,
    socket: TcpStream,
}

impl Reader {
    fn start(uid: u32, gid: u32, order: &str) -> Self {
        Self::of(Part::start("as_a_reader", uid, gid, &[]), order)
    }

    fn of(mut part: Part, order: &str) -> Self {
        part.tell(order);
        let address = part.hear("address");
        let socket = TcpStream::connect(&*address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { part, socket }
    }

    fn ordinary() -> Self {
        Self::start(USER, USER, "be yourself")
    }

    /// Says that the peer is this process, and returns what that is to place.
    fn challenge(&mut self, pid: u32) -> [u8; 16] {
        self.socket.write_all(&introduction(pid)).unwrap();
        loop {
            let mut header = [0; 16];
            self.socket.read_exact(&mut header).unwrap();
            if header[0] == CHALLENGE {
                let mut proof = [0; 16];
                self.socket.read_exact(&mut proof).unwrap();
                return proof;
            }
        }
    }

    /// Returns whether a process is read in which a proof is at this address.
    fn reads(&mut self, address: u64) -> bool {
        self.socket.write_all(&proof(address)).unwrap();
        self.part.hear("answer") == "read"
    }

    /// Returns whether the process is read that does this before its proof is placed.
    fn reads_after(&mut self, peer: &mut Part, act: impl FnOnce(&mut Part, &str)) -> bool {
        let challenge = self.challenge(peer.pid());
        act(peer, &reader_name(&self.socket));
        let address = peer.place(&challenge);
        self.reads(address)
    }
}

fn peer(uid: u32, gid: u32) -> Part {
    let mut part = Part::start("as_a_peer", uid, gid, &[]);
    part.hear("ready");
    part
}

fn identify(peer: &mut Part, name: &str) {
    peer.order(&format!("identify {name}"));
}

/// Returns whether this is root, who can start others' processes; says so if not. Root is who runs them in this project's tests.
fn can_be_others() -> bool {
    let status = Command::new("true").uid(USER).gid(USER).status();
    let can = is_root() && status.as_ref().is_ok_and(|status| status.success());
    if !can {
        skipped(&format!(
            "who is read is tested by root only, which can be several users: {status:?}"
        ));
    }
    can
}

/// Returns whether an ordinary reader reads such a peer, which does this.
fn is_read(uid: u32, gid: u32, act: impl FnOnce(&mut Part, &str)) -> bool {
    Reader::ordinary().reads_after(&mut peer(uid, gid), act)
}

#[test]
fn a_process_of_the_same_user_is_read() {
    if can_be_others() {
        assert!(is_read(USER, USER, identify));
    }
}

#[test]
fn another_user_or_group_is_not_read() {
    if !can_be_others() {
        return;
    }
    for (uid, gid) in [(OTHER, USER), (USER, OTHER), (OTHER, OTHER), (0, 0)] {
        assert!(!is_read(uid, gid, identify), "{uid} {gid}");
    }
}

/// Its effective user, whom the Unix socket names, is the reader's, and it may be dumped.
#[test]
fn a_process_whose_real_user_is_another_one_is_not_read() {
    if !can_be_others() {
        return;
    }
    let program = Program::new("/proc/self/exe", "e", USER);
    for (user, expected) in [(OTHER, false), (USER, true)] {
        let mut peer = Part::start("as_a_peer", user, user, &[program.path()]);
        peer.hear("ready");
        peer.order("be dumpable");
        assert_eq!(Reader::ordinary().reads_after(&mut peer, identify), expected, "{user}");
    }
}

#[test]
fn what_may_not_be_dumped_is_not_read() {
    if can_be_others() {
        assert!(!is_read(USER, USER, |peer, name| {
            identify(peer, name);
            peer.order("be undumpable");
        }));
    }
}

/// A program that runs as the reader's user, and got an open connection from its parent process, does not know about it.
#[test]
fn a_program_that_has_not_said_so_itself_is_not_read() {
    if !can_be_others() {
        return;
    }
    let mut others = [peer(USER, USER), peer(OTHER, OTHER)];
    assert!(!is_read(USER, USER, |_, _| ()));
    assert!(!is_read(USER, USER, |_, name| others.iter_mut().for_each(|it| identify(it, name))));
}

/// A member of another user connects, and becomes a program with the reader's user.
#[test]
fn a_set_user_id_program_is_not_read() {
    if !can_be_others() {
        return;
    }
    let programs =
        [("u", USER), ("r", 0)].map(|(name, owner)| Program::new("/bin/sleep", name, owner));
    for (user, program) in [OTHER, USER].into_iter().zip(&programs) {
        assert!(!is_read(user, user, |peer, name| {
            identify(peer, name);
            peer.exec(program.path());
        }));
    }
}

/// As `su USER` does for whoever knows how: what it has become may be read, but is not who has said that it may.
#[test]
fn a_process_that_became_the_same_user_later_is_not_read() {
    if !can_be_others() {
        return;
    }
    let setpriv = "/usr/bin/setpriv";
    if !fs::exists(setpriv).unwrap() {
        skipped(&format!("processes that become another user: {setpriv} is missing"));
        return;
    }
    let setpriv = Program::new(setpriv, "s", 0);
    let become_user =
        format!("{} --reuid {USER} --regid {USER} --clear-groups /bin/sleep", setpriv.path());
    assert!(!is_read(OTHER, OTHER, |peer, name| {
        identify(peer, name);
        peer.exec(&become_user);
    }));
}

/// A member that may be read becomes another program before its block is copied. The kernel decides about that one.
#[test]
fn what_a_neighbour_becomes_later_is_not_read() {
    if !can_be_others() {
        return;
    }
    let program = Program::new("/bin/sleep", "l", 0);
    let (mut reader, mut peer) = (Reader::ordinary(), peer(USER, USER));
    assert!(reader.reads_after(&mut peer, identify));
    let address = peer.place(&[7; 16]);
    reader.socket.write_all(&reference(BLOCK_BYTES, 0, address)).unwrap();
    peer.exec(program.path());
    reader.part.tell("go on");
    let outcome = reader.part.hear("outcome");
    assert!(outcome.starts_with("0 ") && outcome.contains("can no longer be read"), "{outcome}");
    assert!(!outcome.contains("Received"), "{outcome}");
}

/// The kernel would not refuse anything that such a reader copies.
#[test]
fn a_reader_with_rights_over_others_reads_nobody() {
    if !can_be_others() {
        return;
    }
    for order in ["be yourself", "be root without CAP_SYS_PTRACE", "be a user with CAP_SYS_PTRACE"]
    {
        let mut reader = Reader::start(0, 0, order);
        let peer = peer(USER, USER);
        reader.socket.write_all(&introduction(peer.pid())).unwrap();
        assert_eq!(reader.part.hear("answer"), "refused", "{order}");
    }
}

/// Starts a part in a user namespace of its own; `None`, and says so, if an ordinary user can make none.
fn in_own_namespace(part: &str, options: &[&str], program: &Program) -> Option<Part> {
    let command = [&["unshare", "--user"], options, &[program.path()]].concat();
    // Busy files, as above.
    let found = (0..20)
        .map(|_| Part::start(part, USER, USER, &command))
        .find_map(|mut it| it.try_hear("ready").map(|_| it));
    if found.is_none() {
        skipped("an ordinary user can make no user namespace here");
    }
    found
}

/// A user has all rights in the user namespaces that he has made.
#[test]
fn another_user_namespace_is_not_read() {
    if !can_be_others() {
        return;
    }
    let program = Program::new("/proc/self/exe", "n", USER);
    let Some(mut peer) = in_own_namespace("as_a_peer", &[], &program) else { return };
    assert!(!Reader::ordinary().reads_after(&mut peer, identify));
}

/// As in packages' service (`PrivateUsers=`). Without a number of its own there, a user seems to be every other user that has none.
#[test]
fn a_reader_in_a_user_namespace_of_its_own_reads_nobody_outside() {
    if !can_be_others() {
        return;
    }
    let program = Program::new("/proc/self/exe", "m", USER);
    for options in [&["--map-current-user"][..], &[]] {
        let Some(part) = in_own_namespace("as_a_reader", options, &program) else { return };
        let mut reader = Reader::of(part, "be yourself");
        assert!(!reader.reads_after(&mut peer(USER, USER), identify), "{options:?}");
    }
}
