//! `rdmc push -`, `--follow`, and `rdmc receive --stdout`.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
};

use testing::Authority;

use crate::{
    certificates::{options, words},
    common::{Listener, Outcome, Place, RDMC, await_that, children, is_running, signal},
};

fn with_secret() -> Place {
    let place = Place::with(3_000_000);
    let secret = place.run(&["secret"]).out;
    fs::write(place.path("secret"), secret).unwrap();
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    place
}

/// Starts a push whose standard input is open.
fn start(place: &Place, words: &str) -> Child {
    let words: Vec<&str> = words.split_whitespace().collect();
    place.rdmc(&words).stdin(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().unwrap())
}

#[test]
fn standard_input_becomes_files_on_all_hosts() {
    let place = Place::with(3_000_000);
    let mut push = start(&place, "push - --local 3 --dest copies/{host}");
    fs::create_dir(place.path("copies")).unwrap();
    push.stdin.take().unwrap().write_all(&place.contents).unwrap();
    let outcome = ended(push);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(outcome.out.starts_with("2.86 MiB in a stream to 3 hosts in "), "{outcome:?}");
    assert!((1..=3).all(|host| place.is_copy(&format!("copies/local-{host}"))));
    assert!(place.temporaries().is_empty());
    let mut push = start(&place, "push - --local 1 --json");
    drop(push.stdin.take());
    let outcome = ended(push);
    assert_eq!(outcome.json()["hosts"][0]["state"], "published", "{outcome:?}");
    assert_eq!(outcome.json()["digest"], blake3::hash(b"").to_string());
    assert_eq!(fs::read(place.path("rdmc-local/local-1/stream")).unwrap(), b"");
}

#[test]
fn a_stream_goes_from_program_to_program() {
    let place = with_secret();
    fs::create_dir(place.path("unpacked")).unwrap();
    let mut to_tar = Listener::with_output(&place, &["--secret-file", "secret"]);
    let to_file = Listener::start(&place, "incoming", &["--secret-file", "secret", "--once"]);
    let tar = Command::new("tar")
        .args(["x", "-C"])
        .arg(place.path("unpacked"))
        .stdin(to_tar.child.stdout.take().unwrap())
        .spawn()
        .unwrap();
    let mut packed = Command::new("tar")
        .args(["c", "object"])
        .current_dir(place.directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", to_tar.port, to_file.port);
    let push = place
        .rdmc(&["push", "-", "--to", &hosts, "--secret-file", "secret", "--dest", "tree.tar"])
        .stdin(packed.stdout.take().unwrap())
        .spawn()
        .unwrap();
    let outcome = ended(push);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(packed.wait().unwrap().success());
    assert!(tar.wait_with_output().unwrap().status.success());
    assert!(to_tar.child.wait().unwrap().success());
    assert!(place.is_copy("unpacked/object"));
    assert!(fs::metadata(place.path("incoming/tree.tar")).unwrap().len() > 3_000_000);
}

#[test]
fn files_are_refused_where_a_stream_is_expected() {
    let place = with_secret();
    let listener = Listener::with_output(&place, &["--secret-file", "secret"]);
    let host = format!("127.0.0.1:{}", listener.port);
    let outcome = place.run(&["push", "object", "--to", &host, "--secret-file", "secret"]);
    outcome.has_failed_with(1, "this receiver takes only a stream");
}

#[test]
fn a_growing_file_is_followed_until_it_is_closed() {
    let place = Place::with(0);
    let mut log = fs::File::create(place.path("log")).unwrap();
    log.write_all(b"one\n").unwrap();
    let push = start(&place, "push log --follow --follow-idle 0 --local 2 --dest copies/{host}");
    fs::create_dir(place.path("copies")).unwrap();
    await_that("what is there has arrived", || {
        place.temporaries().iter().any(|path| fs::metadata(path).is_ok_and(|file| file.len() == 4))
    });
    log.write_all(b"two\n").unwrap();
    drop(log);
    let outcome = ended(push);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(place.path("copies/local-2")).unwrap(), b"one\ntwo\n");
}

#[test]
fn a_file_that_is_truncated_while_it_is_followed_is_no_success() {
    let place = Place::with(10);
    let log = fs::OpenOptions::new().write(true).open(place.path("object")).unwrap();
    let push = start(&place, "push object --follow --local 1 --dest copies/log");
    fs::create_dir(place.path("copies")).unwrap();
    await_that("what is there has arrived", || {
        place.temporaries().iter().any(|path| fs::metadata(path).is_ok_and(|file| file.len() == 10))
    });
    log.set_len(4).unwrap();
    drop(log);
    ended(push).has_failed_with(1, "object was truncated to 4 bytes after 10 were sent");
    assert!(!place.path("copies/log").exists());
}

