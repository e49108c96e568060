//! `rdmc push` of chains of directories as deep as paths can be long, which takes thousands of levels.

use std::{fs, process::Command};

use crate::common::{Outcome, Place};

/// Levels of directories `d` below `src` so that the path of a file `f` in the last one has 4095 bytes, all that Linux opens.
const LEVELS: usize = 2045;

/// A place, in which paths are shorter if they are relative.
struct Deep(Place);

impl Deep {
    fn new() -> Self {
        let deep = Self(Place::with(0));
        deep.make("src", "d", LEVELS);
        deep.run("cp object $1", &[&chain("src", "d", LEVELS, "f")]);
        deep
    }

    /// Makes this many directories of this name in each other.
    fn make(&self, top: &str, name: &str, levels: usize) {
        let chain = chain("", name, levels, "");
        self.run("mkdir -p \"$1\" && cd \"$1\" && mkdir -p \"$2\"", &[top, &chain[1..]]);
    }

    /// Runs a shell with these arguments, in which a path may be too long to be opened from elsewhere.
    fn run(&self, script: &str, arguments: &[&str]) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", script, "sh"]).args(arguments).current_dir(self.0.path(""));
        let outcome = Outcome::of(shell.output().unwrap());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }

    fn push(&self, words: &str) -> Outcome {
        self.0.run_words(&format!("push {words} --local 1 --dest {}", self.0.path("to").display()))
    }

    fn assert_is_there(&self, file: &str) {
        self.run("cd to && cmp ../object \"$1\"", &[&chain("src", "d", LEVELS, file)]);
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        // Holds no descriptor for each level.
        let _ = Command::new("rm").arg("-rf").arg(self.0.path("")).status();
    }
}

fn chain(top: &str, name: &str, levels: usize, last: &str) -> String {
    format!("{top}{}/{last}", format!("/{name}").repeat(levels)).trim_end_matches('/').to_owned()
}

#[test]
fn a_chain_of_directories_may_be_as_deep_as_paths_can_be_long() {
    let deep = Deep::new();
    for (options, what) in [
        ("", "2046 entries to 1 host"),
        ("", "2046 entries existed already"),
        ("--checksum", "2046 entries existed already"),
    ] {
        let outcome = deep.push(&format!("src {options}"));
        assert!(outcome.code == Some(0) && outcome.out.contains(what), "{options}: {outcome:?}");
        deep.assert_is_there("f");
    }
    deep.run("mv $1 $2", &[&chain("src", "d", LEVELS, "f"), &chain("src", "d", LEVELS, "g")]);
    let outcome = deep.push("src --atomic --delete");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    deep.assert_is_there("g");
    // Only the host has it.
    deep.make("to/src", "e", 2047);
    fs::write(deep.0.path("src/new"), "new").unwrap();
    let outcome = deep.push("src --delete");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(!deep.0.path("to/src/e").exists());
}

#[test]
fn longer_paths_are_refused_before_anything_is_sent() {
    let deep = Deep::new();
    fs::rename(deep.0.path("src"), deep.0.path("srcs")).unwrap();
    let outcome = deep.push("srcs");
    outcome.has_failed_with(1, "is a path of 4096 bytes, but at most 4095 can be opened");
    assert!(outcome.err.len() < 500, "{outcome:?}");
    assert!(!deep.0.path("to").exists());
    let outcome = deep.push("srcs --exclude f");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    // Deeper than any tree, and only the host has it.
    deep.run(
        "cd to/srcs; for part in 1 2 3; do mkdir -p \"$1\"; cd -P \"$1\"; done",
        &[&chain("", "e", 2000, "")[1..]],
    );
    fs::write(deep.0.path("srcs/new"), "new").unwrap();
    let outcome = deep.push("srcs --exclude f --delete");
    outcome.has_failed_with(1, "is to be removed, but its path has");
    assert!(!deep.0.path("to/srcs/new").exists(), "nothing is written");
    let outcome = deep.push("srcs --exclude f");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
