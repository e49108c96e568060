//! `rdmc switch join`: the daemon of a host, as far as it goes without a switch.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Child};

use testing::Authority;

use crate::common::{Place, await_that};

/// The options that name certificates for this machine; the key becomes its owner's alone.
fn certificates(authority: &Authority) -> Vec<String> {
    let files = authority.issue("127.0.0.1");
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let named =
        [("--cert", &files.certificate), ("--key", &files.key), ("--ca", &files.authorities)];
    named.into_iter().flat_map(|(name, path)| [name.to_owned(), text(path)]).collect()
}

const JOIN: [&str; 6] = ["switch", "join", "--listen", "127.0.0.1:0", "--switch", "127.0.0.1:4790"];

fn words<'a>(more: &[&'a str], certificates: &'a [String]) -> Vec<&'a str> {
    let certificates = certificates.iter().map(String::as_str);
    JOIN.iter().copied().chain(more.iter().copied()).chain(certificates).collect()
}

fn interrupt(child: &mut Child) -> Option<i32> {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    child.wait().unwrap().code()
}

#[test]
fn a_daemon_listens_and_removes_its_socket() {
    let (place, authority) = (Place::with(10), Authority::new("one"));
    let options = certificates(&authority);
    let more = ["--socket", "switch.sock", "--socket-mode", "660"];
    let mut daemon = place.rdmc(&words(&more, &options)).spawn().unwrap();
    let socket = place.path("switch.sock");
    await_that("the socket is there", || socket.exists());
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    let again = place.run(&words(&more, &options));
    again.has_failed_with(1, "another daemon listens at switch.sock");
    let host = ["switch", "host", "--socket", "switch.sock"];
    let shown = place.run(&host);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert_eq!(
        shown.out,
        "no groups that applications of this host send to\nno listening services\n"
    );
    let json = place.run(&[&host[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json, serde_json::json!({ "schema": 1, "groups": [], "services": [] }));
    assert_eq!(interrupt(&mut daemon), Some(0));
    assert!(!socket.exists());
    place.run(&host).has_failed_with(1, "is `rdmc switch join` running?");
}

#[test]
fn invalid_options_are_refused_with_the_remedy() {
    let (place, authority) = (Place::with(10), Authority::new("one"));
    let options = certificates(&authority);
    let run = |more: &[&str], options: &[String]| place.run(&words(more, options));
    run(&["--socket", "no/switch.sock"], &options).has_failed_with(1, "make its directory first");
    run(&["--socket", "object"], &options).has_failed_with(1, "not a socket");
    run(&["--socket", "s", "--socket-mode", "u+r"], &options).has_failed_with(2, "octal");
    run(&["--socket", "s", "--trust", "a b"], &options)
        .has_failed_with(1, "\"a b\" is not the name");
    run(&["--socket", "s"], &[]).has_failed_with(2, "--cert, --key and --ca");
}
