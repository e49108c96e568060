//! `rdmc switch`, and `rdmc push --switch` through it, between hosts in network namespaces. Needs root.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    process::{Child, Command},
    time::Duration,
};

use data_plane::KernelPlane;
use lab::Network;
use testing::Authority;

use crate::common::{Outcome, Place, signal};

const HOSTS: u8 = 4;
const BYTES: usize = 6_000_000;

/// What the switch does besides copying.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The kernel bridges; with all in one network, as its addresses begin.
    Bridge(&'static str),
    /// So does the switch in userspace.
    Userspace(&'static str),
    /// Each host has a network of its own, and the kernel routes.
    Router,
}

/// A switch and hosts around it.
struct World {
    kind: Kind,
    place: Place,
    authority: Authority,
    switch: Network,
    hosts: Vec<Network>,
    ports: String,
    running: Vec<Running>,
}

/// A running command; killed when dropped.
struct Running {
    child: Child,
    /// Kept open, so that the command can write to it.
    _said: BufReader<std::process::ChildStderr>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives a link an address, which counts from now on.
fn give(link: &str, address: &str) {
    let is_v6 = address.contains(':');
    let (bits, more) = if is_v6 { (64, " nodad") } else { (24, "") };
    if is_v6 {
        fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "0").unwrap();
    }
    lab::ip(&format!("addr add {address}/{bits} dev {link}{more}")).unwrap();
}

impl Kind {
    /// A host's address.
    fn host(self, number: u8) -> String {
        match self {
            Self::Bridge(prefix) | Self::Userspace(prefix) => format!("{prefix}{}", 10 + number),
            Self::Router => format!("10.5.{number}.2"),
        }
    }

    /// The switch's own address.
    fn own(self) -> String {
        match self {
            Self::Bridge(prefix) | Self::Userspace(prefix) => format!("{prefix}1"),
            Self::Router => "10.5.0.1".to_owned(),
        }
    }

    /// In the switch's network.
    fn set_up(self, ports: &[String]) {
        let own = match self {
            Self::Bridge(_) => Some(("bridge0", "type bridge mcast_snooping 0")),
            Self::Userspace(_) => Some(("own", "type veth peer name s-own")),
            Self::Router => None,
        };
        if let Some((own, what)) = own {
            lab::ip(&format!("link add name {own} {what}")).unwrap();
            lab::quiet(own, 4200).unwrap();
            give(own, &self.own());
        }
        for (number, port) in ports.iter().enumerate() {
            if let Self::Bridge(_) = self {
                lab::ip(&format!("link set {port} master bridge0")).unwrap();
            }
            lab::quiet(port, 4200).unwrap();
            if self == Self::Router {
                give(port, &format!("10.5.{number}.1"));
            }
        }
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    }
}

/// Whether this machine permits it; prints SKIPPED if not.
fn is_possible() -> bool {
    let possible = KernelPlane::check();
    if let Err(error) = &possible {
        println!("SKIPPED: needs root (network namespaces, eBPF): {error}");
    }
    possible.is_ok()
}

impl World {
    fn new(kind: Kind) -> Self {
        Self::with(kind, BYTES)
    }

    /// With an object of this length.
    fn with(kind: Kind, bytes: usize) -> Self {
        lab::enter_own_network().unwrap();
        let switch = Network::new().unwrap();
        let hosts: Vec<Network> = (0..HOSTS).map(|_| Network::new().unwrap()).collect();
        for (number, host) in (0..).zip(&hosts) {
            lab::ip(&format!("link add s{number} type veth peer name link0")).unwrap();
            lab::ip(&format!("link set s{number} netns {}", switch.thread())).unwrap();
            lab::ip(&format!("link set link0 netns {}", host.thread())).unwrap();
            host.run(move || {
                lab::ip("link set lo up").unwrap();
                lab::quiet("link0", 4200).unwrap();
                give("link0", &kind.host(number));
                if kind == Kind::Router {
                    lab::ip(&format!("route add default via 10.5.{number}.1")).unwrap();
                }
            });
        }
        let mut ports: Vec<String> = (0..HOSTS).map(|number| format!("s{number}")).collect();
        if let Kind::Userspace(_) = kind {
            ports.push("s-own".to_owned());
        }
        let all = ports.clone();
        switch.run(move || kind.set_up(&all));
        let (place, authority) = (Place::with(bytes), Authority::new("network"));
        Self { kind, place, authority, switch, hosts, ports: ports.join(","), running: Vec::new() }
    }

    fn address(&self, host: u8) -> IpAddr {
        self.kind.host(host).parse().unwrap()
    }

    fn at(&self, host: u8, port: u16) -> SocketAddr {
        (self.address(host), port).into()
    }

    /// Where the agent is.
    fn agent(&self) -> SocketAddr {
        SocketAddr::new(self.kind.own().parse().unwrap(), 4790)
    }

    /// The options for a host of these names.
    fn options(&self, names: &str) -> Vec<String> {
        let files = self.authority.issue(names);
        let named =
            [("--cert", files.certificate), ("--key", files.key), ("--ca", files.authorities)];
        let text = |(name, path): (&str, std::path::PathBuf)| {
            let _ = Command::new("chmod").arg("600").arg(&path).status();
            [name.to_owned(), path.to_str().unwrap().to_owned()]
        };
        named.into_iter().flat_map(text).collect()
    }

    fn command(&self, names: &str, words: &str) -> Command {
        let options = self.options(names);
        let words =
            words.split_whitespace().chain(options.iter().map(String::as_str)).collect::<Vec<_>>();
        self.place.rdmc(&words)
    }

    /// Starts a command in a network, and waits for its first line of output.
    fn start(&mut self, network: Option<u8>, names: &str, words: &str) -> u32 {
        let mut command = self.command(names, words);
        let network = network.map_or(&self.switch, |host| &self.hosts[usize::from(host)]);
        let mut child = network.run(move || command.spawn().unwrap());
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("listening on") || line.contains("switch agent at"), "{line}");
        let id = child.id();
        self.running.push(Running { child, _said: said });
        id
    }

    fn start_receivers(&mut self) -> String {
        for host in 1..HOSTS {
            let directory = format!("r{host}");
            fs::create_dir(self.place.path(&directory)).unwrap();
            let at = self.at(host, 7000);
            let words = format!("receive --listen {at} --dir {directory} --fabric tcp,in-switch");
            self.start(Some(host), &self.address(host).to_string(), &words);
        }
        let all = (1..HOSTS).map(|host| self.at(host, 7000).to_string());
        all.collect::<Vec<_>>().join(",")
    }

    /// Runs a command at the first host.
    fn run(&self, words: &str) -> Outcome {
        let mut command = self.command(&self.address(0).to_string(), words);
        self.hosts[0].run(move || Outcome::of(command.output().unwrap()))
    }

    /// Bytes that the first host has sent on its link.
    fn sent(&self) -> u64 {
        self.hosts[0].run(|| {
            let shown =
                Command::new("ip").args("-s -j link show dev link0".split(' ')).output().unwrap();
            let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
            shown[0]["stats64"]["tx"]["bytes"].as_u64().unwrap()
        })
    }

    fn have_copies(&self) -> bool {
        (1..HOSTS).all(|host| self.place.is_copy(&format!("r{host}/object")))
    }

    fn counted(&self, name: &str) -> u64 {
        let counts = self.run(&format!("switch counters {} --json", self.agent()));
        let counts = counts.json();
        let found =
            counts["counters"].as_array().unwrap().iter().find(|count| count["name"] == name);
        found.unwrap()["count"].as_u64().unwrap()
    }

    fn start_agent(&mut self, more: &str) -> u32 {
        let (ports, agent) = (&self.ports, self.agent());
        let words = format!("switch run --name tor --ports {ports} --listen {agent} {more}");
        self.start(None, &format!("{},tor", self.kind.own()), &words)
    }

    fn push_and_look(&self, hosts: &str) {
        let before = self.sent();
        let pushed =
            self.run(&format!("push object --to {hosts} --switch {} --json", self.agent()));
        assert_eq!(pushed.code, Some(0), "{pushed:?}");
        assert!(self.have_copies(), "{pushed:?}");
        assert!(!pushed.err.contains("could not copy"), "{pushed:?}");
        let sent = self.sent() - before;
        assert!(sent < 3 * BYTES as u64 / 2, "{sent} bytes for {BYTES}: its link carries it once");
        assert!(self.counted("copies") >= 3 * self.counted("requests") - 3, "three of each");
        let groups = self.run(&format!("switch groups {} --counters", self.agent()));
        assert_eq!(groups.out, "no groups\n", "{groups:?}");
        let unknown = format!("switch trace {} --group {}/9", self.agent(), self.address(0));
        self.run(&unknown).has_failed_with(1, "are copied or merged here");
    }
}

