//! Queries to Slurm.

use std::{
    io::Read,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The maximum time of an answer. Without an answer the push continues without racks.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer output is truncated: a line has 200 bytes, and there are fewer switches than nodes.
const BYTES_MAX: u64 = 4 << 20;

/// The output of `scontrol show topology`. `None` if the program is missing, fails, or does not answer in time.
pub fn topology() -> Option<String> {
    let mut command = Command::new("scontrol");
    command.args(["show", "topology"]).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, answer) = mpsc::channel();
    let read = move || {
        let mut text = String::new();
        let whole = stdout.take(BYTES_MAX).read_to_string(&mut text);
        drop(sender.send(whole.ok().map(|_| text)));
    };
    // The reader ends with the process, which is killed below.
    let reader = thread::Builder::new().name("rdmc-scontrol".into()).spawn(read);
    let text = reader.ok().and_then(|_| answer.recv_timeout(TIMEOUT).ok().flatten());
    let _ = child.kill();
    let _ = child.wait();
    text
}
