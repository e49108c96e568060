//! Hosts that log in to further hosts: who starts whom, and what comes back to the root.

use std::{fs, process::Stdio};

use crate::common::{Outcome, Place, RDMC, await_that};

const HOSTS: usize = 14;

/// A push to 14 hosts, h1 to h14, by logins three deep with two from each machine. `script` is what a login does, with the host as $0.
fn push(place: &Place, script: &str, more: &[&str]) -> std::process::Command {
    let dest = place.path("copy-{host}").to_str().unwrap().to_owned();
    let launcher = format!("sh -c '{script}' {{host}}");
    let how = ["push", "object", "--to", "h[1-14]", "--dest", &dest, "--launcher", &launcher];
    // Long enough that no receiver is started only because another one is slow.
    let tree = ["--fanout", "2", "--launch-depth", "3", "--timeout", "600"];
    let home = ["--remote-rdmc", RDMC, "--advertise", "127.0.0.1"];
    place.rdmc(&[&how[..], &tree, &home, more].concat())
}

fn run(place: &Place, script: &str, more: &[&str]) -> Outcome {
    Outcome::of(push(place, script, more).output().unwrap())
}

fn copies(place: &Place) -> Vec<usize> {
    (1..=HOSTS).filter(|host| place.is_copy(&format!("copy-h{host}"))).collect()
}

/// Processes whose working directory is the place.
fn processes_in(place: &Place) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let is_there = |process: &u32| {
        fs::read_link(format!("/proc/{process}/cwd")).is_ok_and(|cwd| cwd == place.directory.path())
    };
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_there).collect()
}

/// Each login writes its host and the process that it comes from.
#[test]
fn a_tree_starts_every_host_once_with_few_logins_from_each() {
    let place = Place::with(100_000);
    let log = place.path("log").to_str().unwrap().to_owned();
    let script = format!("echo $0 $PPID >> {log}; exec \"$@\"");
    let outcome = run(&place, &script, &["--json"]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert_eq!(copies(&place).len(), HOSTS);
    let logins = fs::read_to_string(&log).unwrap();
    let pairs: Vec<(&str, &str)> =
        logins.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let mut hosts: Vec<&str> = pairs.iter().map(|(host, _)| *host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!((hosts.len(), pairs.len()), (HOSTS, HOSTS), "{logins}");
    for (_, from) in &pairs {
        assert!(pairs.iter().filter(|(_, other)| other == from).count() <= 2, "{logins}");
    }
    let mut sources: Vec<&str> = pairs.iter().map(|(_, from)| *from).collect();
    sources.sort_unstable();
    sources.dedup();
    // The root, its two hosts, and their two each.
    assert_eq!(sources.len(), 7, "{logins}");
}

/// Where hosts may not log in to each other, or one that should start others is dead.
#[test]
fn hosts_that_others_cannot_start_are_started_from_the_root() {
    let place = Place::with(100_000);
    let marks = place.path("mark").to_str().unwrap().to_owned();
    // Variables do not travel over logins, but here they tell which ones are the root's.
    let between = format!(
        "if test -n \"$INSIDE\"; then echo $0 >> {marks}; echo Permission denied $0 >&2; exit 255; fi; INSIDE=1 exec \"$@\""
    );
    let outcome = run(&place, &between, &["--json"]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert_eq!(copies(&place).len(), HOSTS);
    let refused = fs::read_to_string(&marks).unwrap();
    assert_eq!(refused.lines().count(), 4, "what the root's two hosts tried: {refused}");

    let place = Place::with(100_000);
    let dead = "if test $0 = h1 -o $0 = h9; then echo no route to $0 for $PPID >&2; exit 255; fi; exec \"$@\"";
    let outcome = run(&place, dead, &["--json"]);
    outcome.has_failed_with(3, "h1: its receiver could not be started: no route to h1");
    outcome.has_failed_with(3, "h9: its receiver could not be started: no route to h9");
    assert!(outcome.err.contains("[before: "), "h9 was tried from another host: {outcome:?}");
    assert_eq!(copies(&place), [2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14]);

    let place = Place::with(100);
    let outcome = run(&place, &dead.replace(" for $PPID", ""), &["--json"]);
    outcome.has_failed_with(3, "h9: its receiver could not be started: no route to h9");
    assert!(!outcome.err.contains("[before: "), "the same reason twice: {outcome:?}");
}

/// The root is killed while a host does not answer: nothing stays.
#[test]
fn nothing_is_left_when_the_root_dies() {
    let place = Place::with(100_000);
    let started = place.path("started");
    let log = started.display();
    let script =
        format!("echo $0 >> {log}; if test $0 = h14; then exec sleep 600; fi; exec \"$@\"");
    let mut push = push(&place, &script, &[]).stderr(Stdio::null()).spawn().unwrap();
    await_that("all are started", || {
        fs::read_to_string(&started).is_ok_and(|started| started.lines().count() == HOSTS)
    });
    assert!(processes_in(&place).len() > HOSTS);
    push.kill().unwrap();
    push.wait().unwrap();
    await_that("they are gone", || processes_in(&place).is_empty());
    assert!(copies(&place).is_empty());
}

/// With a word of its own invitation replaced by another host's name.
#[test]
fn a_started_receiver_cannot_pose_as_another_host() {
    let place = Place::with(100_000);
    let dest = place.path("copy-{host}").to_str().unwrap().to_owned();
    let launcher =
        "sh -c 'if test $0 = h1; then sed s/h1/h2/ | exec \"$@\"; else exec \"$@\"; fi' {host}";
    // It comes first.
    let to = ["push", "object", "--to", "h1,h2", "--dest", &dest, "--launcher", launcher];
    let how = ["--remote-rdmc", RDMC, "--advertise", "127.0.0.1", "--timeout", "600"];
    let outcome = place.run(&[&to[..], &how, &["--fanout", "1"]].concat());
    outcome.has_failed_with(3, "h1: its receiver could not be started: ");
    assert!(outcome.err.contains("it claims to be h2, but lacks the token of"), "{outcome:?}");
    assert!(place.is_copy("copy-h2"), "{outcome:?}");
}