#[test]
fn a_push_lets_a_switch_in_the_kernel_copy() {
    if !is_possible() {
        return;
    }
    let mut world = World::new(Kind::Bridge("10.5.0."));
    let pin = format!("/sys/fs/bpf/rdmc-test-cli-{}", std::process::id());
    let agent = world.start_agent(&format!("--pin {pin}"));
    let hosts = world.start_receivers();
    world.push_and_look(&hosts);

    let shown = world.run(&format!("switch show {}", world.agent()));
    assert!(
        shown.out.starts_with("tor: rdmc ") && shown.out.contains("copies in the kernel"),
        "{shown:?}"
    );
    let receivers = format!("{},{}", world.address(1), world.address(2));
    let asked = format!("switch plan {} --sender {}", world.agent(), world.address(0));
    let plan = world.run(&format!("{asked} --receivers {receivers}"));
    assert_eq!(
        plan.out, "tor\n  → s1: 10.5.0.11, rewritten for it\n  → s2: 10.5.0.12, rewritten for it\n",
        "{plan:?}"
    );
    let unknown = world.run(&format!("{asked} --receivers 10.9.9.9"));
    unknown.has_failed_with(1, "switch tor: no route to 10.9.9.9");

    signal(agent, "TERM");
    let mut ended = world.running.remove(0);
    assert_eq!(ended.child.wait().unwrap().code(), Some(0));
    let detached = world.place.rdmc(&["switch", "detach", "--ports", &world.ports, "--pin", &pin]);
    let detached = world.switch.run(move || {
        let mut detached = detached;
        Outcome::of(detached.output().unwrap())
    });
    assert_eq!(detached.code, Some(0), "{detached:?}");
    assert!(!fs::exists(&pin).unwrap());

    // No switch copies any more: receivers relay.
    (1..HOSTS)
        .for_each(|host| fs::remove_file(world.place.path(&format!("r{host}/object"))).unwrap());
    let pushed = world.run(&format!("push object --to {hosts} --switch {}", world.agent()));
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    assert!(pushed.err.contains("the agent at 10.5.0.1:4790 cannot be reached"), "{pushed:?}");
    assert!(world.have_copies());
}

