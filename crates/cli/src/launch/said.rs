//! What a launched process prints.

use std::{
    io::{BufRead, BufReader, Read},
    process::{ChildStderr, ChildStdout},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use super::{
    order::{Report, TEXT_CHARS_MAX},
    program::COPIED,
};
use crate::{
    failure::print_message, hosts::HOSTS_MAX, invitation::FASTER_NETWORK, slurm::failed_nodes,
};

/// Longer lines end the reading.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The last line on standard error, and the reports on standard output.
#[derive(Clone, Default)]
pub struct Said {
    last_line: Arc<Mutex<String>>,
    faster_network: Arc<Mutex<Option<String>>>,
    reports: Arc<Mutex<Vec<Report>>>,
    /// Names of hosts whose processes have failed, each with the line that says so.
    failed: Arc<Mutex<Vec<(String, String)>>>,
}

impl Said {
    /// Reads standard error in a thread that ends when the last process that has the pipe open does; not joined.
    /// `show_as`: each line is also printed, behind this name. What it returns is told that a program is copied, and closed
    /// at the end. `of_nodes`: `srun` prints it.
    pub fn listen(
        &self,
        stderr: ChildStderr,
        show_as: Option<String>,
        of_nodes: bool,
    ) -> mpsc::Receiver<()> {
        let said = self.clone();
        let (copied, receiver) = mpsc::channel();
        let read = move || {
            for_each_line(stderr, |line| {
                if line == COPIED {
                    let _ = copied.send(());
                    return;
                }
                if let Some(host) = &show_as {
                    print_message(format_args!("{host}: {line}"));
                }
                if let Some(network) = line.strip_prefix(FASTER_NETWORK) {
                    let network = network.chars().take(TEXT_CHARS_MAX).collect();
                    *lock(&said.faster_network) = Some(network);
                    return;
                }
                let nodes = if of_nodes { failed_nodes(line) } else { Vec::new() };
                // Lines on exit codes must not hide the reason.
                if nodes.is_empty() || said.last_line().is_empty() {
                    said.take_line(line);
                }
                let mut failed = lock(&said.failed);
                let room = HOSTS_MAX.saturating_sub(failed.len());
                let line: String = line.chars().take(TEXT_CHARS_MAX).collect();
                failed.extend(nodes.into_iter().take(room).map(|name| (name, line.clone())));
            });
        };
        let _ = thread::Builder::new().name("rdmc-stderr".into()).spawn(read);
        receiver
    }

    /// Reads reports of these hosts in the same way. Others are ignored, and so are more than two of each host.
    pub fn listen_for_reports(&self, stdout: ChildStdout, hosts: Vec<usize>) {
        let said = self.clone();
        let read = move || {
            let mut left = 2 * hosts.len();
            for_each_line(stdout, |line| {
                let report = Report::from_line(line).filter(|it| hosts.contains(&it.host));
                if let Some(report) = report.filter(|_| left > 0) {
                    left -= 1;
                    lock(&said.reports).push(report);
                }
            });
        };
        let _ = thread::Builder::new().name("rdmc-stdout".into()).spawn(read);
    }

    /// The last line of standard error that is not empty; empty if there is none.
    pub fn last_line(&self) -> String {
        lock(&self.last_line).clone()
    }

    /// Takes the reports since the last call.
    pub fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut lock(&self.reports))
    }

    /// Takes the names of hosts of which a command for many has said, since the last call, that their processes have failed,
    /// each with that line.
    pub fn take_failed(&self) -> Vec<(String, String)> {
        std::mem::take(&mut lock(&self.failed))
    }

    /// The network that a receiver has named behind [`FASTER_NETWORK`].
    pub fn faster_network(&self) -> Option<String> {
        lock(&self.faster_network).clone()
    }

    fn take_line(&self, line: &str) {
        let line = line.trim();
        let mut last = lock(&self.last_line);
        // The lines after an error of the argument parser only describe the usage.
        let is_explained = last.starts_with("error: ") && !line.starts_with("rdmc: ");
        if !line.is_empty() && !is_explained {
            let line = line.strip_prefix("rdmc: ").unwrap_or(line);
            // Limits the output of a hostile or broken program.
            *last = line.chars().take(TEXT_CHARS_MAX).collect();
        }
    }
}

fn for_each_line(pipe: impl Read, mut take: impl FnMut(&str)) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(bytes) if bytes > 0 => take(String::from_utf8_lossy(&line).trim_end_matches('\n')),
            _ => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
