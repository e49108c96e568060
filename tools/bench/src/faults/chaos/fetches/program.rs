//! Servers and hosts that fetch, as processes on hosts of a lab.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::Host;
use rustix::process::{Pid, Signal, kill_process};

use super::{actions::Fetch, copies::Copies};
use crate::{interrupt::Interrupt, outcome::Outcome, running::Running};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What a server prints once hosts can connect.
const SERVING: &str = "serving on";
/// How much of a log is shown with an error.
const LOG_BYTES: usize = 2000;

/// A member that runs.
pub struct Program {
    name: String,
    running: Running,
    log: PathBuf,
}

impl Program {
    /// Starts a server on this host, and waits until hosts can connect.
    pub fn serve(copies: &Copies, host: &Host, name: &str, interrupt: &Interrupt) -> Outcome<Self> {
        let mut command = host.command(copies.rdmc());
        command.arg("serve").arg(copies.served()).args(["--listen", "0.0.0.0:7700"]);
        let mut server = Self::start(command, copies, name)?;
        let start = Instant::now();
        while !server.said().contains(SERVING) {
            interrupt.check()?;
            if let Some(status) = server.running.0.try_wait()? {
                return Err(server.error(&format!("has ended with {status}")));
            }
            if start.elapsed() > START_TIMEOUT {
                return Err(server.error("does not serve"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    /// Starts a fetch of the object of this name from these servers, the first of them first.
    pub fn fetch(
        copies: &Copies,
        host: &Host,
        name: &str,
        object: &str,
        servers: &[&Host],
        fetch: Fetch,
    ) -> Outcome<Self> {
        let mut command = host.command(copies.rdmc());
        let first = servers[fetch.server as usize].address;
        command.arg("fetch").arg(format!("{first}:{object}"));
        command.arg(copies.place(name).join("")).args(["--name", name]);
        let others = servers.iter().map(|server| server.address.to_string());
        let others: Vec<String> = others.filter(|other| *other != first.to_string()).collect();
        if !others.is_empty() {
            command.args(["--from", &others.join(",")]);
        }
        if fetch.shares {
            command.args(["--share", "1"]);
        }
        command.arg("--verbose").env("RUST_LOG", "info");
        Self::start(command, copies, name)
    }

    fn start(mut command: Command, copies: &Copies, name: &str) -> Outcome<Self> {
        let log = copies.log(name);
        let file = File::options().create(true).append(true).open(&log)?;
        // What it said before it was killed.
        file.set_len(0)?;
        command.arg("--secret-file").arg(copies.secret()).env("RDMC_CONFIG", "/dev/null");
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { name: name.to_owned(), running: Running::start(&mut command)?, log })
    }

    /// What it has printed.
    fn said(&self) -> String {
        fs::read(&self.log)
            .map_or(String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    /// An error with the end of what it has printed.
    pub fn error(&self, what: &str) -> Box<dyn std::error::Error + Send + Sync> {
        let said = self.said();
        let from = said.char_indices().rev().nth(LOG_BYTES).map_or(0, |(at, _)| at);
        format!("{} {what}\n{}", self.name, &said[from..]).into()
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.running.0.try_wait()?)
    }

    /// Returns whether it was still running. Errors: it had failed before.
    pub fn kill(mut self) -> Outcome<bool> {
        self.running.0.kill()?;
        let status = self.running.0.wait()?;
        if !status.success() && status.signal().is_none() {
            return Err(self.error(&format!("has ended with {status}")));
        }
        Ok(!status.success())
    }

    /// Ends a server as systemd does. Errors: it ends otherwise than it should.
    pub fn end(mut self, interrupt: &Interrupt) -> Outcome<()> {
        if let Some(process) = Pid::from_raw(self.running.id() as i32) {
            kill_process(process, Signal::TERM)?;
        }
        let status = self.running.wait(POLL_INTERVAL, EXIT_TIMEOUT, interrupt, |_| Ok(()))?;
        if status.success() { Ok(()) } else { Err(self.error(&format!("has ended with {status}"))) }
    }
}
