//! `rdmc push` under faults during the transfer: killed and stopped processes, interrupts, changing sources.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::common::{
    Outcome, Place, RDMC, await_that, child_with_open, children, is_running, signal,
    without_signals,
};

/// Blocks so small that the transfer lasts long enough to be disturbed in the middle.
const SLOW: [&str; 6] = ["push", "object", "--local", "3", "--block-size", "1KiB"];
const BYTES: usize = 20 << 20;

/// It gets its own copy while it is waited for.
#[test]
fn a_host_that_hangs_delays_nobody() {
    let place = Place::with(100_000);
    let dest = place.path("{host}").to_str().unwrap().to_owned();
    let launcher = "sh -c 'test $0 = hangs && exec sleep 600; exec \"$@\"' {host}";
    let to = ["push", "object", "--to", "a,hangs,b", "--dest", &dest, "--launcher", launcher];
    let how = ["--remote-rdmc", RDMC, "--advertise", "127.0.0.1", "--timeout", "600"];
    let push = place.rdmc(&[&to[..], &how].concat()).spawn().unwrap();
    await_that("the others have copies", || place.is_copy("a") && place.is_copy("b"));
    signal(push.id(), "TERM");
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(130, "2 of 3 hosts have a copy");
}

#[test]
fn with_all_or_none_a_host_that_cannot_be_started_keeps_all_others_from_publishing() {
    let place = Place::with(100_000);
    fs::write(place.path("a"), "old").unwrap();
    let dest = place.path("{host}").to_str().unwrap().to_owned();
    let launcher = "sh -c 'test $0 = broken && exec false; exec \"$@\"' {host}";
    let to = ["push", "object", "--to", "a,broken,b", "--dest", &dest, "--launcher", launcher];
    let how = ["--remote-rdmc", RDMC, "--advertise", "127.0.0.1", "--all-or-none", "--json"];
    let push = place.rdmc(&[&to[..], &how].concat()).spawn().unwrap();
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(1, "no host publishes its copy, since broken has none");
    assert_eq!(fs::read_to_string(place.path("a")).unwrap(), "old");
    assert!(!place.path("b").exists());
    let report = outcome.json();
    assert!(report["error"].as_str().unwrap().contains("broken"), "{report}");

    let to = ["push", "object", "--to", "a,b", "--dest", &dest, "--launcher", launcher];
    let push = place.rdmc(&[&to[..], &how].concat()).spawn().unwrap();
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(place.is_copy("a") && place.is_copy("b"));
}

#[test]
fn a_killed_receiver_is_named_and_the_others_get_their_copies() {
    let place = Place::with(BYTES);
    let arguments = [&SLOW[..], &["--json"]].concat();
    let push = place.start_and_await_blocks(&arguments, "local-2");
    signal(child_with_open(push.id(), "/local-2/"), "KILL");
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(3, "local-2: its receiver was lost");
    assert!(outcome.err.contains("signal: 9"), "{outcome:?}");
    assert!(place.is_copy("rdmc-local/local-1/object"));
    assert!(place.is_copy("rdmc-local/local-3/object"));
    assert!(!place.path("rdmc-local/local-2/object").exists());
    assert_eq!(outcome.json()["members"], 3, "the last group was formed without it");
    // Its partial copy is kept for the next push.
    assert!(place.temporaries().iter().all(|path| path.to_string_lossy().contains("/local-2/")));
}

#[test]
fn a_stopped_receiver_is_lost_at_the_failure_deadline() {
    let place = Place::with(BYTES);
    let arguments = [&SLOW[..], &["--json", "--failure-deadline", "2"]].concat();
    let push = place.start_and_await_blocks(&arguments, "local-2");
    let victim = child_with_open(push.id(), "/local-2/");
    signal(victim, "STOP");
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(3, "local-2: it no longer answers");
    assert!(outcome.err.contains("fell silent: while relaying message"), "{outcome:?}");
    assert!(!is_running(victim), "what the push has started ends with it");
    // The signal by which the push itself has ended it is not reported.
    assert!(!outcome.err.contains("signal: 9"), "{outcome:?}");
    assert!(place.is_copy("rdmc-local/local-1/object"));
    assert!(place.is_copy("rdmc-local/local-3/object"));
}

#[test]
fn failure_deadlines_have_limits() {
    let place = Place::with(1);
    for wrong in ["0", "0.1", "3601", "-1", "NaN", "inf", "1e30", "soon"] {
        let wrong = format!("--failure-deadline={wrong}");
        let outcome = place.run(&["push", "object", "--local", "1", &wrong]);
        outcome.has_failed_with(2, "--failure-deadline");
    }
}

/// One host's part of the summary.
fn host<'a>(summary: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let hosts = summary["hosts"].as_array().unwrap();
    hosts.iter().find(|host| host["host"] == name).unwrap()
}