#[test]
fn a_push_lets_a_switch_in_userspace_copy() {
    if !is_possible() {
        return;
    }
    let mut world = World::new(Kind::Userspace("10.5.0."));
    world.start_agent("--plane userspace");
    let hosts = world.start_receivers();
    world.push_and_look(&hosts);
}

#[test]
fn a_push_lets_a_switch_copy_over_ipv6() {
    push_through_a_kernel(Kind::Bridge("fd05::"), "6");
}

#[test]
fn a_push_lets_a_router_copy() {
    push_through_a_kernel(Kind::Router, "router");
}

/// The name is for the directory of the switch's groups.
fn push_through_a_kernel(kind: Kind, name: &str) {
    if !is_possible() {
        return;
    }
    let mut world = World::new(kind);
    let pin = format!("/sys/fs/bpf/rdmc-test-cli-{name}-{}", std::process::id());
    world.start_agent(&format!("--pin {pin}"));
    let hosts = world.start_receivers();
    world.push_and_look(&hosts);
    drop(world);
    fs::remove_dir_all(pin).unwrap();
}

/// How a receiver ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    /// Its process alone.
    Killed,
    /// Its host, and its link goes down.
    CutOff,
    /// Its host, behind a link that stays up.
    Silent,
}

impl World {
    /// Lets the receiver at a host die.
    fn end(&self, host: u8, death: Death) {
        let drop_all = |link: String| {
            // No frame fits into this queue.
            let words = format!("qdisc replace dev {link} root bfifo limit 0");
            assert!(Command::new("tc").args(words.split(' ')).status().unwrap().success());
        };
        match death {
            Death::Killed => signal(self.receiver(host), "KILL"),
            Death::CutOff => {
                self.hosts[usize::from(host)].run(|| lab::ip("link set link0 down").unwrap());
            }
            Death::Silent => {
                self.hosts[usize::from(host)].run(move || drop_all("link0".into()));
                self.switch.run(move || drop_all(format!("s{host}")));
            }
        }
    }

