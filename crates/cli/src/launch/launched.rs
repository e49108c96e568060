//! A process that was started for one host, or for several hosts of which the first starts the others.

use std::{
    io,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use super::{
    feed::{Feed, Held},
    launcher::Launcher,
    line_reader::LineReader,
    logins::Login,
    order::{Callback, Recipient, Report},
    remedy::{FIREWALL, NOT_CONNECTED, remedy},
    said::Said,
};
use crate::invitation::Invitation;

/// The time that a killed process gets to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The wait for the last lines of a process that has ended, if another process holds its standard error open.
const LINES_TIMEOUT: Duration = Duration::from_secs(1);

/// Replaces the last line while the program has not arrived (`--copy-self`).
const NOT_COPIED: &str = "the program was not copied to it by then: give it more time (--timeout)";

/// A launched process.
pub struct Launched {
    /// The process was started on the first of the login's hosts.
    login: Login,
    since: Instant,
    /// Whether one command has started it on all hosts, not the first host.
    at_once: bool,
    is_late: bool,
    child: Child,
    status: Option<ExitStatus>,
    /// When the end of the process was detected.
    ended: Option<Instant>,
    /// The process has ended, and its output is known.
    is_over: bool,
    is_reported: bool,
    said: Said,
    /// The standard input of a process that starts others.
    held: Option<Held>,
}

impl Launched {
    /// Starts a process for the hosts of a login; `reader` reads its lines.
    ///
    /// Errors: why it cannot be started.
    pub fn start(
        launcher: &Launcher,
        login: &Login,
        callback: &Callback,
        reader: &LineReader,
    ) -> Result<Self, String> {
        let hosts = &login.hosts[..];
        let [own, others @ ..] = hosts else { return Err("no host".into()) };
        let at_once = launcher.starts_at_once(hosts);
        let launches = !others.is_empty() && !at_once;
        let mut command = launcher.command(hosts);
        let mut trace = None;
        if let Some(recording) = launcher.recording.as_ref().filter(|_| others.is_empty()) {
            let (part, out) = recording.part(own.host, &own.name).map_err(|error| {
                format!("cannot create a file for its part of the trace: {error}")
            })?;
            trace = Some(part);
            command.stdout(out);
        }
        let program_name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("the launcher \"{program_name}\" is not installed here; see --launcher")
            }
            _ => format!("the launcher \"{program_name}\" cannot be run: {error}"),
        })?;
        let invitation = Invitation {
            // One text for all receivers; each knows its own name.
            host: if at_once { String::new() } else { own.name.clone() },
            secret: callback.secret.clone(),
            token: own.token.clone(),
            addresses: callback.addresses.clone(),
            networks: callback.networks.clone(),
            port: callback.port,
            makes_directories: callback.makes_directories,
            trace,
        };
        let mut text = invitation.to_line();
        if launches {
            let order = launcher.order(hosts).to_line();
            text = Zeroizing::new([text.as_str(), order.as_str()].concat());
        }
        let (said, mut program) = (Said::default(), None);
        if launcher.program.is_some() {
            said.await_program();
        }
        if let Some(stderr) = child.stderr.take() {
            let name = if at_once { &program_name } else { &own.name };
            let show_as = launcher.verbose.then(|| name.clone());
            let copied = said.listen(reader, stderr, show_as, launcher.takes_lists);
            program = launcher.program.clone().map(|program| (program, copied));
        }
        if let Some(stdout) = child.stdout.take() {
            said.listen_for_reports(reader, stdout, hosts.iter().map(|to| to.host).collect());
        }
        let stdin = child.stdin.take();
        let (login, since) = (login.clone(), Instant::now());
        let (is_late, is_over, is_reported) = (false, false, false);
        let (status, ended, held) = (None, None, None);
        let mut launched = Self {
            login,
            since,
            at_once,
            is_late,
            child,
            status,
            ended,
            is_over,
            is_reported,
            said,
            held,
        };
        let feed = Feed { program, text };
        let fed = match stdin {
            Some(stdin) if launches => feed.held(stdin).map(|held| launched.held = Some(held)),
            Some(stdin) => feed.once(stdin),
            None => Ok(()),
        };
        if let Err(error) = fed {
            launched.kill();
            return Err(format!("starting a thread: {error}"));
        }
        Ok(launched)
    }

    /// The host that the process was started on.
    pub fn own(&self) -> &Recipient {
        &self.login.hosts[0]
    }

    /// The hosts on which the process starts receivers; all hosts if it runs on none of them.
    pub fn others(&self) -> &[Recipient] {
        let all = &self.login.hosts;
        if self.at_once { all } else { &all[1..] }
    }

    /// Whether the process runs on this host, so that its lines are about this host.
    pub fn is_on(&self, host: usize) -> bool {
        !self.at_once && self.own().host == host
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Recipient] {
        &self.login.hosts
    }

    /// The login of this process.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// Whether the ssh server has closed the connection before it accepted the user's key, so that nothing has run there; valid
    /// while [`Self::news`] has not reported the end yet.
    pub fn was_refused(&self) -> bool {
        let has_failed = self.is_over && self.status.is_some_and(|status| !status.success());
        has_failed && !self.is_reported && !self.at_once && self.said.was_refused()
    }

    /// The time since the start of the process.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// True once, if the process starts others and has run for this time.
    pub fn is_late_now(&mut self, timeout: Duration) -> bool {
        let was_late = self.is_late;
        self.is_late = self.age() > timeout;
        self.is_late && !was_late && !self.has_ended() && !self.others().is_empty()
    }

    /// The exit status, if the process has ended.
    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        if self.status.is_some() {
            let ended = *self.ended.get_or_insert_with(Instant::now);
            self.is_over |= self.said.is_all() || ended.elapsed() > LINES_TIMEOUT;
        }
        self.status
    }

    /// Whether the process has ended and its output is known.
    pub fn is_over(&mut self) -> bool {
        self.poll();
        self.is_over
    }

    /// Whether the end of the process was detected.
    pub fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// Whether [`Self::news`] has reported the end of the process.
    pub fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Reports since the last call; that of the process itself once, in the call after the one that detects that it is
    /// over.
    pub fn news(&mut self) -> Vec<Report> {
        let mut reports = self.said.take_reports();
        for (name, reason) in self.said.take_failed().into_iter().filter(|_| self.at_once) {
            let found = self.login.hosts.iter().find(|to| to.name == name);
            reports.extend(found.map(|to| Report { host: to.host, reason, line: None }));
        }
        let ended = self.status.filter(|_| self.is_over && !self.is_reported);
        self.is_reported |= ended.is_some();
        self.poll();
        if let Some(status) = ended {
            let reason = self.reason(status);
            if !status.success() {
                let name = if self.at_once { "the command" } else { &self.own().name };
                let why = self.last_line().unwrap_or_default();
                let reason = format!("{name}, which was to start it, has ended: {why}");
                let of =
                    |to: &Recipient| Report { host: to.host, reason: reason.clone(), line: None };
                reports.extend(self.others().iter().map(of));
            }
            if !self.at_once {
                reports.push(Report { host: self.own().host, reason, line: self.last_line() });
            }
        }
        reports
    }

    /// Why the process has ended.
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
        let tries = match self.login.refusals {
            0 => String::new(),
            refusals => format!(" (tried {} times)", refusals + 1),
        };
        if let Some(cause) = line.strip_prefix(NOT_CONNECTED).filter(|_| self.said.is_own()) {
            return format!("its receiver could not reach this machine: {cause}; {FIREWALL}");
        }
        match remedy(&line, self.said.is_own()) {
            Some(remedy) => {
                let line = line.trim_end_matches('.');
                format!("its receiver could not be started: {line}{tries}; {remedy}")
            }
            None => format!("its receiver could not be started: {line}{tries}"),
        }
    }

    /// The last line; else the exit status if the process failed, or that it has no program yet.
    pub fn last_line(&self) -> Option<String> {
        let line = self.said.last_line();
        match self.status {
            _ if !line.is_empty() => Some(line),
            Some(status) => (!status.success()).then(|| status.to_string()),
            None => self.said.lacks_program().then(|| NOT_COPIED.to_owned()),
        }
    }

    /// The faster network that this host shares with the root, if the receiver has named one.
    pub fn faster_network(&self) -> Option<String> {
        self.said.faster_network()
    }

    /// Tells a process that starts others that the push is over.
    pub fn close_input(&mut self) {
        self.held = None;
    }

    /// Kills the process if it is running. The status is not kept, since it would show this kill. A process that the kernel
    /// does not end in [`KILL_TIMEOUT`], as it waits for a device, is left.
    pub fn kill(&mut self) {
        if self.poll().is_none() {
            let _ = self.child.kill();
            let until = Instant::now() + KILL_TIMEOUT;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
