//! Hosts that cannot reach each other or the root, and ports that may be named. Each host has a network of its own.

use std::{fs, os::unix::fs::symlink, process};

use lab::Network;

use crate::common::{Outcome, Place, RDMC, await_that};

/// Hosts `h1`, `h2` and so on at one bridge with this thread's network, which is the root's.
struct World {
    place: Place,
    hosts: Vec<Network>,
}

impl World {
    /// None where the system does not permit it, which is printed.
    fn new(bytes: usize) -> Option<Self> {
        Self::of(3, bytes)
    }

    /// The same with this many hosts.
    fn of(hosts: usize, bytes: usize) -> Option<Self> {
        if let Err(error) = lab::enter_own_network() {
            eprintln!("SKIPPED: needs root (network namespaces): {error}");
            return None;
        }
        let place = Place::with(bytes);
        let run = |words: &str| lab::ip(words).unwrap();
        run("link set lo up");
        run("link add bridge0 type bridge");
        run("addr add 10.7.0.100/24 dev bridge0");
        run("link set bridge0 up");
        let hosts: Vec<Network> = (0..hosts).map(|_| Network::new().unwrap()).collect();
        fs::create_dir(place.path("networks")).unwrap();
        for (number, host) in (1..).zip(&hosts) {
            run(&format!("link add s{number} type veth peer name link0"));
            run(&format!("link set link0 netns {}", host.thread()));
            run(&format!("link set s{number} master bridge0"));
            run(&format!("link set s{number} up"));
            host.run(move || {
                lab::ip("link set lo up").unwrap();
                lab::ip(&format!("addr add 10.7.0.{number}/24 dev link0")).unwrap();
                lab::ip("link set link0 up").unwrap();
            });
            let network = format!("/proc/{}/task/{}/ns/net", process::id(), host.thread());
            symlink(network, place.path(&format!("networks/h{number}"))).unwrap();
        }
        Some(Self { place, hosts })
    }

    /// What this host sends to that one is lost, as by a firewall that drops it.
    fn drop_between(&self, from: usize, to: usize) {
        let lost =
            format!("neigh replace 10.7.0.{to} lladdr 02:00:00:00:00:77 dev link0 nud permanent");
        self.hosts[from - 1].run(move || lab::ip(&lost).unwrap());
    }

    fn push(&self, hosts: &str, more: &[&str]) -> process::Command {
        let launcher = format!("nsenter --net={}/{{host}}", self.place.path("networks").display());
        self.push_by(&launcher, hosts, more)
    }

    fn push_by(&self, launcher: &str, hosts: &str, more: &[&str]) -> process::Command {
        let dest = self.place.path("{host}").to_str().unwrap().to_owned();
        let how = ["push", "object", "--to", hosts, "--dest", &dest, "--launcher", launcher];
        self.place.rdmc(&[&how[..], &["--remote-rdmc", RDMC], more].concat())
    }
}

/// Ports at which something in this thread's network listens over TCP.
fn listening() -> Vec<u16> {
    let tables =
        ["tcp", "tcp6"].map(|it| fs::read_to_string(format!("/proc/thread-self/net/{it}")));
    let lines: Vec<String> = tables
        .into_iter()
        .flatten()
        .flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let fields = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ends = fields.filter(|fields| fields.get(3) == Some(&"0A"));
    ends.map(|fields| u16::from_str_radix(fields[1].rsplit(':').next().unwrap(), 16).unwrap())
        .collect()
}

/// The names of hosts that got their copies by themselves.
fn set_apart(pushed: &Outcome) -> Vec<&str> {
    let lines = pushed.err.lines().filter_map(|line| line.split_once(" got its copy separately"));
    lines.map(|(before, _)| before).collect()
}

#[test]
fn two_hosts_that_cannot_connect_to_each_other_are_both_named() {
    let Some(world) = World::new(1 << 20) else { return };
    world.drop_between(1, 2);
    world.drop_between(2, 1);
    let mut push = world.push("h1,h2,h3", &["--timeout", "8", "--algorithm", "chain"]);
    let pushed = Outcome::of(push.output().unwrap());
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    let line = pushed.err.lines().find(|line| line.contains("firewall between them")).unwrap();
    assert!(line.contains("h1") && line.contains("h2"), "{pushed:?}");
    assert!((1..=3).all(|host| world.place.is_copy(&format!("h{host}"))), "{pushed:?}");
}

/// Hosts that reach the root alone get their copies from it, and no host is given up. Which ones are set apart after which reports is
/// decided, and tested, in `crates/files/src/push/apart.rs`: on a slow machine a round can end before all have reported.
#[test]
fn hosts_that_reach_the_root_alone_get_their_copies_from_it() {
    for (algorithm, alone) in [
        ("binomial-pipeline", &[4, 5, 6][..]),
        ("chain", &[1]),
        ("chain", &[6]),
        ("chain", &[2, 4, 6]),
    ] {
        let Some(world) = World::of(6, 1 << 20) else { return };
        let with_all = |&one: &usize| (1..=6).map(move |other| (one, other));
        for (one, other) in alone.iter().flat_map(with_all).filter(|(one, other)| one != other) {
            world.drop_between(one, other);
            world.drop_between(other, one);
        }
        let more = ["--timeout", "8", "--algorithm", algorithm];
        let pushed = Outcome::of(world.push("h[1-6]", &more).output().unwrap());
        assert_eq!(pushed.code, Some(0), "{algorithm} {alone:?}: {pushed:?}");
        assert!(!set_apart(&pushed).is_empty(), "{algorithm} {alone:?}: {pushed:?}");
        assert!((1..=6).all(|host| world.place.is_copy(&format!("h{host}"))), "{pushed:?}");
    }
}