    /// Limits what the last host gets, and by that what all get. The queue takes whatever is on its way.
    fn limit(&self, rate: &str) {
        let words =
            format!("qdisc replace dev s{} root tbf rate {rate} burst 64kb limit 32mb", HOSTS - 1);
        self.switch.run(move || {
            assert!(Command::new("tc").args(words.split(' ')).status().unwrap().success());
        });
    }

    /// The process that receives at a host, which was started after the agent.
    fn receiver(&self, host: u8) -> u32 {
        // The command's parent is `env`, which it has replaced.
        self.running[usize::from(host)].child.id()
    }

    /// Starts a push, and waits until blocks arrive.
    fn start_push(&self, hosts: &str, more: &str) -> Child {
        let words = format!("push object --to {hosts} --switch {} --json {more}", self.agent());
        let mut command = self.command(&self.address(0).to_string(), &words);
        let child = self.hosts[0].run(move || command.spawn().unwrap());
        self.place.await_bytes("/r1/", 0);
        child
    }
}

/// At the rate of [`push_meanwhile`] it takes 16 s: something happens before it is over, also on a busy machine.
const LONG: usize = 60_000_000;

/// Pushes, and lets `happen` something once blocks arrive.
fn push_meanwhile(name: &str, more: &str, happen: impl FnOnce(&World)) -> (World, Outcome) {
    let mut world = World::with(Kind::Bridge("10.5.0."), LONG);
    let pin = format!("/sys/fs/bpf/rdmc-test-cli-{name}-{}", std::process::id());
    world.start_agent(&format!("--pin {pin}"));
    let hosts = world.start_receivers();
    world.limit("30mbit");
    let push = world.start_push(&hosts, more);
    happen(&world);
    world.limit("1gbit");
    let pushed = Outcome::of(push.wait_with_output().unwrap());
    fs::remove_dir_all(pin).unwrap();
    (world, pushed)
}

/// The others get all from the switch. Returns what is said of the dead one.
fn push_while_one_dies(death: Death, more: &str) -> String {
    let (world, pushed) = push_meanwhile(&format!("{death:?}"), more, |world| world.end(2, death));
    assert_eq!(pushed.code, Some(3), "{pushed:?}");
    let report = pushed.json();
    assert_eq!(report["fell_back"], serde_json::Value::Null, "{pushed:?}");
    assert_eq!(report["algorithm"], "in-switch", "{pushed:?}");
    for host in [1, 3] {
        assert!(world.place.is_copy(&format!("r{host}/object")), "{host}: {pushed:?}");
    }
    report["hosts"][1]["error"].as_str().unwrap().to_owned()
}

#[test]
fn a_push_goes_on_without_a_receiver_that_is_killed() {
    if is_possible() {
        push_while_one_dies(Death::Killed, "");
    }
}

