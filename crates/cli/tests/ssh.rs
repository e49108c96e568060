//! The default launcher, ssh: with configurations that users have, and servers that refuse logins.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{Outcome, Place, RDMC, sshd::Sshd};

/// `rdmc push` by the default launcher, whose ssh is in this directory, to `copy-HOST` in the place.
fn push(place: &Place, programs: &Path, hosts: &str, more: &[&str]) -> Outcome {
    let dest = place.path("copy-{host}").to_str().unwrap().to_owned();
    let how = ["push", "object", "--to", hosts, "--dest", &dest, "--advertise", "127.0.0.1"];
    let mut push: Command = place.rdmc(&[&how[..], more].concat());
    let path = std::env::var("PATH").unwrap();
    push.env("PATH", format!("{}:{path}", programs.display()));
    Outcome::of(push.output().unwrap())
}

/// A program `ssh` of these lines of the shell, with its options taken off: `$host`, and the command as arguments.
fn fake_ssh(place: &Place, lines: &str) -> PathBuf {
    let programs = place.path("programs");
    fs::create_dir_all(&programs).unwrap();
    let script = format!(
        "#!/bin/sh\nwhile :; do case $1 in -o) shift 2;; -*) shift;; *) break;; esac; done\nhost=$1; shift\n{lines}\n"
    );
    fs::write(programs.join("ssh"), script).unwrap();
    fs::set_permissions(programs.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    programs
}

#[test]
fn configurations_of_users_do_not_get_in_the_way() {
    // Taken, so that the forward fails; held until the end.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let sockets = directory.path().display();
    let config = format!(
        "  LocalForward {} 127.0.0.1:22\n  ExitOnForwardFailure yes\n  RemoteCommand cat\n  RequestTTY force\n  \
         PermitLocalCommand yes\n  LocalCommand touch {sockets}/local-command\n  ForwardX11 yes\n  LogLevel DEBUG1\n  \
         ControlMaster auto\n  ControlPath {sockets}/%C\n  ControlPersist 60\n",
        taken.local_addr().unwrap()
    );
    let sshd = match Sshd::start("", &config) {
        Ok(sshd) => sshd,
        Err(why) => return eprintln!("SKIPPED: pushes over ssh: {why}"),
    };
    let place = Place::with(100_000);
    let pushed = push(&place, &sshd.programs(), "h1,h2,h3", &["--remote-rdmc", RDMC]);
    assert_eq!((pushed.code, pushed.err.as_str()), (Some(0), ""), "{pushed:?}");
    assert!((1..=3).all(|host| place.is_copy(&format!("copy-h{host}"))));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "no master of connections, no command here: {left:?}");
    let missing = push(&place, &sshd.programs(), "h1", &["--remote-rdmc", "/none/rdmc"]);
    missing.has_failed_with(1, "/none/rdmc: No such file or directory; copy it with");
}

/// sshd refuses at random from 10 logins on that are not authenticated yet, and all from 100 on. It takes its time to look up keys,
/// so that logins wait for it.
#[test]
fn logins_that_a_server_refuses_are_tried_again() {
    let sshd = match Sshd::start(
        "MaxStartups 10:30:100\nAuthorizedKeysFile none\nAuthorizedKeysCommandUser root\n\
         AuthorizedKeysCommand /bin/sh -c \"sleep 1; cat {directory}/user.pub\"",
        "",
    ) {
        Ok(sshd) => sshd,
        Err(why) => return eprintln!("SKIPPED: pushes over ssh: {why}"),
    };
    let place = Place::with(100_000);
    let how = ["--remote-rdmc", RDMC, "--timeout", "600"];
    let pushed = push(&place, &sshd.programs(), "h[1-60]", &how);
    let refused = sshd.log().matches("drop connection").count();
    assert!(refused > 0, "none came while others waited");
    assert_eq!((pushed.code, pushed.err.as_str()), (Some(0), ""), "{pushed:?}");
    assert!((1..=60).all(|host| place.is_copy(&format!("copy-h{host}"))));
}

/// Prints what ssh prints where a server refuses a login.
const REFUSE: &str = "echo 'kex_exchange_identification: Connection closed by remote host' >&2; \
     echo \"Connection closed by $host port 22\" >&2; exit 255";

#[test]
fn a_refused_login_is_tried_again_some_times_and_then_named() {
    let place = Place::with(1000);
    let log = place.path("log").to_str().unwrap().to_owned();
    let lines = format!(
        "echo $host >> {log}\nif test $host = never || test $(grep -c $host {log}) -lt 3; then {REFUSE}; fi\nexec \"$@\""
    );
    let programs = fake_ssh(&place, &lines);
    let how = ["--remote-rdmc", RDMC, "--timeout", "600"];
    let pushed = push(&place, &programs, "h[1-3],never", &how);
    pushed.has_failed_with(
        3,
        "never: its receiver could not be started: kex_exchange_identification",
    );
    assert!(pushed.err.contains("MaxStartups"), "{pushed:?}");
    assert!((1..=3).all(|host| place.is_copy(&format!("copy-h{host}"))), "{pushed:?}");
    let logins = fs::read_to_string(&log).unwrap();
    let of = |host: &str| logins.lines().filter(|line| *line == host).count();
    assert_eq!((of("h1"), of("h2"), of("h3")), (3, 3, 3), "{logins}");
    assert!((4..20).contains(&of("never")), "{logins}");
}

/// What may have run is not run again.
#[test]
fn a_login_that_breaks_later_is_not_tried_again() {
    let place = Place::with(1000);
    let log = place.path("log").to_str().unwrap().to_owned();
    let lines =
        format!("echo $host >> {log}; echo 'Connection reset by 10.0.0.1 port 22' >&2; exit 255");
    let pushed = push(&place, &fake_ssh(&place, &lines), "h1", &["--remote-rdmc", RDMC]);
    pushed.has_failed_with(1, "Connection reset by 10.0.0.1 port 22");
    assert_eq!(fs::read_to_string(&log).unwrap(), "h1\n");
}
