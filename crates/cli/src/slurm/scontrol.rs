//! Asking Slurm.

use std::{
    io::Read,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// How long an answer may take. Without it racks are not known, and the push goes on.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What is longer is cut: a line has 200 bytes, and there are fewer switches than nodes.
const BYTES_MAX: u64 = 4 << 20;

/// What `scontrol show topology` prints. None if there is no such program, it fails, or does not answer in time.
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
    // Ends when the process does, which is killed below.
    let reader = thread::Builder::new().name("rdmc-scontrol".into()).spawn(read);
    let text = reader.ok().and_then(|_| answer.recv_timeout(TIMEOUT).ok().flatten());
    let _ = child.kill();
    let _ = child.wait();
    text
}
