//! `rdmc push` of directories and several sources.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    process::Command,
    thread,
    time::Instant,
};

use crate::common::{Place, children};

/// Files `tree/a`, `tree/d/b`, `tree/d/c.tmp` and a link.
fn tree() -> Place {
    let place = Place::with(100_000);
    fs::create_dir_all(place.path("tree/d")).unwrap();
    fs::copy(place.path("object"), place.path("tree/a")).unwrap();
    fs::write(place.path("tree/d/b"), "b").unwrap();
    fs::write(place.path("tree/d/c.tmp"), "temporary").unwrap();
    symlink("../a", place.path("tree/d/link")).unwrap();
    place
}

fn names(place: &Place, directory: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place.path(directory))
        .unwrap_or_else(|error| panic!("{directory}: {error}"))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_directory_goes_into_the_destination_and_is_not_sent_twice() {
    let place = tree();
    let outcome = place.run_words("push tree --local 2");
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(outcome.out.starts_with("97.7 KiB in 5 entries to 2 hosts in "), "{outcome:?}");
    for host in ["local-1", "local-2"] {
        assert_eq!(names(&place, &format!("rdmc-local/{host}")), ["tree"]);
        assert!(place.is_copy(&format!("rdmc-local/{host}/tree/d/link")));
    }
    let again = place.run_words("push tree --local 2");
    assert!(
        again.out.contains("existed already at 2 hosts; only the list was sent; compared in"),
        "{again:?}"
    );
    let again = place.run_words("push tree --local 2 --checksum --json");
    assert_eq!(again.json()["hosts"][1]["was_there"], true, "{again:?}");
    assert_eq!(again.json()["entries"], 5);
}

#[test]
fn a_slash_at_the_end_means_what_is_in_it() {
    let place = tree();
    fs::create_dir_all(place.path("to/old")).unwrap();
    let outcome = place.run_words("push tree/ --local 1 --dest to/{host}");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(names(&place, "to/local-1"), ["a", "d"]);
    let outcome = place.run_words("push tree object --local 1 --dest to/{host}");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(names(&place, "to/local-1"), ["a", "d", "object", "tree"]);
    assert_eq!(names(&place, "to/local-1/tree"), ["a", "d"]);
    let outcome = place.run_words("push tree --local 1 --dest new/{host}");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("new does not exist"), "{outcome:?}");
}

#[test]
fn the_first_pattern_that_matches_decides() {
    let place = tree();
    let push = |patterns: &str, to: &str| {
        let words = format!("push tree --local 1 --dest {to} {patterns}");
        let outcome = place.run_words(&words);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        names(&place, &format!("{to}/tree/d"))
    };
    assert_eq!(push("--exclude *.tmp", "one"), ["b", "link"]);
    assert_eq!(push("--include c.* --exclude *.tmp", "two"), ["b", "c.tmp", "link"]);
    assert_eq!(push("--exclude *.tmp --include c.*", "three"), ["b", "link"]);
    assert_eq!(push("--exclude /tree/d/b", "four"), ["c.tmp", "link"]);
    let outcome = place.run(&["push", "tree", "--local", "1", "--exclude", "["]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("the pattern \"[\" is invalid"), "{outcome:?}");
}

/// What is below a directory, sorted.
fn paths(place: &Place, directory: &str) -> Vec<String> {
    let output = Command::new("find")
        .args([".", "-mindepth", "1", "-printf", "%P\n"])
        .current_dir(place.path(directory))
        .output();
    let mut paths: Vec<String> =
        String::from_utf8(output.unwrap().stdout).unwrap().lines().map(str::to_owned).collect();
    paths.sort();
    paths
}

