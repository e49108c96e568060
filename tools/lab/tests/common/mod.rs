//! Helpers of the tests of labs.

use std::{
    fs, process,
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// Ends a test that hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Whether labs cannot be made here; prints the reason.
pub fn is_skipped() -> bool {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    let why = WHY.get_or_init(why_not);
    if let Some(why) = why {
        eprintln!("SKIPPED: labs: {why}");
    }
    why.is_some()
}

fn why_not() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    if Command::new("tc").arg("-Version").output().is_err() {
        return Some("ip and tc are missing, of the package iproute2".into());
    }
    // Root in a container may lack the permission.
    let probe = format!("rdmc-probe-{}", process::id());
    let made = Command::new("ip").args(["netns", "add", &probe]).output().ok()?;
    let _ = Command::new("ip").args(["netns", "del", &probe]).output();
    let reason = String::from_utf8_lossy(&made.stderr).trim().to_owned();
    (!made.status.success()).then(|| format!("no network namespaces here: {reason}"))
}

/// A name of its own for a lab, which is removed at the end whatever happens.
#[allow(dead_code)]
pub struct NamedLab(String);

#[allow(dead_code)]
impl NamedLab {
    pub fn new(what: &str) -> Self {
        Self(format!("test-{}-{what}", process::id()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for NamedLab {
    fn drop(&mut self) {
        // Usually it was removed already.
        let _ = lab::down(&self.0);
    }
}

/// The namespaces of a lab.
pub fn namespaces(lab: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else { return Vec::new() };
    let names =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("rdmc-{lab}-"))).collect()
}

/// Waits until a condition holds.
#[allow(dead_code)]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so after {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