#[test]
fn the_same_command_again_sends_only_what_is_missing() {
    let place = Place::with(BYTES);
    let arguments = [&SLOW[..], &["--json"]].concat();
    let push = place.start_and_await_blocks(&arguments, "local-2");
    place.await_bytes("local-2", 3 << 20);
    signal(child_with_open(push.id(), "/local-2/"), "KILL");
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(3, "local-2: its receiver was lost");
    // The survivors needed little again of what they had.
    for name in ["local-1", "local-3"] {
        let repeated = host(&outcome.json(), name)["repeated_bytes"].as_u64().unwrap();
        assert!(repeated < BYTES as u64 / 20, "{repeated}");
    }
    // Of the killed one: its partial copy, and a lock file without an owner.
    assert_eq!(place.temporaries().len(), 2);
    let again = place.run(&arguments);
    assert_eq!(again.code, Some(0), "{again:?}");
    let resumed = |name| host(&again.json(), name)["resumed_bytes"].as_u64().unwrap();
    // The copies of the others are read back and not sent again.
    assert_eq!([resumed("local-1"), resumed("local-3")], [BYTES as u64; 2]);
    let was_there = |name| host(&again.json(), name)["was_there"].as_bool().unwrap();
    assert_eq!(["local-1", "local-2", "local-3"].map(was_there), [true, false, true]);
    assert!((2 << 20..BYTES as u64).contains(&resumed("local-2")), "{}", resumed("local-2"));
    assert!((1..=3).all(|host| place.is_copy(&format!("rdmc-local/local-{host}/object"))));
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_lost_receiver_rejoins_where_retries_are_allowed() {
    for protection in ["none", "encrypt"] {
        let place = Place::with(BYTES);
        let how = ["--json", "--retry", "1", "--protect", protection];
        let arguments = [&SLOW[..], &how].concat();
        let push = place.start_and_await_blocks(&arguments, "local-2");
        place.await_bytes("local-2", 3 << 20);
        signal(child_with_open(push.id(), "/local-2/"), "KILL");
        let outcome = Outcome::of(push.wait_with_output().unwrap());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let resumed = host(&outcome.json(), "local-2")["resumed_bytes"].as_u64().unwrap();
        assert!(resumed >= 2 << 20, "{resumed}");
        assert!((1..=3).all(|host| place.is_copy(&format!("rdmc-local/local-{host}/object"))));
        assert!(place.temporaries().is_empty());
    }
}

#[test]
fn an_interrupted_push_leaves_no_processes_and_keeps_received_data() {
    for name in ["INT", "TERM", "HUP"] {
        let place = Place::with(BYTES);
        let push = place.start_and_await_blocks(&SLOW, "local-1");
        place.await_bytes("local-1", 3 << 20);
        let receivers = children(push.id());
        assert_eq!(receivers.len(), 3);
        signal(push.id(), name);
        let outcome = Outcome::of(push.wait_with_output().unwrap());
        outcome.has_failed_with(130, "interrupted");
        assert!(outcome.out.is_empty(), "{outcome:?}");
        assert!(receivers.into_iter().all(|receiver| !is_running(receiver)));
        assert_eq!(place.temporaries().len(), 3, "as after a loss");
        let is_there = |host| place.path(&format!("rdmc-local/local-{host}/object")).exists();
        assert!(!(1..=3).any(is_there));
        let again = place.run(&[&SLOW[..], &["--json"]].concat());
        assert_eq!(again.code, Some(0), "{again:?}");
        let resumed = host(&again.json(), "local-1")["resumed_bytes"].as_u64().unwrap();
        assert!(resumed >= 2 << 20, "{resumed}");
        assert!(place.temporaries().is_empty());
    }
}

#[test]
fn an_interrupted_push_reports_the_state_of_each_host() {
    // Interrupted as soon as the first copy has its name: others are about to get theirs.
    for _ in 0..5 {
        let place = Place::with(1 << 20);
        let push = place.rdmc(&["push", "object", "--local", "3", "--json"]).spawn().unwrap();
        let copy = |host: u32| place.path(&format!("rdmc-local/local-{host}/object"));
        await_that("a copy is there", || (1..=3).any(|host| copy(host).exists()));
        signal(push.id(), "INT");
        let outcome = Outcome::of(push.wait_with_output().unwrap());
        assert!(matches!(outcome.code, Some(0 | 130)), "{outcome:?}");
        assert!(!outcome.err.contains("nothing was left"), "{outcome:?}");
        let summary = outcome.json();
        for number in 1..=3 {
            let name = format!("local-{number}");
            let is_there = copy(number).exists();
            match host(&summary, &name)["state"].as_str().unwrap() {
                "published" => assert!(is_there, "{name}: {outcome:?}"),
                "failed" => assert!(!is_there, "{name}: {outcome:?}"),
                state => assert_eq!(state, "unknown"),
            }
        }
        let published = summary["hosts"].as_array().unwrap().iter();
        assert!(published.filter(|host| host["state"] == "published").count() > 0, "{outcome:?}");
    }
}

#[test]
fn received_data_survives_a_receiver_ended_by_a_signal() {
    let place = Place::with(BYTES);
    let arguments = [&SLOW[..], &["--json"]].concat();
    let push = place.start_and_await_blocks(&arguments, "local-2");
    place.await_bytes("local-2", 3 << 20);
    signal(child_with_open(push.id(), "/local-2/"), "TERM");
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(3, "local-2: the receiver was interrupted");
    assert_eq!(place.temporaries().len(), 1, "{outcome:?}");
    let again = place.run(&arguments);
    assert_eq!(again.code, Some(0), "{again:?}");
    let resumed = host(&again.json(), "local-2")["resumed_bytes"].as_u64().unwrap();
    assert!(resumed >= 2 << 20, "{resumed}");
}

/// As `nohup` and the background of shells have it.
#[test]
fn signals_that_are_ignored_at_the_start_stay_ignored() {
    let place = Place::with(BYTES);
    let push = place.rdmc(&SLOW);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]).args(without_signals(&push));
    shell.current_dir(place.directory.path());
    let push = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.await_bytes("local-1", 0);
    for process in [&children(push.id())[..], &[push.id()]].concat() {
        signal(process, "HUP");
        signal(process, "INT");
    }
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!((1..=3).all(|host| place.is_copy(&format!("rdmc-local/local-{host}/object"))));
}