/// What rsync leaves out of `ex` and `empty`.
#[test]
fn paths_that_patterns_see_begin_with_the_name_of_the_source() {
    let place = Place::with(0);
    fs::create_dir_all(place.path("ex/a/b")).unwrap();
    for file in ["ex/x.tmp", "ex/a/b/z", "ex/top", "ex/a/top", "empty"] {
        fs::write(place.path(file), "").unwrap();
    }
    let all = ["empty", "ex", "ex/a", "ex/a/b", "ex/a/b/z", "ex/a/top", "ex/top", "ex/x.tmp"];
    let left_out: [(&str, &[&str]); 12] = [
        ("empty", &["empty"]),
        ("ex", &all[1..]),
        ("ex/", &all[1..]),
        ("/ex/top", &["ex/top"]),
        ("/ex/a/", &["ex/a", "ex/a/b", "ex/a/b/z", "ex/a/top"]),
        ("ex/**/z", &["ex/a/b/z"]),
        ("*/top", &["ex/a/top", "ex/top"]),
        ("a/top", &["ex/a/top"]),
        ("/top", &[]),
        ("top", &["ex/a/top", "ex/top"]),
        ("/ex/a/***", &["ex/a", "ex/a/b", "ex/a/b/z", "ex/a/top"]),
        ("*.tmp", &["ex/x.tmp"]),
    ];
    for (number, (pattern, left_out)) in left_out.into_iter().enumerate() {
        let to = format!("to-{number}");
        let words = format!("push ex empty --local 1 --dest {to} --exclude {pattern} --json");
        fs::create_dir(place.path(&to)).unwrap();
        let outcome = place.run_words(&words);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let expected: Vec<&str> = all.into_iter().filter(|path| !left_out.contains(path)).collect();
        assert_eq!(paths(&place, &to), expected, "{pattern}");
        let is_named = outcome.err.contains(&format!("--exclude {pattern} matches no entry"));
        assert_eq!(is_named, left_out.is_empty(), "{outcome:?}");
        let unmatched = outcome.json()["unmatched_patterns"].as_array().unwrap().len();
        assert_eq!(unmatched, usize::from(left_out.is_empty()), "{outcome:?}");
    }
    for words in ["empty --exclude empty", "ex --exclude ex/", "ex empty --exclude e*"] {
        let outcome = place.run_words(&format!("push {words} --local 1"));
        outcome.has_failed_with(2, "the patterns leave nothing of e");
    }
    for stream in ["-", "empty --follow"] {
        for option in ["--exclude x", "--include x", "--links", "--owner", "--xattrs"] {
            let outcome = place.run_words(&format!("push {stream} --local 1 {option}"));
            outcome.has_failed_with(2, "cannot be used with a stream");
        }
    }
}

#[test]
fn links_are_sent_as_they_are_if_that_is_asked_for() {
    let place = tree();
    symlink("nowhere", place.path("tree/d/dangling")).unwrap();
    symlink("/etc", place.path("tree/out")).unwrap();
    symlink(".", place.path("tree/self")).unwrap();
    let outcome = place.run_words("push tree --local 1");
    outcome.has_failed_with(1, "send links as they are (--links)");
    for again in [false, true] {
        let outcome = place.run_words("push tree --local 1 --links --json");
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
        assert_eq!(outcome.json()["hosts"][0]["was_there"], again);
    }
    for (link, text) in
        [("d/dangling", "nowhere"), ("out", "/etc"), ("self", "."), ("d/link", "../a")]
    {
        let copy = place.path(&format!("rdmc-local/local-1/tree/{link}"));
        assert_eq!(fs::read_link(copy).unwrap().to_str(), Some(text));
    }
}

#[test]
fn a_dry_run_says_what_each_host_lacks() {
    let place = tree();
    let first = place.run_words("push tree --local 2 --dry-run");
    assert_eq!((first.code, first.err.as_str()), (Some(0), ""), "{first:?}");
    let lines: Vec<&str> = first.out.lines().collect();
    assert_eq!(lines[0], "of 97.7 KiB in 5 entries hosts lack:");
    assert!(lines[1].starts_with("local-1: 97.7 KiB at /"), "{first:?}");
    assert!(lines[1].ends_with("local-1/tree: 5 new"), "{first:?}");
    assert!(!place.path("rdmc-local/local-1/tree").exists());
    assert!(place.run_words("push tree --local 1").code == Some(0));
    let same = place.run_words("push tree --local 1 -n");
    assert!(same.out.contains("local-1: nothing at /") && same.out.ends_with(": 5 kept\n"));
    fs::write(place.path("tree/d/b"), "changed").unwrap();
    let second = place.run_words("push tree --local 2 -n --json");
    let hosts = &second.json()["hosts"];
    assert_eq!((&hosts[0]["state"], &hosts[1]["state"]), (&"examined".into(), &"examined".into()));
    assert!(hosts[0]["resumed_bytes"].as_u64().unwrap() > 90_000, "{second:?}");
    assert_eq!(hosts[1]["resumed_bytes"], 0);
    let count = |host: usize, what: &str| hosts[host]["changes"][what].as_u64().unwrap();
    let kinds = ["new", "changed", "attributes", "kept", "removed"];
    assert_eq!(kinds.map(|what| count(0, what)), [0, 1, 0, 4, 0], "{second:?}");
    assert_eq!(kinds.map(|what| count(1, what)), [5, 0, 0, 0, 0], "{second:?}");
    assert_eq!(fs::read(place.path("rdmc-local/local-1/tree/d/b")).unwrap(), b"b");
    assert!(place.temporaries().is_empty(), "{:?}", place.temporaries());
}

