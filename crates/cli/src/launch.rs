//! Receiver processes: starting them on their hosts, and watching them.
//!
//! Each running one costs a descriptor here, its standard error (and one more with a trace).

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Write},
    net::IpAddr,
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use files::PushHandle;
use rdmc::Secret;

use crate::{
    failure::{Failure, print_message},
    invitation::Invitation,
    launch_remedy::remedy,
    recording::Recording,
};

/// How often processes are checked.
const TICK: Duration = Duration::from_millis(20);
/// How long processes may take to end by themselves after the push.
const END_TIMEOUT: Duration = Duration::from_secs(4);
/// The same for those of lost hosts, which may still print the reason.
const LOST_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The default of how many launchers start at the same time: enough for all processors, few enough for the ssh servers
/// behind one gateway.
const FANOUT: usize = 64;

/// The command that starts a receiver on a host.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The arguments before the receiver's own; `{host}` stands for the host. Empty: on this machine.
    words: Vec<String>,
    /// The receiver's program.
    rdmc: String,
    verbose: bool,
    recording: Option<Arc<Recording>>,
    /// How many start at the same time.
    fanout: usize,
    /// How long all of them together may take to connect.
    timeout: Duration,
}

impl Launcher {
    /// A launcher from a template like `ssh {host}`, split into words as a shell would.
    pub fn from_template(template: &str, rdmc: &str, verbose: bool) -> Result<Self, Failure> {
        let words = shlex::split(template).filter(|words| !words.is_empty()).ok_or_else(|| {
            Failure::Usage(format!("--launcher \"{template}\" is not a command (unclosed quotes?)"))
        })?;
        if !words.iter().any(|word| word.contains("{host}")) {
            let why = "has no {host}, so all receivers would start on the same host";
            return Err(Failure::Usage(format!("--launcher \"{template}\" {why}")));
        }
        // ssh joins its arguments with spaces, and a shell at the host splits them.
        let is_ssh = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "ssh");
        let rdmc = match words.iter().any(is_ssh) {
            true => quoted(rdmc)?,
            false => rdmc.to_owned(),
        };
        Ok(Self::new(words, rdmc, verbose))
    }

    fn new(words: Vec<String>, rdmc: String, verbose: bool) -> Self {
        let (fanout, timeout) = (FANOUT, Duration::from_secs(30));
        Self { words, rdmc, verbose, recording: None, fanout, timeout }
    }

    /// Starts this program on this machine.
    pub fn local(verbose: bool) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(Failure::while_doing("finding this program"))?;
        let rdmc = own.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::Failed(format!("the path of this program, {own:?}, is not UTF-8"))
        })?;
        Ok(Self::new(Vec::new(), rdmc, verbose))
    }

    /// Limits how many start at the same time, and the time for all.
    pub fn limited(self, fanout: usize, timeout: Duration) -> Self {
        Self { fanout, timeout, ..self }
    }

    /// How long a receiver that does not connect delays the next ones: short enough that even if none connects, all
    /// are started within half of the timeout.
    fn start_timeout(&self, hosts: usize) -> Duration {
        let rounds = hosts.div_ceil(self.fanout).max(1);
        self.timeout / 2 / u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// Lets receivers write their parts of this trace.
    pub fn recorded(self, recording: Option<&Arc<Recording>>) -> Self {
        Self { recording: recording.cloned(), ..self }
    }

    fn command(&self, host: &str) -> Command {
        let mut words = self.words.iter().map(|word| word.replace("{host}", host));
        let mut command = Command::new(words.next().unwrap_or_else(|| self.rdmc.clone()));
        command.args(words);
        if !self.words.is_empty() {
            command.arg(&self.rdmc);
        }
        command.args(["receive", "--session"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

/// Quotes a path for the shell at the host, except a leading `~/`.
fn quoted(path: &str) -> Result<String, Failure> {
    let (home, rest) = match path.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", path),
    };
    let rest = shlex::try_quote(rest)
        .map_err(|error| Failure::Usage(format!("--remote-rdmc {path:?}: {error}")))?;
    Ok(format!("{home}{rest}"))
}

/// Where receivers connect.
#[derive(Clone)]
pub struct Callback {
    /// The root's addresses.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
    /// The session's secret.
    pub secret: Secret,
}

/// The processes of a push.
pub struct Receivers {
    processes: Arc<Mutex<Processes>>,
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Processes {
    /// Hosts without a started receiver, by index and name.
    waiting: VecDeque<(usize, String)>,
    launched: Vec<Launched>,
}

struct Launched {
    host: usize,
    /// How many were started on this host before.
    start: u32,
    since: Instant,
    has_connected: bool,
    child: Child,
    status: Option<ExitStatus>,
    /// Its last line on standard error that is not empty.
    last_line: Arc<Mutex<String>>,
}

impl Receivers {
    /// Starts a thread that starts a receiver on each host (index and name). Receivers that cannot be started, or end,
    /// are reported to the push.
    ///
    /// Errors: no thread.
    pub fn launch(
        launcher: &Launcher,
        hosts: &[(usize, String)],
        callback: &Callback,
        push: &PushHandle,
    ) -> Result<Self, Failure> {
        let processes =
            Processes { waiting: hosts.iter().cloned().collect(), launched: Vec::new() };
        let processes = Arc::new(Mutex::new(processes));
        let ended = Arc::new(AtomicBool::new(false));
        let timeout = launcher.start_timeout(hosts.len());
        let (watched, stop, push) = (Arc::clone(&processes), Arc::clone(&ended), push.clone());
        let (launcher, callback) = (launcher.clone(), callback.clone());
        let watch = move || {
            while !stop.load(Ordering::Relaxed) {
                lock(&watched).launched.iter_mut().for_each(|launched| launched.check(&push));
                while !stop.load(Ordering::Relaxed) {
                    let next = lock(&watched).next(launcher.fanout, timeout);
                    let Some((host, name)) = next else { break };
                    match start(&launcher, (host, &name), 0, &callback) {
                        Ok(launched) => lock(&watched).launched.push(launched),
                        Err(reason) => push.host_failed(host, 0, reason),
                    }
                }
                thread::sleep(TICK);
            }
        };
        let watcher = thread::Builder::new()
            .name("rdmc-watch".into())
            .spawn(watch)
            .map_err(Failure::while_doing("starting a thread"))?;
        Ok(Self { processes, ended, watcher: Some(watcher) })
    }

    /// A host's receiver has connected or is given up: the next one may start.
    pub fn has_connected(&self, host: usize) {
        let mut processes = lock(&self.processes);
        for launched in processes.launched.iter_mut().filter(|launched| launched.host == host) {
            launched.has_connected = true;
        }
    }

    /// Starts another receiver on a host whose last one was lost: the `start`th after the first.
    pub fn launch_again(
        &self,
        launcher: &Launcher,
        host: (usize, &str),
        start: u32,
        callback: &Callback,
        push: &PushHandle,
    ) {
        let mut processes = lock(&self.processes);
        processes.waiting.retain(|waiting| waiting.0 != host.0);
        processes.launched.retain_mut(|launched| {
            let is_kept = launched.host != host.0;
            if !is_kept {
                launched.kill();
            }
            is_kept
        });
        match self::start(launcher, host, start, callback) {
            Ok(launched) => processes.launched.push(launched),
            Err(reason) => push.host_failed(host.0, start, reason),
        }
    }

    /// Waits a short time for all processes to end, less for those of lost hosts, and kills the rest.
    pub fn end(&mut self, is_lost: &dyn Fn(usize) -> bool) {
        let started = Instant::now();
        // First the watching thread, so that it does not report processes that are killed here.
        self.ended.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        let is_waited_for = |launched: &mut Launched| {
            let timeout = if is_lost(launched.host) { LOST_END_TIMEOUT } else { END_TIMEOUT };
            launched.poll().is_none() && started.elapsed() < timeout
        };
        while lock(&self.processes).launched.iter_mut().any(is_waited_for) {
            thread::sleep(TICK);
        }
        lock(&self.processes).launched.iter_mut().for_each(Launched::kill);
    }

    /// The last line of a host's process, else its exit status if it failed.
    pub fn last_line(&self, host: usize) -> Option<String> {
        let processes = lock(&self.processes);
        let launched = processes.launched.iter().find(|launched| launched.host == host)?;
        let line = lock(&launched.last_line).clone();
        let status = launched.status.filter(|status| !status.success());
        if line.is_empty() { status.map(|status| status.to_string()) } else { Some(line) }
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        if self.watcher.is_some() {
            self.end(&|_| false);
        }
    }
}

impl Processes {
    /// The next host to start a receiver on, unless `fanout` are starting already.
    fn next(&mut self, fanout: usize, timeout: Duration) -> Option<(usize, String)> {
        let is_starting = |launched: &&Launched| {
            let has_time = launched.since.elapsed() < timeout;
            has_time && !launched.has_connected && launched.status.is_none()
        };
        let starting = self.launched.iter().filter(is_starting).count();
        if starting < fanout { self.waiting.pop_front() } else { None }
    }
}

impl Launched {
    /// Kills it if it is running. Its status is not kept, since it would show this kill.
    fn kill(&mut self) {
        if self.poll().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Reports the process once when it has ended.
    fn check(&mut self, push: &PushHandle) {
        if self.status.is_some() || self.poll().is_none() {
            return;
        }
        // Its last line may still be in the pipe.
        thread::sleep(TICK);
        let line = lock(&self.last_line).clone();
        let reason = match self.status {
            // Another version of the program rejects the arguments.
            Some(status) if line.starts_with("error: ") && status.code() == Some(2) => format!(
                "its receiver could not be started: {line}; is the same version of rdmc installed \
                 there? (see --remote-rdmc)"
            ),
            _ if !line.is_empty() => match remedy(&line) {
                Some(remedy) => format!("its receiver could not be started: {line}; {remedy}"),
                None => format!("its receiver could not be started: {line}"),
            },
            Some(status) => format!(
                "its receiver ended before it connected ({status}); is rdmc installed there? \
                 (see --remote-rdmc)"
            ),
            None => return,
        };
        push.host_failed(self.host, self.start, reason);
    }
}

/// Starts a receiver on a host (index and name); `start`: how many were started there before.
///
/// Errors: why it cannot be started.
fn start(
    launcher: &Launcher,
    (index, host): (usize, &str),
    start: u32,
    callback: &Callback,
) -> Result<Launched, String> {
    let mut command = launcher.command(host);
    let mut trace = None;
    if let Some(recording) = &launcher.recording {
        let (part, out) = recording
            .part(index, host)
            .map_err(|error| format!("cannot create a file for its part of the trace: {error}"))?;
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
        host: host.to_owned(),
        secret: callback.secret.clone(),
        addresses: callback.addresses.clone(),
        port: callback.port,
        trace,
    };
    if let Some(mut stdin) = child.stdin.take() {
        // It fits into the pipe, so this does not block. A process that has ended is reported by its status.
        let _ = stdin.write_all(invitation.to_line().as_bytes());
    }
    let last_line = Arc::new(Mutex::new(String::new()));
    if let Some(stderr) = child.stderr.take() {
        let (words, host, verbose) = (Arc::clone(&last_line), host.to_owned(), launcher.verbose);
        // Ends when the last process that has the pipe open does; not joined.
        let _ = thread::Builder::new()
            .name("rdmc-stderr".into())
            .spawn(move || read_lines(stderr, &words, verbose.then_some(&host)));
    }
    let (since, has_connected, status) = (Instant::now(), false, None);
    Ok(Launched { host: index, start, since, has_connected, child, status, last_line })
}

fn read_lines(stderr: ChildStderr, last_line: &Mutex<String>, show_as: Option<&String>) {
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        if let Some(host) = show_as {
            print_message(format_args!("{host}: {line}"));
        }
        let line = line.trim();
        let mut last = lock(last_line);
        // The lines after an error of the argument parser only describe the usage.
        let is_explained = last.starts_with("error: ") && !line.starts_with("rdmc: ");
        if !line.is_empty() && !is_explained {
            let line = line.strip_prefix("rdmc: ").unwrap_or(line);
            // Limits the output of a hostile or broken program.
            *last = line.chars().take(500).collect();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(template: &str, rdmc: &str) -> String {
        let command = Launcher::from_template(template, rdmc, false).unwrap().command("a");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        words[words.len() - 3].clone().into_owned()
    }

    #[test]
    fn a_remote_path_is_quoted_as_one_word() {
        for ssh in ["ssh {host}", "/usr/bin/ssh -p 22 {host}", "timeout 9 ssh {host} sudo"] {
            assert_eq!(program(ssh, "/opt/rdmc"), "/opt/rdmc");
            assert_eq!(program(ssh, "/opt/my tools/rdmc"), "'/opt/my tools/rdmc'");
            assert_eq!(program(ssh, "~/my tools/rdmc"), "~/'my tools/rdmc'");
            assert_eq!(program(ssh, "~/bin/rdmc"), "~/bin/rdmc");
        }
        assert_eq!(program("ip netns exec {host}", "/opt/my tools/rdmc"), "/opt/my tools/rdmc");
    }

    #[test]
    fn all_are_started_within_half_of_the_timeout() {
        let launcher = Launcher::from_template("ssh {host}", "rdmc", false).unwrap();
        let launcher = launcher.limited(64, Duration::from_secs(30));
        for hosts in [0_usize, 1, 64, 65, 1000, 10_000] {
            let rounds = u32::try_from(hosts.div_ceil(64)).unwrap();
            assert!(launcher.start_timeout(hosts) * rounds <= Duration::from_secs(15), "{hosts}");
            assert!(launcher.start_timeout(hosts) > TICK, "{hosts}");
        }
    }
}
