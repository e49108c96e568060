//! Pushes between processes of this machine: blocks are copied out of the sender's memory, but not by root
//! (docs/decisions/one-machine.md).

use std::{
    io::Write,
    os::unix::{fs::chown, process::CommandExt},
    process::{Command, Stdio},
};

use rustix::process::geteuid;

use crate::common::{Outcome, Place, RDMC};

/// A user and group without rights, which root becomes.
const USER: u32 = 65_531;
const RECEIVERS: usize = 3;

/// A place of a user with the program in it, since another place may be closed to that user.
struct OfUser {
    place: Place,
    user: u32,
}

impl OfUser {
    fn new(user: u32) -> Self {
        let place = Place::with(20_000_000);
        // By another process: one that this one starts meanwhile would have it open for writing, so that it could not be run.
        assert!(Command::new("cp").arg(RDMC).arg(place.path("rdmc")).status().unwrap().success());
        if geteuid().is_root() {
            for path in [place.directory.path(), &place.path("object")] {
                chown(path, Some(user), Some(user)).unwrap();
            }
        }
        Self { place, user }
    }

    fn run(&self, words: &str) -> Outcome {
        let mut command = Command::new(self.place.path("rdmc"));
        command
            .args(words.split(' '))
            .current_dir(self.place.directory.path())
            .env("RDMC_CONFIG", "/dev/null")
            .env("RDMC_PROGRESS", "none")
            .env("RUST_LOG", "transport_tcp=debug")
            .stdin(Stdio::null());
        if geteuid().is_root() {
            command.uid(self.user).gid(self.user);
        }
        Outcome::of(command.output().unwrap())
    }

    /// Pushes to receivers of this machine, and returns whether blocks were copied directly.
    fn copies_directly(&self) -> bool {
        let outcome = self.run(&format!("push object --local {RECEIVERS}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        for receiver in 1..=RECEIVERS {
            assert!(
                self.place.is_copy(&format!("rdmc-local/local-{receiver}/object")),
                "{receiver}"
            );
        }
        outcome.err.contains("copies directly")
    }

    /// What `rdmc doctor` says of it.
    fn may_copy(&self) -> Result<(), String> {
        let outcome = self.run("doctor");
        let found = outcome.out.lines().find_map(|line| line.strip_prefix("one machine"));
        let found = found.unwrap_or_else(|| panic!("{outcome:?}")).trim();
        match found.strip_prefix("blocks go through shared memory: ") {
            Some(why) => Err(why.to_owned()),
            None => {
                assert_eq!(found, "blocks are copied out of their sender's memory");
                Ok(())
            }
        }
    }
}

#[test]
fn a_push_of_an_ordinary_user_copies_directly() {
    let user = OfUser::new(USER);
    if let Err(why) = user.may_copy() {
        // Not by a macro, whose text the test program keeps for itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: a push that copies directly: {why}");
        assert!(!user.copies_directly());
        return;
    }
    assert!(user.copies_directly());
}

#[test]
fn a_push_of_root_does_not() {
    if !geteuid().is_root() {
        return;
    }
    let root = OfUser::new(0);
    assert_eq!(root.may_copy(), Err("this process runs as root; run it as another user".into()));
    assert!(!root.copies_directly());
}