#[test]
fn a_dry_run_counts_entries_without_data_and_those_of_which_only_the_mode_differs() {
    let place = Place::with(0);
    fs::create_dir_all(place.path("et")).unwrap();
    fs::write(place.path("et/a"), "").unwrap();
    symlink("a", place.path("et/l")).unwrap();
    let words = "push et --local 1 --checksum --dry-run --verbose";
    // Debug messages go to standard error.
    let line = |words: &str| {
        let outcome = place.run_words(words);
        assert!(!outcome.err.contains("rustls"), "{outcome:?}");
        outcome.out
    };
    let first = line(words);
    assert!(first.contains("local-1: no data at /") && first.ends_with("et: 2 new\n"), "{first}");
    assert!(first.contains("local-1: new: a\n") && first.contains("local-1: new: l\n"), "{first}");
    assert_eq!(place.run_words("push et --local 1").code, Some(0));
    let same = line(words);
    assert!(same.ends_with("et: 2 kept\n") && !same.contains("local-1: new"), "{same}");
    fs::set_permissions(place.path("et/a"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = line(words);
    assert!(mode.ends_with("et: 1 with other attributes, 1 kept\n"), "{mode}");
    assert!(mode.contains("local-1: attributes: a\n"), "{mode}");
    // Equal length, and so decided by the root's comparison of contents.
    fs::write(place.path("et/a"), "old").unwrap();
    assert_eq!(place.run_words("push et --local 1").code, Some(0));
    fs::write(place.path("et/a"), "new").unwrap();
    let contents = line(words);
    assert!(contents.ends_with("et: 1 changed, 1 kept\n"), "{contents}");
    let pushed = line("push et --local 1 --verbose");
    assert!(pushed.starts_with("local-1: changed: a\n3 B in 2 entries to 1 host"), "{pushed}");
}

#[test]
fn a_dry_run_makes_no_directories() {
    let place = tree();
    for words in ["push tree --local 2", "push tree --local 1 --dest new"] {
        let outcome = place.run_words(&format!("{words} --dry-run"));
        assert!(outcome.code == Some(0) && outcome.out.contains(" new"), "{words}: {outcome:?}");
        assert!(!place.path("rdmc-local").exists() && !place.path("new").exists(), "{words}");
    }
    for words in [
        "push tree --local 2 --dest to/{host}/x --mkdir",
        "push tree/a --local 1 --dest to/the/copy --mkdir",
    ] {
        let outcome = place.run_words(&format!("{words} --dry-run"));
        assert!(outcome.code == Some(0) && outcome.out.contains(" new"), "{words}: {outcome:?}");
        assert!(!place.path("to").exists(), "{words}");
        assert_eq!(place.run_words(words).code, Some(0), "{words}");
        fs::remove_dir_all(place.path("to")).unwrap();
    }
    // Not one that was there.
    fs::create_dir(place.path("rdmc-local")).unwrap();
    assert_eq!(place.run_words("push object --local 1 --dry-run").code, Some(0));
    assert_eq!(fs::read_dir(place.path("rdmc-local")).unwrap().count(), 0);
}

#[test]
fn a_dry_run_changes_no_time() {
    let place = tree();
    fs::create_dir(place.path("to")).unwrap();
    assert_eq!(place.run_words("push tree --local 1 --dest to").code, Some(0));
    fs::write(place.path("tree/a"), "other").unwrap();
    let times = || {
        let of = |path: &str| fs::metadata(place.path(path)).unwrap();
        ["to", "to/tree", "to/tree/d"].map(|path| (of(path).ctime_nsec(), of(path).mtime_nsec()))
    };
    let before = times();
    for options in ["", " --atomic", " --delete", " --checksum"] {
        let outcome = place.run_words(&format!("push tree --local 1 --dest to --dry-run{options}"));
        assert!(outcome.code == Some(0) && outcome.out.contains(" changed"), "{outcome:?}");
        assert_eq!(times(), before, "{options}");
    }
}

#[test]
fn times_of_links_are_those_of_the_source() {
    let place = tree();
    let link = "tree/d/link";
    assert_eq!(place.run_words("push tree --local 1 --dest to").code, Some(0));
    let touched =
        Command::new("touch").args(["-h", "-d", "2001-02-03"]).arg(place.path(link)).status();
    assert!(touched.unwrap().success());
    let listed = place.run_words("push tree --local 1 --dest to --dry-run --verbose");
    assert!(listed.out.contains("local-1: attributes: d/link\n"), "{listed:?}");
    assert_eq!(place.run_words("push tree --local 1 --dest to").code, Some(0));
    let modified = |path: &str| fs::symlink_metadata(place.path(path)).unwrap().mtime();
    assert_eq!(modified("to/tree/d/link"), modified(link));
}

#[test]
fn files_whose_contents_are_generated_are_refused() {
    let place = Place::with(0);
    fs::create_dir(place.path("etc")).unwrap();
    symlink("/proc/self/mounts", place.path("etc/mtab")).unwrap();
    for words in ["/proc/sys/kernel", "/sys/kernel", "etc", "object /proc/version"] {
        let outcome = place.run_words(&format!("push {words} --local 1"));
        outcome.has_failed_with(
            1,
            "is on a file system whose contents are generated when they are read",
        );
    }
    assert_eq!(place.run_words("push etc --local 1 --exclude mtab").code, Some(0));
    assert_eq!(place.run_words("push etc --local 1 --links").code, Some(0));
}

#[test]
fn files_of_the_source_are_never_removed() {
    let place = tree();
    symlink("tree/d", place.path("in")).unwrap();
    for words in [
        "tree --local 1 --dest tree/d",
        "tree/ --local 1 --dest in/",
        "tree --local 1 --dest tree/{host}",
        "tree/d/ --local 1 --dest tree/",
        "tree/d --local 1 --dest tree",
    ] {
        let outcome = place.run_words(&format!("push {words} --delete"));
        outcome.has_failed_with(2, "--delete would remove files of the source");
        assert_eq!(names(&place, "tree/d"), ["b", "c.tmp", "link"], "{words}");
        assert_eq!(names(&place, "tree"), ["a", "d"], "{words}");
    }
    assert_eq!(place.run_words("push tree --local 1 --delete").code, Some(0));
}

#[test]
fn a_dry_run_lists_what_would_be_removed() {
    let place = tree();
    assert_eq!(place.run_words("push tree --local 1").code, Some(0));
    for extra in ["extra", "d/deep/extra"] {
        let path = place.path("rdmc-local/local-1/tree").join(extra);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "only here").unwrap();
    }
    let kept = place.run_words("push tree --local 1 --dry-run --verbose").out;
    assert!(!kept.contains("removed"), "{kept}");
    let listed = place.run_words("push tree --local 1 --delete --dry-run --verbose").out;
    for extra in ["extra", "d/deep", "d/deep/extra"] {
        assert!(listed.contains(&format!("local-1: removed: {extra}\n")), "{listed}");
    }
    assert!(listed.contains(" 3 to be removed, ") && !listed.contains("nothing at"), "{listed}");
    assert!(place.path("rdmc-local/local-1/tree/d/deep/extra").exists());
}

#[test]
fn a_dry_run_of_a_file_says_whether_it_is_there() {
    let place = Place::with(100_000);
    let counted = || {
        let outcome = place.run_words("push object --local 1 --dry-run");
        assert!(outcome.out.starts_with("of 97.7 KiB hosts lack:\nlocal-1: "), "{outcome:?}");
        outcome.out.trim_end().rsplit_once("object: ").unwrap().1.to_owned()
    };
    assert_eq!(counted(), "1 new");
    assert!(!place.path("rdmc-local/local-1/object").exists());
    assert_eq!(place.run_words("push object --local 1").code, Some(0));
    assert_eq!(counted(), "1 kept");
    let copy = place.path("rdmc-local/local-1/object");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(counted(), "1 with other attributes");
    // As long, and the same at its start and end.
    let mut other = place.contents.clone();
    other[50_000] ^= 1;
    fs::write(&copy, &other).unwrap();
    assert_eq!(counted(), "1 changed");
    fs::write(&copy, "shorter").unwrap();
    assert_eq!(counted(), "1 changed");
}

#[test]
fn what_cannot_be_sent_is_named_before_anything_starts() {
    let place = tree();
    symlink("nowhere", place.path("tree/d/dangling")).unwrap();
    let outcome = place.run_words("push tree --local 1");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("d/dangling is a symbolic link to nowhere"), "{outcome:?}");
    assert!(!place.path("rdmc-local/local-1/tree").exists());
    let outcome = place.run_words("push tree --local 1 --exclude dangling");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let outcome = place.run_words("push tree d/tree missing --local 1");
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("have the same name"), "{outcome:?}");
    let outcome = place.run_words("push tree missing --local 1");
    assert!(outcome.err.contains("missing does not exist"), "{outcome:?}");
}