/// Long before the failure deadline, by which links notice a silent member.
#[test]
fn a_push_goes_on_without_a_host_that_dies() {
    if !is_possible() {
        return;
    }
    for death in [Death::CutOff, Death::Silent] {
        let error = push_while_one_dies(death, "--failure-deadline 300");
        assert!(error.contains("and its host has acknowledged nothing for"), "{error}");
    }
}

/// The switch suspects it again and again meanwhile, and its host answers.
#[test]
fn a_push_waits_for_a_receiver_that_is_stopped() {
    if !is_possible() {
        return;
    }
    let (world, pushed) = push_meanwhile("stopped", "--failure-deadline 300", |world| {
        signal(world.receiver(2), "STOP");
        std::thread::sleep(Duration::from_secs(3));
        signal(world.receiver(2), "CONT");
    });
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    assert_eq!(pushed.json()["fell_back"], serde_json::Value::Null, "{pushed:?}");
    assert!(world.have_copies());
}

/// One receiver is stopped until the trace has begun, so that the push is not over before.
#[test]
fn the_packets_of_a_push_are_traced() {
    if !is_possible() {
        return;
    }
    let (world, pushed) = push_meanwhile("traced", "", |world| {
        signal(world.receiver(2), "STOP");
        let groups = world.run(&format!("switch groups {} --json", world.agent())).json();
        let (key, agent) = (&groups["groups"][0]["key"], world.agent());
        let group = format!("{}/{}", key["sender"].as_str().unwrap(), key["id"]);
        let words = format!("switch trace {agent} --group {group} --packets 500");
        let mut command = world.command(&world.address(0).to_string(), &words);
        let mut trace = world.hosts[0].run(move || command.spawn().unwrap());
        let mut said = BufReader::new(trace.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.next().unwrap().starts_with("tracing group"));
        signal(world.receiver(2), "CONT");
        let lines: Vec<String> = said.collect();
        assert!(trace.wait().unwrap().success());
        let (end, packets) = lines.split_last().unwrap();
        assert_eq!(end, "ended: the limit of packets was reached; no packet is missing");
        assert_eq!(packets.len(), 500, "{lines:#?}");
        let has = |words: &[&str]| {
            packets.iter().any(|line| words.iter().all(|words| line.contains(words)))
        };
        assert!(has(&["s0 → SEND", "copies to s1, s2, s3"]), "{packets:#?}");
        assert!(has(&["← ACK", "answers_suppressed"]), "{packets:#?}");
    });
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    assert!(world.have_copies());
}

#[test]
fn wrong_options_are_named() {
    let place = Place::with(10);
    for (words, code, said) in [
        ("switch show 10.0.0.1:1", 2, "--cert, --key and --ca"),
        ("switch run --ports a --listen 127.0.0.1:0 --next a", 2, "swp1=spine:4790"),
        ("switch run --listen 127.0.0.1:0", 2, "--ports"),
        ("switch detach --ports a --pin /nowhere", 1, "no agent has run here"),
        ("switch trace 10.0.0.1:1", 2, "--group"),
        ("switch trace 10.0.0.1:1 --group 10.0.0.1", 2, "10.0.0.1/0xf54130"),
        ("switch trace 10.0.0.1:1 --group 10.0.0.1/0x1000000", 2, "10.0.0.1/0x1000000: no group"),
        ("switch trace 10.0.0.1:1 --group 10.0.0.1/9 --packets 0", 2, "1..=100000"),
        ("switch trace 10.0.0.1:1 --group 10.0.0.1/9 --seconds 601", 2, "1..=600"),
        (
            "switch plan 10.0.0.1:1 --sender 10.0.0.2 --receivers 10.0.0.3=1:2",
            2,
            "1:2: not an Ethernet address",
        ),
        ("push object --to a --switch tor:4790", 2, "--cert"),
        ("push object --to a --algorithm in-switch", 2, "--switch HOST:PORT"),
    ] {
        place.run_words(words).has_failed_with(code, said);
    }
}
