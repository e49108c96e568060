//! `rdmc push` as it is run, when things go well or are refused at the start.

use std::{fs, io::Write, os::unix::fs::PermissionsExt, process::Stdio, time::Duration};

use crate::common::{Outcome, Place, RDMC, await_that};

#[test]
fn three_receivers_have_copies_with_mode_and_time() {
    let place = Place::with(3_000_000);
    let object = place.path("object");
    fs::set_permissions(&object, fs::Permissions::from_mode(0o750)).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(&object).unwrap().set_modified(time).unwrap();
    let outcome = place.run_words("push object --local 3");
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert_eq!(outcome.out.lines().count(), 1, "{outcome:?}");
    assert!(outcome.out.starts_with("2.86 MiB to 3 hosts in "), "{outcome:?}");
    for host in 1..=3 {
        let copy = format!("rdmc-local/local-{host}/object");
        assert!(place.is_copy(&copy));
        let metadata = fs::metadata(place.path(&copy)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o750);
        assert_eq!(metadata.modified().unwrap(), time);
    }
    assert!(place.temporaries().is_empty());
    // The same push again, and once more after one copy was removed.
    let again = place.run_words("push object --local 3");
    assert!(again.out.starts_with("2.86 MiB existed already at 3 hosts; verified"), "{again:?}");
    fs::remove_file(place.path("rdmc-local/local-2/object")).unwrap();
    let again = place.run_words("push object --local 3");
    assert!(again.out.contains(", local-1, local-3 had it already; verified"), "{again:?}");
    assert!(place.is_copy("rdmc-local/local-2/object"));
}

#[test]
fn every_size_and_algorithm_arrives() {
    for bytes in [0, 1, 1000, 1001, 54_321] {
        let place = Place::with(bytes);
        let outcome = place.run_words("push object --local 3 --block-size 1000 --json");
        assert_eq!(outcome.code, Some(0), "{bytes} bytes: {outcome:?}");
        assert_eq!(outcome.json()["bytes"], bytes);
        assert!((1..=3).all(|host| place.is_copy(&format!("rdmc-local/local-{host}/object"))));
    }
    let place = Place::with(200_000);
    for (algorithm, more) in [
        ("sequential", ""),
        ("chain", "--window 1"),
        ("binomial-tree", "--streams 2"),
        ("circulant", "--block-size 16MiB"),
        ("chain", "--protect encrypt"),
        ("circulant", "--protect encrypt --streams 2"),
        ("chain-of-racks", "--racks 2,3"),
        ("nested-pipelines", "--racks 1,2,2"),
        ("racks-chain", "--racks 2,3"),
        ("racks-pipeline", "--racks 2,1,2"),
    ] {
        let outcome =
            place.run_words(&format!("push object --local 4 --algorithm {algorithm} {more} -q"));
        assert_eq!(outcome.code, Some(0), "{algorithm}: {outcome:?}");
        assert!(outcome.out.is_empty() && outcome.err.is_empty(), "{outcome:?}");
        assert!(place.is_copy("rdmc-local/local-4/object"), "{algorithm}");
        fs::remove_dir_all(place.path("rdmc-local")).unwrap();
    }
}

#[test]
fn a_printed_rate_is_an_argument() {
    let place = Place::with(300_000);
    let outcome = place.run_words("push object --local 2");
    let (_, rest) = outcome.out.split_once('(').expect("a rate");
    let (rate, _) = rest.split_once(" each)").expect("a rate");
    assert!(plan::size::parse_rate(rate).is_ok(), "{rate}");
    let words = ["push", "object", "--local", "2", "--dest", "{host}.copy", "--rate", rate];
    let again = place.run(&words);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(place.is_copy("local-1.copy"));
}