/// The contents of the files of a directory, by name, without those of rdmc.
fn contents(place: &Place, directory: &str) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let contents = fs::read(place.path(&format!("{directory}/{name}"))).unwrap();
        (name, contents)
    };
    let is_copy = |name: &String| !name.starts_with(".rdmc-");
    names(place, directory).into_iter().filter(is_copy).map(read).collect()
}

#[test]
fn a_receiver_that_is_killed_at_any_moment_leaves_old_and_new_files_and_with_atomic_a_whole_tree() {
    const MOMENTS: u32 = 4;
    let place = Place::with(0);
    let fill = |directory: &str, version: u8| {
        fs::create_dir_all(place.path(directory)).unwrap();
        for file in 0..60 {
            let contents = vec![version.max(file as u8 % 7); 60_000];
            fs::write(place.path(&format!("{directory}/{file}")), contents).unwrap();
        }
    };
    let copy = "rdmc-local/local-1/tree";
    fill("tree", 9);
    fill("old", 1);
    let reset = || {
        let _ = fs::remove_dir_all(place.path("rdmc-local"));
        fs::create_dir_all(place.path("rdmc-local/local-1")).unwrap();
        fill(copy, 1);
        fs::write(place.path(&format!("{copy}/own")), "only here").unwrap();
    };
    let own = ("own".to_owned(), b"only here".to_vec());
    let with_own = |directory: &str| [contents(&place, directory), vec![own.clone()]].concat();
    let (new, old) = (with_own("tree"), with_own("old"));
    reset();
    let start = Instant::now();
    assert_eq!(place.run_words("push tree --local 1").code, Some(0));
    let whole = start.elapsed();
    assert!(contents(&place, copy) == new);
    for moment in 1..=2 * MOMENTS {
        let is_atomic = moment % 2 == 0;
        let words = match is_atomic {
            true => "push tree --local 1 --atomic",
            false => "push tree --local 1",
        };
        reset();
        let words: Vec<&str> = words.split(' ').collect();
        let mut push = place.rdmc(&words).spawn().unwrap();
        thread::sleep(whole * moment.div_ceil(2) / MOMENTS);
        for receiver in children(push.id()) {
            // It may have ended meanwhile.
            let _ = Command::new("kill").args(["-KILL", &receiver.to_string()]).output();
        }
        push.wait().unwrap();
        let found = contents(&place, copy);
        // Between the exchange and what follows it, what only the host has is in the old directory.
        let is_whole = |tree: &[_]| found == tree || found == tree[..tree.len() - 1];
        if is_atomic {
            assert!(is_whole(&old) || is_whole(&new), "neither old nor new");
        } else {
            assert_eq!(found.len(), new.len());
            let either = found.iter().zip(new.iter().zip(&old));
            assert!(either.into_iter().all(|(found, (new, old))| found == new || found == old));
        }
        let again = place.run_words("push tree --local 1");
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(contents(&place, copy) == new);
        assert!(place.temporaries().is_empty(), "{:?}", place.temporaries());
    }
}

#[test]
fn copies_in_the_source_are_no_part_of_it() {
    let place = tree();
    let push = |words: &[&str]| {
        let mut command = place.rdmc(words);
        command.current_dir(place.path("tree"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    for words in
        [&["push", ".", "--local", "2"][..], &["push", ".", "--local", "1", "--dest", "d/x"]]
    {
        for _ in 0..2 {
            push(words);
        }
    }
    assert_eq!(names(&place, "tree/rdmc-local/local-2"), ["a", "d"]);
    assert_eq!(names(&place, "tree/d/x"), ["a", "d", "rdmc-local"]);
    assert_eq!(names(&place, "tree/d/x/d"), ["b", "c.tmp", "link"]);
}
