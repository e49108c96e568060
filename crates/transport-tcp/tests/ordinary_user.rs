//! Tests of direct copies, as a user who may make them: root may not, whatever it runs.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use crate::common::is_root;

/// A user and group without rights.
pub const USER: u32 = 65_533;

/// Runs the tests whose names contain `filter` as an ordinary user, and returns what they say; `None`, and says so, if this
/// root cannot become one. Panics if some fail.
pub fn run(filter: &str) -> Option<String> {
    // By this path, since the user may not reach the program by its own.
    let outcome = Command::new("/proc/self/exe")
        .args([filter, "--show-output"])
        .current_dir("/")
        .uid(USER)
        .gid(USER)
        .stdin(Stdio::null())
        .output();
    let output = match outcome {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: direct copies; this root cannot become another user: {error}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as user {USER}: {text}\n{errors}");
    text.lines().filter(|line| line.contains("SKIPPED")).for_each(|line| eprintln!("{line}"));
    Some(text.into())
}

/// Runs the tests of direct copies once more if this is root.
#[test]
fn copies_are_tested_as_an_ordinary_user() {
    if !is_root() {
        return;
    }
    let Some(text) = run("direct") else { return };
    assert!(text.contains("test direct::a_reference_is_copied_and_answered ... ok"), "{text}");
}
