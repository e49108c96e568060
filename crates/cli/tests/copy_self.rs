//! `--copy-self` and `--mkdir`: hosts where nothing is installed and no directory is made.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::common::{Outcome, Place, RDMC};

/// A push of its own program to these hosts, whose temporary directory is `tmp`. `script` is what a login does.
fn push(place: &Place, hosts: &str, script: &str, more: &[&str]) -> Command {
    let tmp = place.path("tmp");
    let _ = fs::create_dir(&tmp);
    let dest = place.path("copies/{host}/object").to_str().unwrap().to_owned();
    let launcher = format!("sh -c '{script}' {{host}}");
    let to = ["push", "object", "--to", hosts, "--dest", &dest, "--launcher", &launcher];
    let how = ["--copy-self", "--mkdir", "--advertise", "127.0.0.1"];
    let patience = if more.contains(&"--timeout") { &[][..] } else { &["--timeout", "600"] };
    let mut push = place.rdmc(&[&to[..], &how, patience, more].concat());
    push.env("TMPDIR", tmp);
    push
}

fn run(mut push: Command) -> Outcome {
    Outcome::of(push.output().unwrap())
}

fn is_clean(place: &Place) -> bool {
    fs::read_dir(place.path("tmp")).unwrap().count() == 0
}

/// The program travels from host to host, and is gone when it runs.
#[test]
fn hosts_get_the_program_and_directories() {
    let place = Place::with(100_000);
    let log = place.path("log").to_str().unwrap().to_owned();
    let script = format!("umask 027; echo $0 $PPID >> {log}; exec \"$@\"");
    let outcome = run(push(&place, "h[1-4]", &script, &["--fanout", "2", "--launch-depth", "2"]));
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert!((1..=4).all(|host| place.is_copy(&format!("copies/h{host}/object"))));
    let mode = fs::metadata(place.path("copies/h1")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750, "by the umask of the host");
    let logins = fs::read_to_string(&log).unwrap();
    let from: std::collections::HashSet<&str> =
        logins.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!((logins.lines().count(), from.len()), (4, 3), "two of them by hosts: {logins}");
    assert!(is_clean(&place));
}

#[test]
fn without_the_options_the_errors_name_them() {
    let place = Place::with(100);
    let to = ["push", "object", "--to", "h", "--launcher", "env X={host}", "--timeout", "600"];
    let missing = place.run(&[&to[..], &["--remote-rdmc", RDMC, "--dest", "no/object"]].concat());
    missing.has_failed_with(1, "--mkdir");
    let shell = ["push", "object", "--to", "h", "--launcher", "sh -c 'exec sh -c \"$*\"' {host}"];
    let unknown = place.run(&[&shell[..], &["--remote-rdmc", "no-such-rdmc"]].concat());
    unknown.has_failed_with(1, "not found; copy it with --copy-self");
    let listening = ["push", "object", "--to", "h:7000", "--mkdir", "--secret-file", "secret"];
    place.write_private("secret", &"11".repeat(32));
    place.run(&listening).has_failed_with(2, "--mkdir is for receivers that this push starts");
    fs::write(place.path("blocked"), "").unwrap();
    let blocked = [&to[..], &["--remote-rdmc", RDMC, "--dest", "blocked/sub/object", "--mkdir"]];
    place.run(&blocked.concat()).has_failed_with(1, "cannot write in blocked/sub: Not a directory");
}

/// Each case is a program that is put before those of the system at the host.
#[test]
fn hosts_that_cannot_run_it_say_why_and_keep_nothing() {
    let place = Place::with(100);
    let bin = place.path("bin");
    fs::create_dir(&bin).unwrap();
    let with = |name: &str, body: &str| {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!("PATH={}:$PATH exec \"$@\"", bin.display());
        let outcome = run(push(&place, "h", &script, &[]));
        fs::remove_file(path).unwrap();
        assert!(is_clean(&place), "{name}");
        outcome
    };
    let other = with("uname", "echo sparc");
    other.has_failed_with(1, "this host is sparc and the program to copy is for");
    assert!(other.err.contains("--copy-self=PATH"), "{other:?}");
    with("head", "exec /usr/bin/head -c 1000").has_failed_with(1, "incomplete or damaged");
    with("sha256sum", "echo 00 -").has_failed_with(1, "incomplete or damaged");
    with("mktemp", "exit 1").has_failed_with(1, "set TMPDIR at this host");

    fs::write(place.path("script"), "#!/bin/sh\n").unwrap();
    let to = ["push", "object", "--to", "h", "--copy-self=script"];
    place.run(&to).has_failed_with(2, "--copy-self=script is not a program for Linux");
}

/// Standard input ends while the program is on its way, as when a connection breaks.
#[test]
fn nothing_stays_when_a_connection_breaks() {
    let place = Place::with(100);
    let script = "(head -c 3000; until ls $TMPDIR/*/rdmc >&2; do sleep 0.1; done) | \"$@\"";
    let outcome = run(push(&place, "h", script, &["--verbose"]));
    outcome.has_failed_with(1, "incomplete or damaged");
    assert!(outcome.err.contains("/tmp/rdmc-"), "a part was there: {outcome:?}");
    assert!(is_clean(&place));
}

/// The copy of the program does not end as long as the push runs.
#[test]
fn a_host_without_the_whole_program_has_that_as_its_reason() {
    let place = Place::with(100);
    let script = "(head -c 3000; while kill -0 $PPID; do sleep 0.1; done) 2>/dev/null | \"$@\"";
    let outcome = run(push(&place, "h", script, &["--timeout", "2"]));
    outcome.has_failed_with(
        1,
        "[the program was not copied to it by then: give it more time (--timeout)]",
    );
}

/// Standard error is closed, as when ssh was killed: the shell gets SIGPIPE for its message.
#[test]
fn nothing_stays_when_the_login_is_killed() {
    let place = Place::with(100);
    let sent = "head -c 3000; until ls $TMPDIR/*/rdmc >/dev/null; do sleep 0.1; done";
    let script = format!("{{ {{ {sent}; }} | \"$@\" 2>&1; }} | true");
    let outcome = run(push(&place, "h", &script, &["--verbose"]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(is_clean(&place), "{outcome:?}");
}
