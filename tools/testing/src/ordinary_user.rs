//! Tests that root runs as another user: of what root may not do, whatever it runs.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use crate::skipped::skipped;

/// A user and group without rights.
pub const USER: u32 = 65_533;

/// What tests have said that another user has run.
pub struct Said {
    /// A line for each test, with its outcome.
    pub text: String,
    /// What was not tested.
    pub skipped: Vec<String>,
}

/// Runs the tests of this test program whose names contain one of the filters as an ordinary user. Returns `None`, and says so, if this root cannot become one.
/// Panics if some fail.
pub fn run_as_ordinary_user(filters: &[&str]) -> Option<Said> {
    // By this path, since the user may not reach the program by its own.
    let outcome = Command::new("/proc/self/exe")
        .args(filters)
        .current_dir("/")
        .uid(USER)
        .gid(USER)
        .stdin(Stdio::null())
        .output();
    let output = match outcome {
        Ok(output) => output,
        Err(error) => {
            skipped(&format!("{filters:?}; this root cannot become another user: {error}"));
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as user {USER}: {text}\n{errors}");
    let skips = errors.lines().filter_map(|line| line.strip_prefix("SKIPPED: "));
    let said = Said { text, skipped: skips.map(str::to_owned).collect() };
    said.skipped.iter().for_each(|what| skipped(what));
    Some(said)
}
