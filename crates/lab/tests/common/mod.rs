//! What tests of labs share.

use std::{
    fs, process,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this machine makes no labs, which is said.
pub fn is_skipped() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if Command::new("tc").arg("-Version").output().is_err() {
        "needs ip and tc, of the package iproute2"
    } else {
        return false;
    };
    eprintln!("SKIPPED: labs: network namespaces: {why}");
    true
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
        // Usually there is none any more.
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

/// Waits until something is so.
#[allow(dead_code)]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
