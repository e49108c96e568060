//! Patterns, beside those of rsync where it is installed.

use std::{cell::Cell, collections::BTreeSet, fs, path::Path, process::Command};

use tree::{Rule, Selection};

const FILES: [&str; 12] = [
    "a.txt",
    "b.log",
    "dir/a.txt",
    "dir/b.log",
    "dir/sub/a.txt",
    "dir/sub/deep/c.txt",
    "other/dir/x",
    "other/sub/a.txt",
    "logs/1/b.log",
    "logs/2/keep.log",
    ".hidden/a.txt",
    "we[ird]/a b.txt",
];

fn exclude(pattern: &str) -> Rule {
    Rule::Exclude(pattern.to_owned())
}

fn include(pattern: &str) -> Rule {
    Rule::Include(pattern.to_owned())
}

/// The files that are taken, walking down as a sender does.
fn taken(rules: &[Rule]) -> BTreeSet<String> {
    let mut selection = Selection::new(rules).unwrap();
    let is_taken = |file: &&&str| {
        let ends: Vec<usize> = file.match_indices('/').map(|(at, _)| at).collect();
        ends.iter().all(|&end| selection.takes(&file.as_bytes()[..end], true))
            && selection.takes(file.as_bytes(), false)
    };
    FILES.iter().filter(is_taken).map(ToString::to_string).collect()
}

fn cases() -> Vec<Vec<Rule>> {
    vec![
        vec![],
        vec![exclude("*.log")],
        vec![exclude("a.txt")],
        vec![exclude("/a.txt")],
        vec![exclude("dir/")],
        vec![exclude("/dir/")],
        vec![exclude("x/")],
        vec![exclude("dir/*.txt")],
        vec![exclude("sub/a.txt")],
        vec![exclude("/sub/a.txt")],
        vec![exclude("/dir/*/a.txt")],
        vec![exclude("/dir/**/c.txt")],
        vec![exclude("sub/***")],
        vec![exclude("/other/sub/***")],
        vec![include("keep.log"), exclude("*.log")],
        vec![exclude("*.log"), include("keep.log")],
        vec![include("/dir/***"), exclude("*")],
        vec![include("*/"), include("*.txt"), exclude("*")],
        vec![exclude(".*")],
        vec![exclude("?.txt")],
        vec![exclude("[ab].txt")],
        vec![exclude("[!a].*")],
        vec![exclude(r"we\[ird\]/")],
        vec![exclude("* *")],
        vec![exclude("logs/[0-9]/b*")],
        vec![exclude("logs/[[:digit:]]/b*")],
        vec![exclude("**/sub/*.txt")],
        vec![exclude("o**x")],
        vec![exclude("dir/**/c.txt")],
        vec![exclude("/***")],
        vec![exclude("***")],
        vec![exclude("s***")],
        vec![exclude("{a,b}.txt")],
        vec![exclude("dir/sub/"), include("dir/sub/***")],
    ]
}

#[test]
fn the_first_rule_that_matches_decides() {
    let all: BTreeSet<String> = FILES.iter().map(ToString::to_string).collect();
    let without = |rules: &[Rule]| all.difference(&taken(rules)).cloned().collect::<Vec<_>>();
    assert_eq!(
        without(&[exclude("*.log")]),
        ["b.log", "dir/b.log", "logs/1/b.log", "logs/2/keep.log"]
    );
    assert_eq!(without(&[exclude("/a.txt")]), ["a.txt"]);
    assert_eq!(without(&[exclude("x/")]), [""; 0], "x is no directory");
    let kept = [include("keep.log"), exclude("*.log")];
    assert_eq!(without(&kept), ["b.log", "dir/b.log", "logs/1/b.log"]);
    let below = taken(&[include("/dir/***"), exclude("*")]);
    assert!(below.iter().all(|file| file.starts_with("dir/")) && below.len() == 4, "{below:?}");
}

#[test]
fn invalid_patterns_are_refused_by_name() {
    let long = "a".repeat(4096);
    for pattern in [&long, "", "/", "//", "[a", "a//b", "a//", "//a", "*\\"] {
        let error = Selection::new(&[exclude("ok"), exclude(pattern)]).unwrap_err();
        assert!(error.to_string().contains(&format!("{pattern:?} is invalid")), "{error}");
    }
}

#[test]
fn patterns_that_match_nothing_are_known() {
    let rules = [include("keep.log"), exclude("*.log"), exclude("/keep.log"), exclude("/x")];
    let mut selection = Selection::new(&rules).unwrap();
    assert_eq!(selection.unmatched().count(), 4);
    // The second has matched, too, although the first decided.
    assert!(selection.takes(b"logs/keep.log", false));
    assert_eq!(selection.unmatched().collect::<Vec<_>>(), [&rules[2], &rules[3]]);
    assert!(selection.takes(b"keep.log", false));
    assert_eq!(selection.unmatched().collect::<Vec<_>>(), [&rules[3]]);
}

#[test]
fn patterns_mean_what_they_mean_to_rsync() {
    if Command::new("rsync").arg("--version").output().is_err() {
        println!("SKIPPED: needs rsync");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    for file in FILES {
        let path = source.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    for rules in cases() {
        assert_eq!(taken(&rules), taken_by_rsync(&source, &rules), "{rules:?}");
    }
}

fn taken_by_rsync(source: &Path, rules: &[Rule]) -> BTreeSet<String> {
    let mut command = Command::new("rsync");
    command.args(["-r", "--dry-run", "--out-format=%n"]);
    for rule in rules {
        match rule {
            Rule::Include(pattern) => command.arg(format!("--include={pattern}")),
            Rule::Exclude(pattern) => command.arg(format!("--exclude={pattern}")),
        };
    }
    let destination = source.with_file_name("destination");
    let output = command.arg(format!("{}/", source.display())).arg(destination).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let files = text.lines().filter(|line| !line.ends_with('/'));
    files.map(ToString::to_string).filter(|line| FILES.contains(&line.as_str())).collect()
}

#[test]
fn thousands_of_patterns_are_interrupted_between_two_of_them() {
    let mut selection = Selection::new(&vec![exclude("*.o"); 1000]).unwrap();
    let asked = Cell::new(0);
    let is_stopped = |after: u32| {
        asked.set(asked.get() + 1);
        asked.get() > after
    };
    assert_eq!(selection.takes_unless(|| is_stopped(3), b"a.o", false), None);
    assert_eq!(asked.take(), 4);
    assert_eq!(selection.takes_unless(|| is_stopped(1000), b"a.o", false), Some(false));
    assert_eq!(selection.takes_unless(|| false, b"a.c", false), Some(true));
}