#[test]
fn received_data_survives_a_killed_root() {
    let place = Place::with(BYTES);
    let mut push = place.start_and_await_blocks(&SLOW, "local-3");
    place.await_bytes("local-3", 3 << 20);
    let receivers = children(push.id());
    push.kill().unwrap();
    push.wait().unwrap();
    await_that("receivers are gone", || !receivers.iter().any(|receiver| is_running(*receiver)));
    assert_eq!(place.temporaries().len(), 3);
    assert!((1..=3).all(|host| !place.path(&format!("rdmc-local/local-{host}/object")).exists()));
    let again = place.run(&[&SLOW[..], &["--json"]].concat());
    assert_eq!(again.code, Some(0), "{again:?}");
    let resumed = host(&again.json(), "local-3")["resumed_bytes"].as_u64().unwrap();
    assert!(resumed >= 2 << 20, "{resumed}");
    assert!((1..=3).all(|host| place.is_copy(&format!("rdmc-local/local-{host}/object"))));
    assert!(place.temporaries().is_empty());
}

#[test]
fn partial_copies_of_another_version_are_not_used() {
    let place = Place::with(BYTES);
    let mut push = place.start_and_await_blocks(&SLOW, "local-1");
    let receivers = children(push.id());
    push.kill().unwrap();
    push.wait().unwrap();
    await_that("receivers are gone", || !receivers.iter().any(|receiver| is_running(*receiver)));
    fs::write(place.path("object"), b"something else").unwrap();
    let again = place.run(&[&SLOW[..], &["--json"]].concat());
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(host(&again.json(), "local-1")["resumed_bytes"], 0);
    assert_eq!(fs::read(place.path("rdmc-local/local-1/object")).unwrap(), b"something else");
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_source_that_shrinks_fails_the_push_and_publishes_nothing() {
    let place = Place::with(BYTES);
    let push = place.start_and_await_blocks(&SLOW, "local-1");
    fs::File::options().write(true).open(place.path("object")).unwrap().set_len(1 << 20).unwrap();
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(1, "object changed while it was sent");
    assert!((1..=3).all(|host| !place.path(&format!("rdmc-local/local-{host}/object")).exists()));
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_source_that_is_written_to_fails_the_push() {
    use std::os::unix::fs::FileExt;
    let place = Place::with(BYTES);
    let push = place.start_and_await_blocks(&SLOW, "local-1");
    let object = fs::File::options().write(true).open(place.path("object")).unwrap();
    object.write_all_at(b"changed", (BYTES - 100) as u64).unwrap();
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(1, "object changed while it was sent");
    assert!((1..=3).all(|host| !place.path(&format!("rdmc-local/local-{host}/object")).exists()));
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_source_written_to_with_its_time_kept_is_noticed_and_no_host_is_blamed() {
    use std::os::unix::fs::FileExt;
    let place = Place::with(BYTES);
    let push = place.start_and_await_blocks(&SLOW, "local-1");
    place.await_bytes("local-1", 2 << 20);
    let object = fs::File::options().write(true).open(place.path("object")).unwrap();
    let time = object.metadata().unwrap().modified().unwrap();
    object.write_all_at(b"changed", (BYTES - 100) as u64).unwrap();
    object.set_modified(time).unwrap();
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(1, "its modification time was kept");
    assert!(!outcome.err.contains("memory"), "{outcome:?}");
    assert!((1..=3).all(|host| !place.path(&format!("rdmc-local/local-{host}/object")).exists()));
    assert!(place.temporaries().is_empty());
}
