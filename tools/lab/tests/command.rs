//! The command `rdmc-lab`: labs are there whole or not at all. Skipped without root.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{NamedLab, eventually, is_skipped, namespaces};

fn lab(name: &str, arguments: &str) -> Command {
    let mut words = arguments.split_whitespace();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmc-lab"));
    command.args(words.next()).args(["--name", name]).args(words);
    command
}

fn run(name: &str, arguments: &str) -> Output {
    lab(name, arguments).output().expect("the program starts")
}

/// The standard output of a command that must succeed.
fn good(name: &str, arguments: &str) -> String {
    let output = run(name, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn code_and_errors(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

fn is_listed(name: &str) -> bool {
    let output = Command::new(env!("CARGO_BIN_EXE_rdmc-lab")).args(["list", "--json"]).output();
    let text = String::from_utf8(output.expect("the program starts").stdout).expect("text");
    json(&text).as_array().expect("a list").iter().any(|lab| lab["name"] == name)
}

fn assert_nothing_is_left(name: &str) {
    assert_eq!(namespaces(name), Vec::<String>::new());
    assert!(!is_listed(name), "{name} is still listed");
}

#[test]
fn a_lab_lives_from_up_to_down() {
    if is_skipped() {
        return;
    }
    let named = NamedLab::new("life");
    let name = named.name();
    good(name, "up --hosts 3 --rate 100mbit --slow 1:50mbit --slow-link 0-2:20mbit");
    assert_eq!(namespaces(name).len(), 4);
    assert!(is_listed(name));

    // It is not made twice, and the error has the remedy.
    let (code, errors) = code_and_errors(&run(name, "up --hosts 2 --rate 10mbit"));
    assert_eq!(code, Some(1));
    assert!(errors.contains("there is a lab") && errors.contains("down --name"), "{errors}");
    assert_eq!(namespaces(name).len(), 4);

    let hosts = json(&good(name, "hosts --json --without 1"));
    assert_eq!(hosts["hosts"].as_array().expect("hosts").len(), 2);
    assert_eq!(hosts["hosts"][1]["address"], "10.77.0.3");
    assert_eq!(hosts["hosts"][1]["port"], "port2");
    assert!(hosts["hosts"][1]["sent_bytes"].is_u64(), "{hosts}");
    assert_eq!(hosts["switch"], format!("rdmc-{name}-switch"));
    let lines = good(name, "hosts");
    let first = lines.lines().find(|line| !line.starts_with('#')).expect("a host");
    assert!(first.starts_with(&format!("rdmc-{name}-0 ")), "{lines}");

    // A process that is still on a host ends with it.
    let mut sleeper = lab(name, "exec 1 -- sleep 1000").spawn().expect("the program starts");
    eventually("the sleeper runs on the host", || program_of(&sleeper) == "sleep");
    good(name, "down");
    eventually("the sleeper has ended", || sleeper.try_wait().expect("a child").is_some());
    assert_nothing_is_left(name);
    let (code, errors) = code_and_errors(&run(name, "down"));
    assert_eq!(code, Some(1));
    assert!(errors.contains("there is no lab"), "{errors}");
}

fn program_of(process: &Child) -> String {
    let name = fs::read_to_string(format!("/proc/{}/comm", process.id())).unwrap_or_default();
    name.trim().to_owned()
}

#[test]
fn commands_on_hosts_have_their_input_output_and_exit_code() {
    if is_skipped() {
        return;
    }
    let named = NamedLab::new("exec");
    let name = named.name();
    good(name, "up --hosts 2 --rate 100mbit");
    let mut cat = lab(name, "exec 1 -- cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    cat.stdin.take().expect("a pipe").write_all(b"through and back").expect("cat reads");
    assert_eq!(cat.wait_with_output().expect("cat ends").stdout, b"through and back");
    assert!(good(name, "exec 1 ip -brief address").contains("10.77.0.2/16"));
    assert!(
        good(name, &format!("exec rdmc-{name}-0 -- ip -brief address")).contains("10.77.0.1/16")
    );
    let code =
        lab(name, "exec 0 --").args(["sh", "-c", "exit 7"]).status().expect("it runs").code();
    assert_eq!(code, Some(7));
    let (code, errors) = code_and_errors(&run(name, "exec 2 -- true"));
    assert_eq!(code, Some(2));
    assert!(errors.contains("hosts are 0 to 1"), "{errors}");
}

/// Starts making a large lab, and returns when parts of it exist.
fn begin(name: &str) -> Child {
    let maker = lab(name, "up --hosts 64 --rate 10mbit")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    eventually("there is some of the lab", || namespaces(name).len() > 2);
    maker
}

fn signal(process: &Child, signal: Signal) {
    let id = Pid::from_raw(process.id().cast_signed()).expect("a process");
    kill_process(id, signal).expect("it is our child");
}

#[test]
fn an_interrupted_lab_is_removed_again() {
    if is_skipped() {
        return;
    }
    for number in [Signal::INT, Signal::TERM] {
        let named = NamedLab::new("interrupted");
        let maker = begin(named.name());
        signal(&maker, number);
        let (code, errors) = code_and_errors(&maker.wait_with_output().expect("it ends"));
        assert_eq!(code, Some(130), "{errors}");
        assert!(errors.contains("nothing was left behind"), "{errors}");
        assert_nothing_is_left(named.name());
    }
}

/// There is `ip`, but no `tc`: it fails when all hosts are there.
#[test]
fn a_lab_that_cannot_be_completed_is_removed() {
    if is_skipped() {
        return;
    }
    let named = NamedLab::new("half");
    let directory = tempfile::tempdir().expect("a directory");
    let path = std::env::var("PATH").expect("a path");
    let ip = path.split(':').map(|part| Path::new(part).join("ip")).find(|path| path.exists());
    std::os::unix::fs::symlink(ip.expect("ip"), directory.path().join("ip")).expect("a link");
    let mut command = lab(named.name(), "up --hosts 3 --rate 10mbit");
    let output = command.env("PATH", directory.path()).output().expect("the program starts");
    let (code, errors) = code_and_errors(&output);
    assert_eq!((code, errors.contains("tc, of the package iproute2")), (Some(1), true), "{errors}");
    assert_nothing_is_left(named.name());
}

#[test]
fn remains_of_a_crashed_lab_are_removed_by_the_next() {
    if is_skipped() {
        return;
    }
    let named = NamedLab::new("killed");
    let name = named.name();
    for _ in 0..2 {
        let mut maker = begin(name);
        signal(&maker, Signal::KILL);
        maker.wait().expect("it ends");
        assert!(!namespaces(name).is_empty() && is_listed(name));
        let (code, errors) = code_and_errors(&run(name, "exec 0 -- true"));
        assert_eq!((code, errors.contains("there is no lab")), (Some(1), true), "{errors}");
        good(name, "up --hosts 2 --rate 10mbit");
        assert_eq!(namespaces(name).len(), 3);
        good(name, "down");
        assert_nothing_is_left(name);
    }
    let mut maker = begin(name);
    signal(&maker, Signal::KILL);
    maker.wait().expect("it ends");
    good(name, "down");
    assert_nothing_is_left(name);
}

#[test]
fn a_damaged_lab_is_reported() {
    if is_skipped() {
        return;
    }
    let named = NamedLab::new("damaged");
    let name = named.name();
    good(name, "up --hosts 2 --rate 10mbit");
    let host = format!("rdmc-{name}-1");
    assert!(Command::new("ip").args(["netns", "del", &host]).status().expect("ip runs").success());
    let (code, errors) = code_and_errors(&run(name, "hosts"));
    assert_eq!((code, errors.contains("are gone")), (Some(1), true), "{errors}");
    good(name, "down");
    assert_nothing_is_left(name);
}

#[test]
fn labs_coexist_and_one_of_two_makers_succeeds() {
    if is_skipped() {
        return;
    }
    let (one, other) = (NamedLab::new("one"), NamedLab::new("other"));
    let makers: Vec<Child> = [one.name(), one.name(), other.name()]
        .into_iter()
        .map(|name| {
            let mut command = lab(name, "up --hosts 4 --rate 10mbit");
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts")
        })
        .collect();
    let outcomes: Vec<bool> =
        makers.into_iter().map(|mut maker| maker.wait().expect("it ends").success()).collect();
    assert_eq!((outcomes[0] ^ outcomes[1], outcomes[2]), (true, true), "{outcomes:?}");
    assert_eq!((namespaces(one.name()).len(), namespaces(other.name()).len()), (5, 5));
    good(one.name(), "down");
    assert_nothing_is_left(one.name());
    assert!(good(other.name(), "exec 3 ip -brief address").contains("10.77.0.4"));
    good(other.name(), "down");
    assert_nothing_is_left(other.name());
}

#[test]
fn links_are_checked_against_their_rates() {
    if is_skipped() {
        return;
    }
    if Command::new("iperf3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: rdmc-lab check: iperf3 is not installed");
        return;
    }
    let named = NamedLab::new("check");
    let name = named.name();
    good(name, "up --hosts 2 --rate 20mbit");
    // No least share: other tests use this machine's processors, too.
    let report = json(&good(name, "check --tests both,ring --at-least 0 --json"));
    let flows = report["flows"].as_array().expect("flows");
    assert_eq!(flows.len(), 4);
    for flow in flows {
        let of_rate = flow["of_rate"].as_f64().expect("a number");
        assert!(of_rate > 0.0 && of_rate < 2.0, "{flow}");
    }
    good(name, "down");
    assert_nothing_is_left(name);
}

#[test]
fn invalid_arguments_are_refused_before_anything_is_made() {
    for arguments in [
        "up --hosts 0 --rate 1gbit",
        "up --hosts 4 --rate 250",
        "up --hosts 4 --rate 1gbit --racks 2",
        "up --hosts 4 --rate 1gbit --uplink 1gbit",
        "up --hosts 4 --rate 1gbit --slow 4:1mbit",
        "up --hosts 4 --rate 1gbit --slow-link 1-1:1mbit",
        "up --hosts 4 --rate 1gbit --burst 1kB",
        "up --hosts 4 --rate 1gbit --queue 0",
        "up --hosts 4 --rate 1gbit --burst 64KiB --small-burst",
        "check --at-least 2",
        "down --all",
        "exec 0",
    ] {
        assert_eq!(run("nonsense", arguments).status.code(), Some(2), "{arguments}");
    }
    assert_eq!(run("No-Name", "up --hosts 2 --rate 1gbit").status.code(), Some(2));
    assert!(!Path::new("/run/rdmc-lab/nonsense.json").exists());
}
