//! What a launched process prints.

use std::{
    process::{ChildStderr, ChildStdout},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use super::{
    line_reader::LineReader,
    order::{Report, TEXT_CHARS_MAX},
    program::COPIED,
};
use crate::{
    failure::print_message, hosts::HOSTS_MAX, invitation::FASTER_NETWORK, slurm::failed_nodes,
};

/// The start of informational lines of ssh, which users can enable (`LogLevel`); never a reason of a failure.
const CHATTER: [&str; 7] = [
    "debug1: ",
    "debug2: ",
    "debug3: ",
    "Authenticating to ",
    "Authenticated to ",
    "Transferred: sent ",
    "Bytes per second: sent ",
];
/// What ssh prints if a server closes a connection before it has accepted the user's key, after one of two function names.
const REFUSED: [&str; 4] =
    ["Connection closed", "Connection reset", "Not allowed at this time", "Exceeded MaxStartups"];
/// The start of what ssh prints if a gateway cannot reach the host.
const GATEWAY: &str = "channel 0: open failed";
/// The start of lines that ssh prints after these; they add nothing.
const CONSEQUENCES: [&str; 3] =
    ["Connection closed by ", "Connection reset by ", "stdio forwarding failed"];

/// The last informative line, without the name of this program.
#[derive(Default)]
struct Last {
    text: String,
    /// This program has printed the line.
    is_own: bool,
    /// This program has printed a line at the host.
    has_run: bool,
    /// A server has refused the login.
    was_refused: bool,
}

/// The last line on standard error, and the reports on standard output.
#[derive(Clone, Default)]
pub struct Said {
    last: Arc<Mutex<Last>>,
    /// Whether standard error was read to its end.
    is_all: Arc<AtomicBool>,
    /// Whether a program that is to be copied has not arrived yet.
    lacks_program: Arc<AtomicBool>,
    faster_network: Arc<Mutex<Option<String>>>,
    reports: Arc<Mutex<Vec<Report>>>,
    /// Names of hosts whose processes have failed, each with the line that reports it.
    failed: Arc<Mutex<Vec<(String, String)>>>,
}

impl Said {
    /// Reads the lines of standard error. `show_as`: each is also printed, after this name. The returned channel gets a message
    /// when a program was copied, and is closed at the end. `of_nodes`: `srun` prints the lines.
    pub fn listen(
        &self,
        reader: &LineReader,
        stderr: ChildStderr,
        show_as: Option<String>,
        of_nodes: bool,
    ) -> mpsc::Receiver<()> {
        let said = self.clone();
        let (copied, receiver) = mpsc::channel();
        reader.add(stderr, move |line| {
            let Some(line) = line else {
                said.is_all.store(true, Ordering::Release);
                return;
            };
            if line == COPIED {
                said.lacks_program.store(false, Ordering::Release);
                let _ = copied.send(());
                return;
            }
            if let Some(host) = &show_as {
                print_message(format_args!("{host}: {line}"));
            }
            said.take(line, of_nodes);
        });
        receiver
    }

    /// Reads reports of these hosts in the same way. Ignores reports of other hosts, and more than two of each host.
    pub fn listen_for_reports(&self, reader: &LineReader, stdout: ChildStdout, hosts: Vec<usize>) {
        let said = self.clone();
        let mut left = 2 * hosts.len();
        reader.add(stdout, move |line| {
            let report = line.and_then(Report::from_line).filter(|it| hosts.contains(&it.host));
            if let Some(report) = report.filter(|_| left > 0) {
                left -= 1;
                lock(&said.reports).push(report);
            }
        });
    }

    fn take(&self, line: &str, of_nodes: bool) {
        if let Some(network) = line.strip_prefix(FASTER_NETWORK) {
            let network = network.chars().take(TEXT_CHARS_MAX).collect();
            *lock(&self.faster_network) = Some(network);
            return;
        }
        let nodes = if of_nodes { failed_nodes(line) } else { Vec::new() };
        // Lines on exit codes must not hide the reason.
        if nodes.is_empty() || self.last_line().is_empty() {
            self.take_line(line);
        }
        let mut failed = lock(&self.failed);
        let room = HOSTS_MAX.saturating_sub(failed.len());
        let line: String = line.chars().take(TEXT_CHARS_MAX).collect();
        failed.extend(nodes.into_iter().take(room).map(|name| (name, line.clone())));
    }

    /// The last informative line of standard error; empty if there is none.
    pub fn last_line(&self) -> String {
        lock(&self.last).text.clone()
    }

    /// Expects the message that a program was copied from now on.
    pub fn await_program(&self) {
        self.lacks_program.store(true, Ordering::Release);
    }

    /// Whether a program that is to be copied has not arrived yet.
    pub fn lacks_program(&self) -> bool {
        self.lacks_program.load(Ordering::Acquire)
    }

    /// Whether this program has printed the last line at the host, and not the launcher or the host's shell.
    pub fn is_own(&self) -> bool {
        lock(&self.last).is_own
    }

    /// Whether standard error was read to its end. A process left behind by another one can hold it open.
    pub fn is_all(&self) -> bool {
        self.is_all.load(Ordering::Acquire)
    }

    /// Whether an ssh server has refused the login, before anything ran there.
    pub fn was_refused(&self) -> bool {
        let last = lock(&self.last);
        last.was_refused && !last.has_run
    }

    /// Takes the reports since the last call.
    pub fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut lock(&self.reports))
    }

    /// Takes the names of hosts whose processes have failed, as reported since the last call by a command for many hosts,
    /// each with that line.
    pub fn take_failed(&self) -> Vec<(String, String)> {
        std::mem::take(&mut lock(&self.failed))
    }

    /// The network that a receiver has named after [`FASTER_NETWORK`].
    pub fn faster_network(&self) -> Option<String> {
        lock(&self.faster_network).clone()
    }

    fn take_line(&self, line: &str) {
        lock(&self.last).take(line.trim());
    }
}