#[test]
fn the_summary_is_one_object() {
    let place = Place::with(100_000);
    let outcome = place.run_words("push object --local 2 --json --block-size 4096");
    let summary = outcome.json();
    assert_eq!(summary["file"], "object");
    // The chosen algorithm, not `auto`.
    let algorithm = summary["algorithm"].as_str().unwrap();
    assert!(["binomial-pipeline", "chain"].contains(&algorithm), "{summary}");
    assert_eq!(summary["block_bytes"], 4096);
    assert_eq!(summary["members"], 3);
    for number in ["seconds", "bandwidth_bytes_per_second", "total_seconds", "peak_resident_bytes"]
    {
        assert!(summary[number].as_f64().unwrap() > 0.0, "{number}: {summary}");
    }
    let hosts = summary["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2);
    assert_eq!((&hosts[0]["host"], &hosts[0]["state"]), (&"local-1".into(), &"published".into()));
    assert!(hosts[1]["seconds"].as_f64().unwrap() <= summary["seconds"].as_f64().unwrap());
    assert!(hosts[1]["error"].is_null());
}

#[test]
fn one_host_that_cannot_write_does_not_stop_the_others() {
    let place = Place::with(100_000);
    // Existing copies are replaced; one host has no directory, another a directory in the way.
    for directory in ["d/local-1", "d/local-2", "d/local-4/object"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    fs::write(place.path("d/local-1/object"), "old").unwrap();
    let outcome = place.run_words("push object --local 4 --dest ./d/{host}/ --json");
    outcome.has_failed_with(3, "local-3: the directory");
    assert!(outcome.err.contains("does not exist; create it first"), "{outcome:?}");
    assert!(outcome.err.contains("local-4/object is a directory"), "{outcome:?}");
    assert!(place.is_copy("d/local-1/object") && place.is_copy("d/local-2/object"));
    let summary = outcome.json();
    assert_eq!(summary["members"], 3);
    assert_eq!(summary["hosts"][2]["state"], "failed");
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_directory_without_permission_is_named() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may write everywhere; run this test as another user");
        return;
    }
    let place = Place::with(10);
    fs::create_dir(place.path("closed")).unwrap();
    fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    let outcome = place.run_words("push object --local 1 --dest closed/copy");
    outcome.has_failed_with(1, "local-1: no permission to write in");
}

#[test]
fn a_full_disk_is_noticed_before_anything_is_sent() {
    let place = Place::with(100_000);
    for host in ["a", "b"] {
        fs::create_dir(place.path(host)).unwrap();
    }
    // A limit on file sizes refuses the reservation as a full disk would, without needing one. Its signal needs no handler.
    let launcher = "sh -c 'case $0 in b) ulimit -f 10;; esac; exec \"$@\"' {host}";
    let dest = place.path("{host}/copy");
    let outcome = place.run(&[
        "push",
        "object",
        "--to",
        "a,b",
        "--launcher",
        launcher,
        "--remote-rdmc",
        RDMC,
        "--advertise",
        "127.0.0.1",
        "--dest",
        dest.to_str().unwrap(),
    ]);
    outcome.has_failed_with(3, "b: no file can be long enough for 100000 bytes in");
    assert!(outcome.err.contains("(ulimit -f) has a limit (EFBIG)"), "{outcome:?}");
    assert!(place.is_copy("a/copy") && !place.path("b/copy").exists());
    assert!(place.temporaries().is_empty());
}

/// Where it runs out of descriptors depends on the limit: it cannot start, publish, connect to a relay, or accept one.
#[test]
fn a_host_that_runs_out_of_file_descriptors_takes_no_copy_from_others() {
    for limit in 16..=20 {
        let place = Place::with(100_000);
        let launcher =
            format!("sh -c 'case $0 in b) ulimit -n {limit};; esac; exec \"$@\"' {{host}}");
        let dest = place.path("copy-{host}");
        let how = ["--launcher", &launcher, "--remote-rdmc", RDMC, "--advertise", "127.0.0.1"];
        let what = ["push", "object", "--to", "a,b,c,d", "--timeout", "8"];
        let outcome = place.run(&[&what, &how[..], &["--dest", dest.to_str().unwrap()]].concat());
        assert!(matches!(outcome.code, Some(0 | 3)), "{limit}: {outcome:?}");
        for host in ["a", "c", "d"] {
            assert!(place.is_copy(&format!("copy-{host}")), "{limit}: {outcome:?}");
        }
        // Either it has its copy or it says what it lacks.
        let is_named = outcome.err.lines().any(|line| line.contains("b: "));
        assert_eq!(outcome.code == Some(0), !is_named, "{limit}: {outcome:?}");
        assert_eq!(outcome.code == Some(0), place.is_copy("copy-b"), "{limit}: {outcome:?}");
    }
}

#[test]
fn sources_that_cannot_be_sent_are_named() {
    let place = Place::with(10);
    place.run_words("push missing --local 1").has_failed_with(1, "missing does not exist");
    place.run_words("push /dev/null --local 1").has_failed_with(1, "not a regular file");
    place.run_words("push /proc/cpuinfo --local 1").has_failed_with(1, "generated when it is read");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let place = Place::with(10);
    for (arguments, words) in [
        ("push object", "--local"),
        ("push object --local 0", "--local"),
        ("push object --local 2 --to a", "cannot be used with"),
        ("push object --local 2 --dest copy", "put {host} into --dest"),
        ("push object --local 1 --dest=", "--dest"),
        ("push object --local 1 --block-size 0", "1 byte to 2 GiB"),
        ("push object --local 1 --block-size 1parsec", "unknown unit"),
        ("push object --local 1 --window 0", "--window"),
        ("push object --local 1 --streams 9", "--streams"),
        ("push object --local 1 --protect well", "encrypt"),
        ("push object --local 1 --algorithm fast", "binomial-pipeline"),
        ("push object --local 3 --algorithm chain-of-racks", "--racks 2,2"),
        ("push object --local 3 --algorithm in-switch", "needs the agent of a switch that copies"),
        ("push object --local 3 --racks 2,3", "has 5 members"),
        ("push object --to a,b,a", "host a is named twice"),
        ("push object --to n[1-3],n2", "host n2 is named twice"),
        ("push object --to n[1-999999999]", "more than 10000 hosts"),
        ("push object --to -oProxyCommand=x", "--to"),
        ("push object --to a --launcher ssh", "has no {host}"),
        ("push object --to a:99999", "no port from 1 to 65535"),
        ("push object --to a --dest=", "--dest"),
        ("push object --local 1 --dest=", "--dest"),
        ("push object --to a --remote-rdmc=", "--remote-rdmc"),
        ("push object --to a --fanout 0", "--fanout"),
        ("push object --local 1 --launcher {host}", "cannot be used with"),
        ("push object --local 1 --remote-rdmc rdmc", "cannot be used with"),
        ("push object --local 1 --advertise 127.0.0.1", "cannot be used with"),
        ("bench --local 1 --launcher {host}", "cannot be used with"),
        ("push object --to a:7000", "--secret-file"),
        ("receive", "--listen IP:PORT, or --join HOST:PORT"),
        ("receive --listen 127.0.0.1:0", "--secret-file"),
    ] {
        place.run_words(arguments).has_failed_with(2, words);
    }
    let outcome = place.run_words("push object --local 1 --fabric shm --protect encrypt");
    outcome.has_failed_with(2, "the fabric shm does not encrypt");
    fs::write(place.path("hosts"), "a # one\nb,a\n").unwrap();
    place
        .run_words("push object --hosts-file hosts")
        .has_failed_with(2, "hosts: line 2: host a is named twice, first in line 1");
}

#[test]
fn errors_of_a_launcher_are_reported_for_its_host() {
    let place = Place::with(10);
    let push = |launcher| place.run(&["push", "object", "--to", "a", "--launcher", launcher]);
    push("no-such-launcher {host}")
        .has_failed_with(1, "a: the launcher \"no-such-launcher\" is not installed here");
    push("sh -c 'echo Permission denied for {host} >&2; exit 255'")
        .has_failed_with(1, "a: its receiver could not be started: Permission denied for a");
    push("sh -c 'echo Host key verification failed. >&2; exit 255' {host}")
        .has_failed_with(1, "log in there once by hand (ssh HOST)");
    push("false {host}").has_failed_with(1, "a: its receiver ended before it connected");
    let silent = [
        "push",
        "object",
        "--to",
        "a",
        "--launcher",
        "sh -c 'exec sleep 100' {host}",
        "--timeout",
        "1",
    ];
    place.run(&silent).has_failed_with(1, "a: did not connect within 1 s");
}

/// A host file of MPI with headings: racks, and this machine among the hosts.
#[test]
fn hosts_come_from_standard_input_in_racks_and_without_this_machine() {
    let place = Place::with(300_000);
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts =
        format!("[left]\n{own} slots=8\na slots=8\n[right] # the other switch\nb slots=8\n");
    let dest = place.path("copy-{host}").display().to_string();
    let push = |more: &[&str]| {
        let how = ["push", "object", "--hosts-file", "-", "--exclude-self", "--json"];
        let to = ["--dest", &dest, "--launcher", "env X={host}", "--remote-rdmc", RDMC];
        let mut push = place.rdmc(&[&how[..], &to[..], more].concat());
        let mut push = push
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        push.stdin.take().unwrap().write_all(hosts.as_bytes()).unwrap();
        Outcome::of(push.wait_with_output().unwrap())
    };
    let pushed = push(&["--algorithm", "chain-of-racks"]);
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    assert!(place.is_copy("copy-a") && place.is_copy("copy-b"), "{pushed:?}");
    assert!(!place.path(&format!("copy-{own}")).exists());
    let summary = pushed.json();
    let names: Vec<_> =
        summary["hosts"].as_array().unwrap().iter().map(|host| &host["host"]).collect();
    assert_eq!(names, ["a", "b"]);
    // Racks of the command line replace those of the file.
    push(&["--racks", "1,1"]).has_failed_with(2, "this machine and the hosts are 3");
    let only = place.run(&["push", "object", "--to", &own, "--exclude-self"]);
    only.has_failed_with(2, "which --exclude-self excludes");
}

/// As older and newer programs answer.
#[test]
fn another_version_at_a_host_is_reported_as_such() {
    let place = Place::with(10);
    let push = |launcher| place.run(&["push", "object", "--to", "a", "--launcher", launcher]);
    let launcher = format!("sh -c '{RDMC} receive --no-such-option' {{host}}");
    let refused = push(&launcher);
    refused.has_failed_with(1, "unexpected argument '--no-such-option'");
    assert!(refused.err.contains("is the same version of rdmc installed there?"), "{refused:?}");
    let receive = place.rdmc(&["receive", "--session"]);
    let script = "echo '{\"version\":99,\"hosts\":[]}' | exec \"$@\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(receive.get_program()).args(receive.get_args());
    let refused = Outcome::of(shell.output().unwrap());
    refused.has_failed_with(1, "uses version 99 of the protocol");
}

#[test]
fn launchers_start_a_few_receivers_at_a_time_and_hold_one_descriptor_each() {
    const HOSTS: usize = 12;
    let place = Place::with(100_000);
    let log = place.path("log").to_str().unwrap().to_owned();
    let dest = place.path("copy-{host}").to_str().unwrap().to_owned();
    let push = |fanout: &str, script: &str| {
        let launcher = format!("sh -c '{script}' {{host}}");
        let how = ["push", "object", "--to", "h[1-12]", "--dest", &dest, "--launcher", &launcher];
        // Long enough that no receiver is started only because another one is slow.
        let pace = ["--fanout", fanout, "--timeout", "600"];
        let home = ["--remote-rdmc", RDMC, "--advertise", "127.0.0.1"];
        place.rdmc(&[&how[..], &pace, &home].concat())
    };
    let has_all = || (1..=HOSTS).all(|host| place.is_copy(&format!("copy-h{host}")));
    let script = format!("echo + >> {log}; sleep 0.1; echo - >> {log}; exec \"$@\"");
    let outcome = Outcome::of(push("3", &script).output().unwrap());
    assert!(outcome.code == Some(0) && has_all(), "{outcome:?}");
    let starting = fs::read_to_string(&log).unwrap();
    let (mut now, mut most) = (0, 0);
    for line in starting.lines() {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert!((1..=3).contains(&most) && starting.lines().count() == 2 * HOSTS, "{starting}");

    fs::remove_file(&log).unwrap();
    let go = place.path("go");
    let script = format!(
        "echo + >> {log}; while ! test -e {}; do sleep 0.05; done; exec \"$@\"",
        go.display()
    );
    let running = push("64", &script).spawn().unwrap();
    await_that("all are started", || {
        fs::read_to_string(&log).is_ok_and(|log| log.lines().count() == HOSTS)
    });
    let files = fs::read_dir(format!("/proc/{}/fd", running.id())).unwrap().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let pipes = links.filter(|link| link.to_string_lossy().starts_with("pipe:")).count();
    // Its own three, what wakes it for signals, and those of the last that was started.
    assert!((HOSTS..=HOSTS + 8).contains(&pipes), "{pipes}");
    fs::write(&go, "").unwrap();
    let outcome = Outcome::of(running.wait_with_output().unwrap());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn names_that_are_not_utf_8_need_dest_and_are_escaped() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::with(1000);
    let strange = std::ffi::OsStr::from_bytes(b"caf\xe9\x1b[31m");
    fs::rename(place.path("object"), place.directory.path().join(strange)).unwrap();
    let push = |more: &[&str]| {
        let mut push = place.rdmc(&["push"]);
        Outcome::of(push.arg(strange).args(more).output().unwrap())
    };
    let sent = push(&["--local", "1", "--dest", "copy", "--json"]);
    assert!(sent.code == Some(0) && place.is_copy("copy"), "{sent:?}");
    assert_eq!(sent.json()["file"], "caf\u{fffd}\u{1b}[31m");
    let unnamed = push(&["--local", "1"]);
    unnamed.has_failed_with(2, "name the copy with --dest");
    // Also errors of the argument parser.
    let option = place.run(&["push", "--no\u{1b}[31m"]);
    option.has_failed_with(2, "unexpected argument");
    let (missing, twice) = (place.run(&["push", "\u{1b}[31m"]), push(&["--local", "\u{1b}[31m"]));
    for outcome in [unnamed, option, missing, twice] {
        assert!(!outcome.err.contains('\u{1b}'), "{outcome:?}");
    }
}

/// On a terminal of 45 columns.
#[test]
fn progress_fits_on_narrow_terminals() {
    let place = Place::with(5_000_000);
    let mut script = std::process::Command::new("script");
    let push = format!(
        "stty rows 24 cols 45; exec {RDMC} push object --local 2 --block-size 1KiB --dest ./{{host}}-copy"
    );
    script.args(["-qec", &push, "/dev/null"]).current_dir(place.directory.path());
    let shown = match script.stdin(std::process::Stdio::null()).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            eprintln!("SKIPPED: a terminal needs `script` of util-linux: {error}");
            return;
        }
    };
    assert!(shown.contains("eta"), "{shown}");
    // Lines are filled up to the terminal's end, so that the next one begins there.
    let bars: Vec<String> = shown.split(['\r', '\n']).map(without_sequences).collect();
    let whole: Vec<&String> = bars.iter().filter(|bars| bars.contains("local-2")).collect();
    assert!(!whole.is_empty(), "{bars:?}");
    for bars in whole.into_iter().filter(|bars| bars.contains("eta")) {
        // The second line names the slowest host.
        let columns = |part| bars[..bars.rfind(part).unwrap()].chars().count();
        assert_eq!([columns("local-1"), columns("local-2")], [90 + 2, 135 + 2], "{bars:?}");
    }
}

