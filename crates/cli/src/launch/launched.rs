//! A process that was started for one host, or for several of which the first starts the others.

use std::{
    io,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use super::{
    feed::Feed,
    launcher::Launcher,
    order::{Callback, Report},
    remedy::remedy,
    said::Said,
};
use crate::invitation::Invitation;

/// How long the last line of a process that has ended may take to be read.
const LINE_DELAY: Duration = Duration::from_millis(20);

/// A launched process.
pub struct Launched {
    /// Index and name; the first is the one that it was started on.
    hosts: Vec<(usize, String)>,
    /// How many were started on its host before.
    start: u32,
    since: Instant,
    is_late: bool,
    child: Child,
    status: Option<ExitStatus>,
    said: Said,
    /// Held where it starts others.
    feed: Option<Feed>,
}

impl Launched {
    /// Starts a process for these hosts; `start`: how many were started on the first before.
    ///
    /// Errors: why it cannot be started.
    pub fn start(
        launcher: &Launcher,
        hosts: &[(usize, String)],
        start: u32,
        callback: &Callback,
    ) -> Result<Self, String> {
        let [(index, host), others @ ..] = hosts else { return Err("no host".into()) };
        let launches = !others.is_empty();
        let mut command = launcher.command(host, launches);
        let mut trace = None;
        if let Some(recording) = launcher.recording.as_ref().filter(|_| !launches) {
            let (part, out) = recording.part(*index, host).map_err(|error| {
                format!("cannot create a file for its part of the trace: {error}")
            })?;
            trace = Some(part);
            command.stdout(out);
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("the launcher \"{program}\" is not installed here; see --launcher")
            }
            _ => format!("the launcher \"{program}\" cannot be run: {error}"),
        })?;
        let invitation = Invitation {
            host: host.clone(),
            secret: callback.secret.clone(),
            addresses: callback.addresses.clone(),
            port: callback.port,
            trace,
        };
        let said = Said::default();
        if let Some(stderr) = child.stderr.take() {
            said.listen(stderr, launcher.verbose.then(|| host.clone()));
        }
        if let Some(stdout) = child.stdout.take() {
            said.listen_for_reports(stdout, hosts.iter().map(|(index, _)| *index).collect());
        }
        let text = invitation.to_line();
        let feed = match child.stdin.take() {
            Some(stdin) if launches => {
                let order = Zeroizing::new(launcher.order(hosts).to_line());
                Feed::held(stdin, Zeroizing::new([text.as_str(), order.as_str()].concat()))
                    .map(Some)
                    .map_err(|error| format!("starting a thread: {error}"))?
            }
            Some(stdin) => {
                Feed::once(stdin, &text);
                None
            }
            None => None,
        };
        let (hosts, since) = (hosts.to_vec(), Instant::now());
        Ok(Self { hosts, start, since, is_late: false, child, status: None, said, feed })
    }

    /// The host that it was started on, by index and name.
    pub fn own(&self) -> (usize, &str) {
        let (index, name) = &self.hosts[0];
        (*index, name)
    }

    /// The hosts that it starts receivers on in turn.
    pub fn others(&self) -> &[(usize, String)] {
        &self.hosts[1..]
    }

    /// All hosts, by index and name.
    pub fn hosts(&self) -> &[(usize, String)] {
        &self.hosts
    }

    /// How many were started on its host before.
    pub fn start_number(&self) -> u32 {
        self.start
    }

    /// Time since it was started.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Once, when it starts others and has run for so long.
    pub fn is_late_now(&mut self, timeout: Duration) -> bool {
        let was_late = self.is_late;
        self.is_late = self.age() > timeout;
        self.is_late && !was_late && !self.has_ended() && !self.others().is_empty()
    }

    /// Its exit status, if it has ended.
    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Whether it was seen to end.
    pub fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// Reports that have come since the last call; of the process itself once, when it has ended.
    pub fn news(&mut self) -> Vec<Report> {
        let had_ended = self.has_ended();
        let has_ended = !had_ended && self.poll().is_some();
        if has_ended {
            // Its last line may still be in the pipe.
            thread::sleep(LINE_DELAY);
        }
        let mut reports = self.said.take_reports();
        if let Some(status) = self.status.filter(|_| has_ended) {
            let reason = self.reason(status);
            if !status.success() {
                let (name, why) = (self.own().1, self.last_line().unwrap_or_default());
                let reason = format!("{name}, which was to start it, has ended: {why}");
                let of = |(host, _): &(usize, String)| Report {
                    host: *host,
                    reason: reason.clone(),
                    line: None,
                };
                reports.extend(self.others().iter().map(of));
            }
            reports.push(Report { host: self.own().0, reason, line: self.last_line() });
        }
        reports
    }

    /// Why it ended.
    fn reason(&self, status: ExitStatus) -> String {
        let line = self.said.last_line();
        // Another version of the program rejects the arguments.
        if line.starts_with("error: ") && status.code() == Some(2) {
            return format!(
                "its receiver could not be started: {line}; is the same version of rdmc installed \
                 there? (see --remote-rdmc)"
            );
        }
        if line.is_empty() {
            return format!(
                "its receiver ended before it connected ({status}); is rdmc installed there? \
                 (see --remote-rdmc)"
            );
        }
        match remedy(&line) {
            Some(remedy) => format!("its receiver could not be started: {line}; {remedy}"),
            None => format!("its receiver could not be started: {line}"),
        }
    }

    /// Its last line, else its exit status if it failed.
    pub fn last_line(&self) -> Option<String> {
        let line = self.said.last_line();
        let status = self.status.filter(|status| !status.success());
        if line.is_empty() { status.map(|status| status.to_string()) } else { Some(line) }
    }

    /// Lets a process that starts others know that the push is over.
    pub fn close_input(&mut self) {
        self.feed = None;
    }

    /// Kills it if it is running. Its status is not kept, since it would show this kill.
    pub fn kill(&mut self) {
        if self.poll().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