impl Last {
    fn take(&mut self, line: &str) {
        let own = line.strip_prefix("rdmc: ");
        self.has_run |= own.is_some();
        let is_identification = is_of_identification(line);
        let is_refusal = is_identification && REFUSED.iter().any(|part| line.contains(part));
        let is_of_gateway = self.text.starts_with(GATEWAY);
        self.was_refused |= is_refusal && !is_of_gateway;
        // The lines after an error of the argument parser only describe the usage.
        let is_explained = self.text.starts_with("error: ") && own.is_none();
        let has_cause = is_of_gateway || is_of_identification(&self.text);
        let is_consequence =
            is_identification || CONSEQUENCES.iter().any(|part| line.starts_with(part));
        let is_chatter = line.is_empty() || CHATTER.iter().any(|part| line.starts_with(part));
        let is_news = !(is_chatter || is_explained || has_cause && is_consequence);
        if is_news {
            self.is_own = own.is_some();
            // Limits the output of a hostile or broken program.
            self.text = own.unwrap_or(line).chars().take(TEXT_CHARS_MAX).collect();
        }
    }
}

/// Whether ssh prints this line when both ends exchange their identification.
fn is_of_identification(line: &str) -> bool {
    ["kex_exchange_identification: ", "ssh_exchange_identification: "]
        .iter()
        .any(|name| line.starts_with(name))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last informative line of these, and whether the login was refused.
    fn last(lines: &[&str]) -> (String, bool) {
        let said = Said::default();
        lines.iter().for_each(|line| said.take_line(line));
        (said.last_line(), said.was_refused())
    }

    /// As OpenSSH 9.2 prints them.
    #[test]
    fn refusals_are_told_from_what_comes_later() {
        let closed = "kex_exchange_identification: Connection closed by remote host";
        let lines = [closed, "Connection closed by 10.0.0.1 port 22", ""];
        assert_eq!(last(&lines), (closed.into(), true));
        let reset = "kex_exchange_identification: read: Connection reset by peer";
        assert_eq!(last(&[reset, "Connection reset by 10.0.0.1 port 22"]), (reset.into(), true));
        let old = "ssh_exchange_identification: Connection closed by remote host";
        assert_eq!(last(&[old]), (old.into(), true));
        let banner = "kex_exchange_identification: banner line contains invalid characters";
        assert_eq!(last(&[banner]), (banner.into(), false), "no server of ssh");
        for later in ["Connection reset by 10.0.0.1 port 22", "client_loop: send disconnect"] {
            assert_eq!(last(&[later]), (later.into(), false));
        }
        assert_eq!(last(&[closed, "rdmc: lost the root"]), ("lost the root".into(), false));
        let gateway = "channel 0: open failed: connect failed: No route to host";
        let lines =
            [gateway, "stdio forwarding failed", closed, "Connection closed by UNKNOWN port 65535"];
        assert_eq!(last(&lines), (gateway.into(), false));
    }

    #[test]
    fn what_ssh_logs_hides_no_reason() {
        let why = "sh: 1: exec: rdmc: not found";
        let lines = [
            "debug1: Sending command: rdmc receive",
            "Authenticated to a ([::1]:22) using \"publickey\".",
            why,
            "debug1: client_input_channel_req: channel 0 rtype exit-status reply 0",
            "Transferred: sent 3424, received 2872 bytes, in 0.0 seconds",
            "Bytes per second: sent 141374.3, received 118582.3",
            "debug1: Exit status 127",
        ];
        assert_eq!(last(&lines), (why.into(), false));
        assert_eq!(last(&["rdmc: no space"]).0, "no space");
        assert_eq!(
            last(&["error: unexpected argument", "Usage: x"]).0,
            "error: unexpected argument"
        );
    }
}