/// A text without escape sequences of terminals.
fn without_sequences(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    let is_end = |character: char| character.is_ascii_alphabetic();
    parts.fold(first, |text, part| text + part.split_once(is_end).map_or("", |(_, rest)| rest))
}

#[test]
fn the_demo_checks_its_copies_and_leaves_nothing() {
    let place = Place::with(10);
    let outcome = place.run_words("demo --receivers 3 --size 1MiB --dir .");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for words in ["1 MiB to 3 receivers", "No member sends", "one by one", "\nrdmc ", "verified"] {
        assert!(outcome.out.contains(words), "no {words} in {}", outcome.out);
    }
    assert_eq!(fs::read_dir(place.directory.path()).unwrap().count(), 1);
    let unlimited = "demo object --receivers 2 --dir . --bwlimit none --algorithms";
    let outcome = place.run_words(unlimited);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for words in ["processors and memory", "binomial pipeline", "chain", "binomial tree"] {
        assert!(outcome.out.contains(words), "no {words} in {}", outcome.out);
    }
    place.run_words("demo --size 9999TiB --dir .").has_failed_with(1, "choose another --dir");
    place.run_words("demo missing --dir .").has_failed_with(1, "missing does not exist");
}

/// Runs `rdmc push` with limits that a shell sets first.
fn push_with_limit(place: &Place, limit: &str, hosts: u32) -> Outcome {
    let command = format!("ulimit {limit} && exec \"$0\" push object --local {hosts} --quiet");
    let shell = std::process::Command::new("sh")
        .args(["-c", &command, RDMC])
        .current_dir(place.directory.path())
        .output();
    Outcome::of(shell.unwrap())
}