/// The one that is set apart is not lost for it, and is not put into the group of the others, which would fail again.
#[test]
fn no_retry_is_needed_for_two_hosts_that_cannot_connect_to_each_other() {
    let Some(world) = World::new(12 << 20) else { return };
    world.drop_between(1, 2);
    world.drop_between(2, 1);
    let (starts, networks) = (world.place.path("starts"), world.place.path("networks"));
    let (log, networks) = (starts.display(), networks.display());
    let launcher =
        format!("sh -c 'echo $0 >> {log}; exec nsenter --net={networks}/$0 \"$@\"' {{host}}");
    let more = ["--timeout", "8", "--algorithm", "chain", "--retry", "1", "--bwlimit", "16mbit"];
    let pushed = Outcome::of(world.push_by(&launcher, "h1,h2,h3", &more).output().unwrap());
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    assert!((1..=3).all(|host| world.place.is_copy(&format!("h{host}"))), "{pushed:?}");
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 3, "{pushed:?}");
}

#[test]
fn a_firewall_at_the_root_is_not_taken_for_a_missing_ssh_server() {
    let place = Place::with(10);
    let refused = "rdmc: cannot connect to the root: 10.0.0.1:7: Connection refused (os error 111)";
    let launcher = format!("sh -c 'echo \"{refused}\" >&2; exit 1' {{host}}");
    let push = ["push", "object", "--to", "h", "--dest", "/none/x", "--launcher", &launcher];
    let pushed = place.run(&push);
    pushed.has_failed_with(
        1,
        "h: its receiver could not reach this machine: 10.0.0.1:7: Connection refused",
    );
    assert!(pushed.err.contains("firewall") && pushed.err.contains("--ports"), "{pushed:?}");
    assert!(!pushed.err.contains("ssh"), "{pushed:?}");
}

#[test]
fn all_ends_listen_in_a_range_of_ports() {
    let Some(world) = World::new(4 << 20) else { return };
    let more = ["--ports", "7100-7109", "--bwlimit", "16mbit"];
    let push = world.push("h1,h2", &more).spawn().unwrap();
    let hosts = &world.hosts[..2];
    await_that("all listen", || {
        listening().len() == 2 && hosts.iter().all(|host| !host.run(listening).is_empty())
    });
    for port in hosts.iter().flat_map(|host| host.run(listening)).chain(listening()) {
        assert!((7100..=7109).contains(&port), "{port}");
    }
    let pushed = Outcome::of(push.wait_with_output().unwrap());
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    // This machine needs two, each host one.
    let few = Outcome::of(world.push("h1", &["--ports", "7100-7100"]).output().unwrap());
    few.has_failed_with(1, "--ports 7100-7100: all of them are in use");
    for wrong in ["7100", "7109-7100", "0-5", "7100-70000"] {
        let refused = Outcome::of(world.push("h1", &["--ports", wrong]).output().unwrap());
        refused.has_failed_with(2, "a range of ports, such as 7000-7100");
    }
}

#[test]
fn doctor_finds_pairs_of_hosts_that_cannot_connect() {
    let Some(world) = World::new(1) else { return };
    let check = |more: &[&str]| {
        let launcher = format!("nsenter --net={}/{{host}}", world.place.path("networks").display());
        let how = ["doctor", "--to", "h1,h2,h3", "--launcher", &launcher, "--remote-rdmc", RDMC];
        let own = ["--timeout", "8", "--ports", "7100-7109"];
        Outcome::of(world.place.rdmc(&[&how[..], &own, more].concat()).output().unwrap())
    };
    let whole = check(&[]);
    assert_eq!((whole.code, whole.err.as_str()), (Some(0), ""), "{whole:?}");
    assert!(whole.out.starts_with("12 of 12 connections"), "{whole:?}");
    world.drop_between(1, 2);
    world.drop_between(2, 1);
    let parted = check(&["--json"]);
    assert_eq!(parted.code, Some(3), "{parted:?}");
    let report: serde_json::Value = serde_json::from_str(&parted.out).unwrap();
    assert_eq!((&report["tried"], &report["exit_code"]), (&12.into(), &3.into()), "{report}");
    let pairs = report["unreachable"].as_array().unwrap().iter();
    let pairs: Vec<_> = pairs.map(|it| (it["from"].as_str(), it["to"].as_str())).collect();
    assert_eq!(pairs, [(Some("h2"), Some("h1")), (Some("h1"), Some("h2"))], "{report}");
    assert!(report["remedy"].as_str().unwrap().contains("TCP ports 7100-7109"), "{report}");
}

#[test]
fn doctor_names_hosts_that_cannot_be_started() {
    let place = Place::with(1);
    let launcher = "sh -c 'test {host} != dead && exec env \"$@\"' sh";
    let to = ["doctor", "--to", "alive,dead", "--launcher", launcher, "--remote-rdmc", RDMC];
    let checked = place.run(&[&to[..], &["--advertise", "127.0.0.1"]].concat());
    assert_eq!(checked.code, Some(3), "{checked:?}");
    assert!(checked.out.starts_with("2 of 2 connections"), "{checked:?}");
    assert!(checked.err.starts_with("rdmc: dead: its receiver ended"), "{checked:?}");
    let local = place.run_words("doctor --local 3 --ports 7100");
    local.has_failed_with(2, "a range of ports, such as 7000-7100");
}