#[test]
fn an_interrupted_stream_leaves_nothing_and_says_how_much_is_everywhere() {
    let place = Place::with(200_000);
    let mut push = start(&place, "push - --local 2 --dest copies/{host}");
    fs::create_dir(place.path("copies")).unwrap();
    let mut input = push.stdin.take().unwrap();
    input.write_all(&place.contents).unwrap();
    await_that("it has arrived", || {
        let files = place.temporaries();
        let has_all =
            |path: &std::path::PathBuf| fs::metadata(path).is_ok_and(|file| file.len() == 200_000);
        files.iter().filter(|path| has_all(path)).count() == 2
    });
    signal(push.id(), "INT");
    let outcome = ended(push);
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(outcome.err.contains("interrupted"), "{outcome:?}");
    await_that("receivers have ended", || place.temporaries().is_empty());
    assert!(!place.path("copies/local-1").exists());
    drop(input);
}

#[test]
fn a_consumer_that_ends_fails_its_host_only() {
    let place = with_secret();
    let mut dying = Listener::with_output(&place, &["--secret-file", "secret"]);
    let to_file = Listener::start(&place, "incoming", &["--secret-file", "secret", "--once"]);
    let mut output = dying.child.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut some = [0; 1000];
        output.read_exact(&mut some).unwrap();
    });
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", dying.port, to_file.port);
    let mut push = place
        .rdmc(&["push", "-", "--to", &hosts, "--secret-file", "secret", "--dest", "copy"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = push.stdin.take().unwrap();
    input.write_all(&place.contents[..2_000_000]).unwrap();
    reading.join().unwrap();
    input.write_all(&place.contents[2_000_000..]).unwrap();
    drop(input);
    let outcome = ended(push);
    outcome.has_failed_with(3, "cannot write the stream out: Broken pipe");
    assert!(outcome.out.contains("to 1 of 2 hosts"), "{outcome:?}");
    assert!(place.is_copy("incoming/copy"));
}

#[test]
fn what_has_no_meaning_for_a_stream_is_refused() {
    let place = Place::with(1);
    for (words, reason) in [
        ("push - object --local 1", "several sources cannot be used with a stream"),
        ("push - --local 1 --dry-run", "--dry-run cannot be used with a stream"),
        ("push - --local 1 --retry 1", "--retry cannot be used with a stream"),
        ("push - --hosts-file -", "standard input cannot be both"),
        ("push - --follow --local 1", "--follow takes a file"),
        ("push . --follow --local 1", ". is a directory; --follow takes one file"),
        ("push object --local 1 --pipe-to cat", "--pipe-to takes a stream"),
        (
            "push - --to 127.0.0.1:1 --pipe-to cat",
            "127.0.0.1:1 listens, and receivers that listen run no",
        ),
        ("push - --local 1 --dest x --pipe-to cat", "cannot be used with"),
        ("push object --follow-idle 3 --local 1", "--follow"),
        ("push - --to a", "name the file for the stream with --dest"),
        ("push - --local 1 --dest into/", "names a directory"),
    ] {
        place.run_words(words).has_failed_with(2, reason);
    }
    place.run_words("push missing --follow --local 1").has_failed_with(1, "missing");
}

/// The reason in text of a stream that no host has taken, which JSON has as well.
fn has_reason(place: &Place, words: &[&str], reason: &str) {
    let outcome = place.run(words);
    outcome.has_failed_with(1, reason);
    assert!(outcome.err.contains("no host is left"), "{outcome:?}");
    let json = place.run(&[words, &["--json"]].concat()).json();
    let said = json["hosts"][0]["error"].as_str().unwrap();
    assert!(said.contains(reason), "{json}");
    // Names of temporary directories and numbers of processes aside, the same words.
    let own: Vec<&str> = outcome.err.lines().filter(|line| line.contains(reason)).collect();
    assert!(matches!(own[..], [line] if line.starts_with("rdmc: ")), "{own:?}");
}

#[test]
fn a_stream_that_no_host_takes_says_why() {
    let (place, authority) = (with_secret(), Authority::new("one"));
    fs::write(place.path("other"), place.run(&["secret"]).out).unwrap();
    fs::set_permissions(place.path("other"), fs::Permissions::from_mode(0o600)).unwrap();
    let listener = Listener::start(&place, "incoming", &["--secret-file", "secret"]);
    let host = format!("127.0.0.1:{}", listener.port);
    let push = ["push", "-", "--to", &host, "--timeout", "2"];
    let with = |more: &[&'static str]| [&push[..], more].concat();
    has_reason(&place, &with(&["--secret-file", "other"]), "does not have this session's secret");
    has_reason(&place, &with(&["--secret-file", "secret", "--dest", "../x"]), "without \"..\"");
    has_reason(
        &place,
        &with(&["--secret-file", "secret", "--dest", "missing/x"]),
        "create it first",
    );
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let to_nobody = ["push", "-", "--to", &nobody.to_string(), "--timeout", "2"];
    has_reason(&place, &[&to_nobody[..], &["--secret-file", "secret"]].concat(), "refused");
    has_reason(&place, &["push", "-", "--local", "1", "--dest", "missing/x"], "create it first");

    let receiver = options(&authority.issue("127.0.0.1"));
    let listener = Listener::start(&place, "certified", &words(&["--allow", "login1"], &receiver));
    let host = format!("127.0.0.1:{}", listener.port);
    let root = options(&authority.issue("login2"));
    has_reason(
        &place,
        &words(&["push", "-", "--to", &host], &root),
        "it may allow only other names",
    );
}

#[test]
fn a_full_disk_is_named_and_how_much_is_good() {
    let place = Place::with(5_000_000);
    let full = place.path("full");
    fs::create_dir(&full).unwrap();
    let mount = format!("mount -t tmpfs -o size=1m none {}", full.display());
    let can = Command::new("unshare").args(["-m", "sh", "-c", &mount]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: a full disk needs the right to mount one (root, or CAP_SYS_ADMIN)");
        return;
    }
    let launcher = format!(
        "sh -c 'exec unshare -m sh -c \"{mount} && exec \\\"\\$@\\\"\" sh \"$@\"' {{host}}"
    );
    let dest = full.join("copy");
    let push = |input: fs::File, more: &[&str]| {
        let words = ["push", "-", "--to", "a", "--dest", dest.to_str().unwrap()];
        let mut command = place.rdmc(&[&words[..], more].concat());
        command.args(["--launcher", &launcher, "--remote-rdmc", RDMC, "--advertise", "127.0.0.1"]);
        ended(command.stdin(input).spawn().unwrap())
    };
    let input = || fs::File::open(place.path("object")).unwrap();
    let outcome = push(input(), &[]);
    outcome.has_failed_with(1, &format!("a: no space in {} (ENOSPC); free some", dest.display()));
    assert!(outcome.err.contains("bytes of the stream are verified there"), "{outcome:?}");
    let json = push(input(), &["--json"]).json();
    let error = json["hosts"][0]["error"].as_str().unwrap();
    assert!(error.contains("(ENOSPC); free some, or choose another --dest"), "{json}");
}

#[test]
fn a_stream_that_cannot_be_published_leaves_nothing() {
    let place = Place::with(1_000_000);
    let to = place.path("to");
    let push = |place: &Place| {
        let push = ["push", "-", "--local", "1", "--dest", "to/copy"];
        place.rdmc(&push).stdin(Stdio::piped()).spawn().unwrap()
    };
    for is_moved in [false, true] {
        fs::create_dir(&to).unwrap();
        let mut push = push(&place);
        let mut input = push.stdin.take().unwrap();
        input.write_all(b"beginning").unwrap();
        await_that("it is written", || place.temporaries().len() == 2);
        let reason = match is_moved {
            // Something that cannot be replaced gets the name.
            false => {
                fs::create_dir(to.join("copy")).unwrap();
                "copy is a directory and will not be replaced"
            }
            true => {
                fs::rename(&to, place.path("moved")).unwrap();
                fs::create_dir(&to).unwrap();
                "to was replaced or moved away during the push"
            }
        };
        drop(input);
        ended(push).has_failed_with(1, reason);
        assert!(place.temporaries().is_empty());
        fs::remove_dir_all(&to).unwrap();
    }
}

/// Starts to push a stream, of which the listener has written out 7 bytes. It goes on as long as its input is held.
fn push_seven_bytes(place: &Place, listener: &mut Listener) -> (Child, ChildStdin) {
    let host = format!("127.0.0.1:{}", listener.port);
    let push = ["push", "-", "--to", &host, "--secret-file", "secret"];
    let mut push = place.rdmc(&push).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = push.stdin.take().unwrap();
    input.write_all(b"seven\n\n").unwrap();
    let mut taken = [0; 7];
    listener.child.stdout.take().unwrap().read_exact(&mut taken).unwrap();
    (push, input)
}

#[test]
fn hosts_that_share_a_file_system_share_the_copy() {
    let place = Place::with(100_000);
    let dest = place.path("shared");
    let push = |more: &[&str]| {
        let words = ["push", "--to", "h1,h2", "--launcher", "env H={host}", "--remote-rdmc", RDMC];
        let dest = ["--advertise", "127.0.0.1", "--dest", dest.to_str().unwrap()];
        let input = fs::File::open(place.path("object")).unwrap();
        let mut push = place.rdmc(&[&words[..], &dest, more].concat());
        ended(push.stdin(input).spawn().unwrap())
    };
    let dry_run = push(&["object", "--dry-run"]);
    assert_eq!(dry_run.code, Some(0), "{dry_run:?}");
    assert!(!dest.exists());
    let outcome = push(&["-"]);
    assert!(outcome.code == Some(0) && outcome.out.contains("to 2 hosts"), "{outcome:?}");
    assert!(outcome.err.contains(": both use the same file system"), "{outcome:?}");
    assert!(place.is_copy("shared"));
}

#[test]
fn an_early_end_says_how_much_is_good_at_all_hosts() {
    for end in ["INT", "KILL"] {
        let place = with_secret();
        let mut listener = Listener::with_output(&place, &["--secret-file", "secret"]);
        let (push, input) = push_seven_bytes(&place, &mut listener);
        signal(push.id(), end);
        let said = listener.next_line();
        assert!(said.contains("the first 7 bytes of the stream were verified"), "{said}");
        let outcome = ended(push);
        if end == "INT" {
            outcome.has_failed_with(130, "are verified at all remaining hosts");
        }
        drop(input);
    }
}

#[test]
fn a_receiver_that_is_interrupted_says_how_much_is_good() {
    let place = with_secret();
    let mut listener = Listener::with_output(&place, &["--secret-file", "secret"]);
    let (push, input) = push_seven_bytes(&place, &mut listener);
    signal(listener.child.id(), "INT");
    let said = listener.next_line();
    assert!(said.contains("7 bytes of the stream were verified and written out"), "{said}");
    assert_eq!(listener.child.wait().unwrap().code(), Some(130));
    drop(input);
    ended(push).has_failed_with(1, "interrupted (7 bytes of the stream are verified there)");
}

#[test]
fn a_receiver_that_listens_takes_no_longer_streams_than_files() {
    let place = with_secret();
    let more = ["--secret-file", "secret", "--max-size", "1MiB"];
    let listener = Listener::start(&place, "incoming", &more);
    let host = format!("127.0.0.1:{}", listener.port);
    let push = ["push", "-", "--to", &host, "--secret-file", "secret", "--dest", "copy"];
    let input = fs::File::open(place.path("object")).unwrap();
    let outcome = ended(place.rdmc(&push).stdin(input).spawn().unwrap());
    outcome.has_failed_with(1, "the stream is longer than 1 MiB");
    assert_eq!(fs::read_dir(place.path("incoming")).unwrap().count(), 0);
}

#[test]
fn copies_of_private_files_are_private() {
    let place = Place::with(10);
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
    fs::create_dir(place.path("copies")).unwrap();
    let with_umask = |umask: &str, words: &str| {
        let command = format!("umask {umask}; exec {RDMC} push {words} < /dev/null");
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(place.directory.path());
        let outcome = Outcome::of(shell.env("RDMC_CONFIG", "/dev/null").output().unwrap());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    };
    with_umask("077", "- --local 1 --dest copies/private");
    with_umask("022", "- --local 1 --dest copies/public");
    assert_eq!((mode("copies/private"), mode("copies/public")), (0o600, 0o644));

    fs::set_permissions(place.path("object"), fs::Permissions::from_mode(0o600)).unwrap();
    let log = fs::OpenOptions::new().append(true).open(place.path("object")).unwrap();
    let push = start(&place, "push object --follow --follow-idle 0 --local 1 --dest copies/log");
    await_that("what is there has arrived", || {
        place.temporaries().iter().any(|path| fs::metadata(path).is_ok_and(|file| file.len() == 10))
    });
    drop(log);
    assert_eq!(ended(push).code, Some(0));
    assert_eq!(mode("copies/log"), 0o600);
}

/// Pushes the object as a stream to two commands on this machine.
fn piped(place: &Place, command: &str, more: &[&str]) -> Outcome {
    let push = [&["push", "-", "--local", "2", "--pipe-to", command][..], more].concat();
    let input = fs::File::open(place.path("object")).unwrap();
    ended(place.rdmc(&push).stdin(input).spawn().unwrap())
}

#[test]
fn a_stream_is_unpacked_by_a_command_on_each_host() {
    let place = Place::with(1_000_000);
    let mut tar = Command::new("tar");
    tar.args(["cf", "packed", "object"]).current_dir(place.directory.path());
    assert!(tar.status().unwrap().success());
    fs::rename(place.path("packed"), place.path("object")).unwrap();
    let outcome = piped(&place, "mkdir $RDMC_HOST && tar x -C $RDMC_HOST", &[]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(place.is_copy("local-1/object") && place.is_copy("local-2/object"));
    assert!(!place.path("rdmc-local").exists());
}

#[test]
fn the_last_line_of_a_command_is_the_result_of_its_host() {
    let place = Place::with(3_000_000);
    let docker = "#!/bin/sh\n[ \"$1\" = load ] && echo reading && cat > image-$RDMC_HOST && echo \"Loaded image: app:2\"\n";
    fs::write(place.path("docker"), docker).unwrap();
    fs::set_permissions(place.path("docker"), fs::Permissions::from_mode(0o755)).unwrap();
    let command = "PATH=.:$PATH; docker load";
    let outcome = piped(&place, command, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("local-2: Loaded image: app:2\n"), "{outcome:?}");
    assert!(place.is_copy("image-local-1") && place.is_copy("image-local-2"));
    let json = piped(&place, command, &["--json"]).json();
    assert_eq!(json["hosts"][0]["said"], "Loaded image: app:2", "{json}");

    // It decides how much it needs.
    let outcome = piped(&place, "head -c 5 > first-$RDMC_HOST", &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(place.path("first-local-1")).unwrap(), place.contents[..5]);
}

#[test]
fn a_command_that_fails_fails_its_host_only() {
    let place = Place::with(3_000_000);
    // Before the end, and after it.
    for before in ["", "cat > all;"] {
        let command = format!(
            "case $RDMC_HOST in local-1) {before} echo >&2; echo no room >&2; exit 7;; esac; cat > copy"
        );
        let outcome = piped(&place, &command, &[]);
        outcome.has_failed_with(3, "local-1: the command has failed (exit status 7): no room");
        assert!(outcome.out.contains("to 1 of 2 hosts") && place.is_copy("copy"), "{outcome:?}");
        fs::remove_file(place.path("copy")).unwrap();
    }
    let outcome = piped(&place, "kill -SEGV $$", &[]);
    outcome.has_failed_with(1, "local-2: the command has failed (signal 11)");
}

#[test]
fn a_command_is_killed_when_its_stream_ends_early() {
    enum Dies {
        Root(&'static str),
        Receiver,
    }
    for dies in [Dies::Root("INT"), Dies::Root("KILL"), Dies::Receiver] {
        let place = Place::with(0);
        // With a child of its own, and not before what it was given is there.
        let command = "sleep 1000 & echo $! > pid; head -c 4 > first; cat > rest; touch finished";
        let push = ["push", "-", "--local", "1", "--pipe-to", command];
        let mut push = place.rdmc(&push).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = push.stdin.take().unwrap();
        input.write_all(b"fourmore").unwrap();
        let rest = || fs::read(place.path("rest")).is_ok_and(|rest| rest == b"more");
        await_that("the command has read", rest);
        let child = fs::read_to_string(place.path("pid")).unwrap().trim().parse().unwrap();
        match dies {
            Dies::Root(signalled) => signal(push.id(), signalled),
            Dies::Receiver => signal(children(push.id())[0], "KILL"),
        }
        let outcome = ended(push);
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        await_that("what the command has started has ended", || !is_running(child));
        assert!(!place.path("finished").exists(), "it took a part for the whole");
        drop(input);
    }
}

/// Threads of a root of which this many receivers have the first bytes of a stream that goes on.
fn threads_of_root(hosts: usize) -> usize {
    let place = Place::with(1);
    let mut push = start(&place, &format!("push - --local {hosts} --dest copies/{{host}}"));
    fs::create_dir(place.path("copies")).unwrap();
    let mut input = push.stdin.take().unwrap();
    input.write_all(&place.contents).unwrap();
    let has_bytes = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 0);
    await_that("all have bytes", || {
        place.temporaries().into_iter().filter(has_bytes).count() == hosts
    });
    let tasks = fs::read_dir(format!("/proc/{}/task", push.id())).unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    // These end when connections are there.
    let passing = ["rdmc-handshake", "rdmc-connect", "rdmc-join"];
    let threads = names.filter(|name| !passing.contains(&name.trim())).count();
    drop(input);
    assert_eq!(ended(push).code, Some(0));
    threads
}

#[test]
fn a_host_takes_two_threads_of_the_root() {
    assert_eq!(threads_of_root(6) - threads_of_root(2), 2 * 4);
}
