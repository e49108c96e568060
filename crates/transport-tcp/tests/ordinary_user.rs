//! Tests of direct copies, as a user who may make them: root may not, whatever it runs.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use crate::common::is_root;

/// A user and group without rights.
pub const USER: u32 = 65_533;

/// Runs the tests whose names contain `direct` once more if this is root.
#[test]
fn copies_are_tested_as_an_ordinary_user() {
    if !is_root() {
        return;
    }
    // By this path, since the user may not reach the program by its own.
    let outcome = Command::new("/proc/self/exe")
        .arg("direct")
        .current_dir("/")
        .uid(USER)
        .gid(USER)
        .stdin(Stdio::null())
        .output();
    let output = match outcome {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: direct copies; this root cannot become another user: {error}");
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "as user {USER}: {text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("test direct::a_reference_is_copied_and_answered ... ok"), "{text}");
}
