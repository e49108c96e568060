//! A chain of `tar | socat`: the root sends an archive to the first host, and each host unpacks it while it passes it on.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::Host;

use super::source::Source;
use crate::{interrupt::Interrupt, outcome::Outcome, procfs::listening_ports, running::Running};

const PORT: u16 = 7001;
const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Of socat and tar: 64 KiB at once, instead of 8 and 10.
const RECEIVE: &str = "socat -u -b 65536 TCP-LISTEN:$port,bind=$own,reuseaddr STDOUT";
const SEND: &str = "socat -u -b 65536 STDIN TCP:$next:$port";
const UNPACK: &str = "tar --extract --blocking-factor=128 --directory=\"$directory\"";

/// A chain whose hosts listen; what runs is killed when dropped.
pub struct Chain {
    hosts: Vec<Running>,
    root: Command,
}

impl Chain {
    /// Starts all hosts but the first, the root; `directory_of` says where a host gets its copy.
    ///
    /// Errors: a host that does not listen, with its log in `logs`; an interrupt.
    pub fn start(
        hosts: &[Host],
        source: &Source,
        directory_of: impl Fn(usize) -> PathBuf,
        logs: &Path,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let mut running = Vec::new();
        // From the last one on: each connects to the next when it starts.
        for number in (1..hosts.len()).rev() {
            let script = match hosts.get(number + 1) {
                // What passes the archive on has to end well too, which `tee >(...)` would not wait for.
                Some(_) => format!(
                    "mkfifo \"$fifo\"; {SEND} <\"$fifo\" & {RECEIVE} | tee \"$fifo\" | {UNPACK}; \
                     rm \"$fifo\"; wait $!"
                ),
                None => format!("{RECEIVE} | {UNPACK}"),
            };
            let log = logs.join(format!("tar-{number}"));
            let mut command = shell(&hosts[number], &script);
            command.env("own", hosts[number].address.to_string());
            command.env("fifo", log.with_extension("fifo")).env("directory", directory_of(number));
            set_next(&mut command, hosts, number);
            let process = Running::start(command.stderr(File::create(&log)?))?;
            wait_for_listener(&process, &log, interrupt)?;
            running.push(process);
        }
        let pack = "tar --create --blocking-factor=128 --directory=\"$parent\" \"$name\"";
        let mut root = shell(&hosts[0], &format!("{pack} | {SEND}"));
        root.env("parent", source.path.parent().unwrap_or(Path::new("/")));
        root.env("name", source.path.file_name().unwrap_or_default());
        set_next(&mut root, hosts, 0);
        root.stderr(Stdio::inherit());
        Ok(Self { hosts: running, root })
    }

    /// Sends the archive, and waits for all hosts. Errors: one that fails; those of [`Running::wait`].
    pub fn copy(&mut self, timeout: Duration, interrupt: &Interrupt) -> Outcome<()> {
        let mut root = Running::start(&mut self.root)?;
        for process in std::iter::once(&mut root).chain(&mut self.hosts) {
            let status = process.wait(POLL_INTERVAL, timeout, interrupt, |_| Ok(()))?;
            if !status.success() {
                return Err(format!("a host of the chain of tar | socat: {status}").into());
            }
        }
        Ok(())
    }
}

/// A script on a host that fails with any part of it; all its processes end with it.
fn shell(host: &Host, script: &str) -> Command {
    let mut command = host.command("unshare");
    command.args(["--pid", "--fork", "--kill-child", "bash", "-c"]);
    command.arg(format!("set -e -o pipefail; {script}"));
    command.env("port", PORT.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn set_next(command: &mut Command, hosts: &[Host], number: usize) {
    if let Some(next) = hosts.get(number + 1) {
        command.env("next", next.address.to_string());
    }
}

fn wait_for_listener(process: &Running, log: &Path, interrupt: &Interrupt) -> Outcome<()> {
    let until = Instant::now() + START_TIMEOUT;
    while !listening_ports(process.id()).contains(&PORT) {
        if Instant::now() > until {
            return Err(format!("socat does not listen: {}", log.display()).into());
        }
        interrupt.check()?;
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
