//! Receivers that listen and know roots by certificates.

use std::{
    fs::{self, Permissions},
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

use rustix::{
    fs::{XattrFlags, setxattr},
    io::Errno,
};
use testing::{Authority, Issued};

use crate::common::{Listener, Outcome, Place, RDMC, await_that};

/// The options that name these files; the key becomes its owner's alone.
pub fn options(files: &Issued) -> Vec<String> {
    fs::set_permissions(&files.key, Permissions::from_mode(0o600)).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let named =
        [("--cert", &files.certificate), ("--key", &files.key), ("--ca", &files.authorities)];
    named.into_iter().flat_map(|(name, path)| [name.to_owned(), text(path)]).collect()
}

pub fn words<'a>(first: &[&'a str], more: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(more.iter().map(String::as_str)).collect()
}

fn listener(place: &Place, directory: &str, files: &Issued) -> Listener {
    Listener::start(place, directory, &words(&["--allow", "login1", "--bench"], &options(files)))
}

#[test]
fn certificates_let_a_push_reach_receivers_that_listen() {
    let (place, authority) = (Place::with(500_000), Authority::new("one"));
    let one = listener(&place, "one", &authority.issue("127.0.0.1"));
    let two = listener(&place, "two", &authority.issue("other,localhost"));
    let hosts = format!("127.0.0.1:{},localhost:{}", one.port, two.port);
    let root = options(&authority.issue("login1"));
    let outcome = place.run(&words(&["push", "object", "--to", &hosts], &root));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(place.is_copy("one/object") && place.is_copy("two/object"));
    assert!(outcome.err.is_empty(), "{outcome:?}");

    let bench = ["bench", "--to", &hosts, "--size", "1KiB", "--repeats", "1", "--round-trips", "1"];
    let outcome = place.run(&words(&bench, &root));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn a_root_with_a_certificate_without_names_is_logged_by_its_fingerprint() {
    let (place, authority) = (Place::with(1000), Authority::new("one"));
    let own = authority.issue("127.0.0.1");
    let mut one = Listener::start(&place, "one", &words(&[], &options(&own)));
    let root = authority.issue_with("login1", |certificate| certificate.subject_alt_names.clear());
    let host = format!("127.0.0.1:{}", one.port);
    let outcome = place.run(&words(&["push", "object", "--to", &host], &options(&root)));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let line = loop {
        match one.next_line() {
            line if line.contains("one/object") || line.is_empty() => break line,
            _ => {}
        }
    };
    assert!(line.contains("(certificate without names, SHA-256 "), "{line}");
}

#[test]
fn a_receiver_that_joins_has_a_name_of_its_certificate() {
    let (place, authority) = (Place::with(1000), Authority::new("one"));
    let [root, node] = ["127.0.0.1", "node1"].map(|name| options(&authority.issue(name)));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let admit = free.to_string();
    // The push waits for a host that does not connect.
    let waits = ["--to", "nobody", "--launcher", "sh -c 'sleep 5' {host}", "--admit", &admit];
    let push = words(&[&["push", "object"], &waits[..]].concat(), &root);
    let push = place.rdmc(&push).spawn().unwrap();
    await_that("the root listens", || TcpStream::connect(free).is_ok());
    let join = |name: &str| {
        fs::create_dir(place.path(name)).unwrap();
        let join = ["receive", "--join", &admit, "--dir", name, "--name", name];
        place.run(&words(&join, &node))
    };
    join("other").has_failed_with(1, "its certificate is for node1, not for other");
    assert_eq!(join("node1").code, Some(0));
    Outcome::of(push.wait_with_output().unwrap()).has_failed_with(3, "nobody");
}

#[test]
fn refused_roots_get_the_reason() {
    let (place, authority) = (Place::with(1000), Authority::new("one"));
    let mut one = listener(&place, "one", &authority.issue("127.0.0.1"));
    let push = |host: &str, port: u16, root: &Issued| {
        let host = format!("{host}:{port}");
        place.run(&words(&["push", "object", "--to", &host], &options(root)))
    };
    let (login, other) = (authority.issue("login1"), authority.issue("login2"));
    push("127.0.0.1", one.port, &other).has_failed_with(1, "it may allow only other names");
    let said = one.next_line();
    assert!(said.contains("rejected: ") && said.contains("allowed here: login1"), "{said}");
    push("localhost", one.port, &login).has_failed_with(1, "its certificate is not for localhost");
    let other = Authority::new("two");
    push("127.0.0.1", one.port, &other.issue("login1"))
        .has_failed_with(1, "no authority that is trusted here");

    place.write_private("secret", &place.run_words("secret").out);
    let host = format!("127.0.0.1:{}", one.port);
    let outcome = place.run(&["push", "object", "--to", &host, "--secret-file", "secret"]);
    outcome.has_failed_with(1, "one end has a secret and the other certificates");
    assert_eq!(fs::read_dir(place.path("one")).unwrap().count(), 0);
    assert_eq!(push("127.0.0.1", one.port, &login).code, Some(0));
}

#[test]
fn wrong_options_and_files_are_named() {
    let (place, authority) = (Place::with(10), Authority::new("one"));
    let files = authority.issue("login1");
    let all = options(&files);
    let push = ["push", "object", "--to", "localhost:7000"];
    for (more, words) in [
        (&all[..2], "--key <FILE>"),
        (&all[..4], "--ca <FILE>"),
        (&[&all[..], &["--secret-file".into(), "secret".into()]].concat(), "cannot be used with"),
        (&["--allow".into(), "login1".into()], "--allow"),
    ] {
        place.run(&self::words(&push, more)).has_failed_with(2, words);
    }
    let listen = ["receive", "--listen", "127.0.0.1:0", "--dir", ".", "--allow", "a"];
    place.run(&words(&listen, &[])).has_failed_with(2, "--cert <FILE>");
    let swapped = Issued { key: files.authorities.clone(), ..files.clone() };
    fs::set_permissions(&files.authorities, Permissions::from_mode(0o600)).unwrap();
    place.run(&words(&push, &options(&swapped))).has_failed_with(1, "no private key in it");
}

/// With the rule's two exceptions: what group may read if the owner is root (secrets of Kubernetes and systemd), and what has
/// no name by which others could open it.
#[test]
fn secrets_and_keys_that_others_can_use_are_refused() {
    let (place, authority) = (Place::with(10), Authority::new("one"));
    let files = authority.issue("login1");
    let all = options(&files);
    place.write_private("secret", &place.run_words("secret").out);
    let secret = ["--secret-file".to_owned(), "secret".to_owned()];
    let key = files.key.to_str().unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let modes = [
        (0o644, true),
        (0o604, true),
        (0o602, true),
        (0o620, true),
        (0o460, true),
        (0o640, !is_root),
        (0o440, !is_root),
        (0o600, false),
        (0o400, false),
        (0o711, false),
    ];
    // Nothing listens there: files are checked before connecting.
    let push = ["push", "object", "--to", "127.0.0.1:1"];
    let listen = ["receive", "--listen", "192.0.2.1:1", "--dir", "."];
    for (file, more) in [(key, &all[..]), ("secret", &secret)] {
        for (mode, refused) in modes {
            fs::set_permissions(place.path(file), Permissions::from_mode(mode)).unwrap();
            for command in [&push[..], &listen] {
                let outcome = place.run(&words(command, more));
                let remedy = format!("chmod 600 {file}");
                assert_eq!(outcome.err.contains(&remedy), refused, "{mode:o}: {outcome:?}");
                assert_eq!(outcome.code, Some(if refused { 2 } else { 1 }), "{outcome:?}");
            }
        }
        if is_root {
            fs::set_permissions(place.path(file), Permissions::from_mode(0o600)).unwrap();
            chown(place.path(file), Some(65534), None).unwrap();
            place.run(&words(&push, more)).has_failed_with(2, "belongs to another user");
            chown(place.path(file), Some(0), None).unwrap();
        }
    }
}

/// A user who is listed in a file's access list shows in the permissions of group, which may read root's files.
#[test]
fn secrets_whose_access_lists_name_others_are_refused() {
    let place = Place::with(10);
    place.write_private("secret", &place.run_words("secret").out);
    let own = rustix::process::geteuid();
    // The kinds USER_OBJ, USER, GROUP_OBJ, MASK and OTHER of acl(5).
    let list = |user: u32| {
        let none = u32::MAX;
        let entries = [(1, 6, none), (2, 4, user), (4, 0, none), (16, 4, none), (32, 0, none)];
        let bytes = |(kind, allowed, number): (u16, u16, u32)| {
            [&kind.to_le_bytes()[..], &allowed.to_le_bytes(), &number.to_le_bytes()].concat()
        };
        [&2_u32.to_le_bytes()[..], &entries.map(bytes).concat()].concat()
    };
    let push = ["push", "object", "--to", "127.0.0.1:1", "--secret-file", "secret"];
    for (user, refused) in [(65534, true), (own.as_raw(), !own.is_root())] {
        let (path, name) = (place.path("secret"), "system.posix_acl_access");
        if setxattr(&path, name, &list(user), XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
            return println!("SKIPPED: no access lists in {}", path.display());
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let outcome = place.run(&push);
        assert_eq!(outcome.code, Some(if refused { 2 } else { 1 }), "{user}: {outcome:?}");
        assert_eq!(outcome.err.contains("chmod 600 secret"), refused, "{user}: {outcome:?}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        place.run(&push).has_failed_with(1, "127.0.0.1:1");
    }
}

#[test]
fn secrets_come_through_pipes_and_files_without_names() {
    let place = Place::with(10);
    let secret = place.run_words("secret").out;
    fs::write(place.path("nameless"), &secret).unwrap();
    fs::set_permissions(place.path("nameless"), Permissions::from_mode(0o666)).unwrap();
    let nameless = fs::File::open(place.path("nameless")).unwrap();
    fs::remove_file(place.path("nameless")).unwrap();
    let shells = [
        "echo \"$SECRET\" | \"$0\" push object --to 127.0.0.1:1 --secret-file /dev/stdin",
        "\"$0\" push object --to 127.0.0.1:1 --secret-file <(echo \"$SECRET\")",
        "\"$0\" push object --to 127.0.0.1:1 --secret-file /dev/stdin",
    ];
    for shell in shells {
        let mut command = Command::new("bash");
        command.args(["-c", shell, RDMC]).current_dir(place.path(".")).env("SECRET", secret.trim());
        command.env("RDMC_CONFIG", "/dev/null").stdin(nameless.try_clone().unwrap());
        let outcome = Outcome::of(command.output().unwrap());
        // Nothing listens there: the secret was read.
        outcome.has_failed_with(1, "127.0.0.1:1");
        assert!(!outcome.err.contains("--secret-file"), "{outcome:?}");
        assert!(!outcome.err.contains("hexadecimal"), "{outcome:?}");
    }
    // Only root gives files away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::fchown(&nameless, Some(65534), None).unwrap();
        let push = ["push", "object", "--to", "127.0.0.1:1", "--secret-file", "/dev/stdin"];
        let outcome = Outcome::of(place.rdmc(&push).stdin(nameless).output().unwrap());
        outcome.has_failed_with(2, "belongs to another user");
    }
}