#[test]
fn a_push_that_takes_too_many_descriptors_says_how_many_hosts_fit() {
    let place = Place::with(100_000);
    let outcome = push_with_limit(&place, "-n 64", 40);
    outcome.has_failed_with(2, "40 hosts need about");
    assert!(outcome.err.contains(" hosts; raise the limit (ulimit -n"), "{outcome:?}");
    let fit = outcome.err.split("enough for ").last().unwrap();
    let fit: u32 = fit.split(' ').next().unwrap().parse().unwrap();
    assert!((1..40).contains(&fit), "{outcome:?}");
    assert_eq!(push_with_limit(&place, "-n 64", fit).code, Some(0));
    // A soft limit can be raised, so it does not count.
    assert_eq!(push_with_limit(&place, "-S -n 64", 40).code, Some(0));
}

#[test]
fn source_hosts_are_hosts_of_the_push_that_have_the_same() {
    let place = Place::with(40 << 20);
    fs::create_dir_all(place.path("rdmc-local/local-2")).unwrap();
    fs::copy(place.path("object"), place.path("rdmc-local/local-2/object")).unwrap();
    let push = ["push", "object", "--local", "3", "--json", "--source-hosts"];
    let outcome = place.run(&[&push[..], &["local-2"]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = outcome.json();
    let were_there = report["hosts"].as_array().unwrap().iter().map(|host| &host["was_there"]);
    assert_eq!(were_there.collect::<Vec<_>>(), [false, true, false]);
    for host in 1..=3 {
        assert!(place.is_copy(&format!("rdmc-local/local-{host}/object")));
    }
    let outcome = place.run(&[&push[..], &["local-4"]].concat());
    outcome.has_failed_with(2, "local-4 is to send a share, and is none of the hosts of this push");
}
