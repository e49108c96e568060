//! Starting receivers on their hosts, and what becomes of these processes.
//!
//! Each costs this process one descriptor while it runs, its standard error (and one more with a trace), beside
//! those of the few that are starting.

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
    failure::{Failure, say},
    invitation::Invitation,
    recording::Recording,
};

/// How often processes are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long processes may take to end by themselves when the push is over.
const FAREWELL: Duration = Duration::from_secs(4);
/// The same for those of hosts that were lost: they say why, if they can.
const LOST_FAREWELL: Duration = Duration::from_secs(1);

/// How many launchers may be starting at the same time, unless something else is said. More of them than processors
/// only wait for each other; much more, and servers of ssh behind a common gateway refuse them.
const FANOUT: usize = 64;

/// The command that starts a receiver on a host.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Words before the receiver's own; `{host}` stands for the host. None: on this machine.
    words: Vec<String>,
    /// The receiver's program.
    rdmc: String,
    verbose: bool,
    recording: Option<Arc<Recording>>,
    /// How many may be starting at the same time.
    fanout: usize,
    /// How long all of them together may take to call back.
    timeout: Duration,
}

impl Launcher {
    /// A launcher made of a template like `ssh {host}`, split as a shell would, without one.
    pub fn from_template(template: &str, rdmc: &str, verbose: bool) -> Result<Self, Failure> {
        let words = shlex::split(template).filter(|words| !words.is_empty()).ok_or_else(|| {
            Failure::Usage(format!("--launcher \"{template}\" is not a command (open quotes?)"))
        })?;
        if !words.iter().any(|word| word.contains("{host}")) {
            let why = "has no {host}, so all receivers would start in the same place";
            return Err(Failure::Usage(format!("--launcher \"{template}\" {why}")));
        }
        // It joins its words with spaces, and a shell at the host takes them apart.
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

    /// Starts this very program, on this machine.
    pub fn local(verbose: bool) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(Failure::while_doing("finding this program"))?;
        let rdmc = own.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::Failed(format!("the path of this program, {own:?}, is not UTF-8"))
        })?;
        Ok(Self::new(Vec::new(), rdmc, verbose))
    }

    /// At most so many start at the same time, and all within this time.
    pub fn paced(self, fanout: usize, timeout: Duration) -> Self {
        Self { fanout, timeout, ..self }
    }

    /// How long one that does not call back keeps others from being started: so that even if none does,
    /// all have been started in half of the time that they have.
    fn patience(&self, hosts: usize) -> Duration {
        let rounds = hosts.div_ceil(self.fanout).max(1);
        self.timeout / 2 / u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// Receivers write their parts of this trace.
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

/// One word of a shell at the host, where `~/` stays what it is.
fn quoted(path: &str) -> Result<String, Failure> {
    let (home, rest) = match path.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", path),
    };
    let rest = shlex::try_quote(rest)
        .map_err(|error| Failure::Usage(format!("--remote-rdmc {path:?}: {error}")))?;
    Ok(format!("{home}{rest}"))
}

/// Where receivers call.
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
    crew: Arc<Mutex<Crew>>,
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Crew {
    /// Hosts that are still to be started, by index and name.
    waiting: VecDeque<(usize, String)>,
    launched: Vec<Launched>,
}

struct Launched {
    host: usize,
    /// How many were started on this host before it.
    start: u32,
    since: Instant,
    has_called: bool,
    child: Child,
    status: Option<ExitStatus>,
    /// The last line on standard error that was not empty.
    last_words: Arc<Mutex<String>>,
}

impl Receivers {
    /// Starts a receiver on each host (index and name), on a thread of its own. What cannot be
    /// started, or ends, is reported to the push.
    ///
    /// Errors: no thread can be had.
    pub fn launch(
        launcher: &Launcher,
        hosts: &[(usize, String)],
        callback: &Callback,
        push: &PushHandle,
    ) -> Result<Self, Failure> {
        let crew = Crew { waiting: hosts.iter().cloned().collect(), launched: Vec::new() };
        let crew = Arc::new(Mutex::new(crew));
        let ended = Arc::new(AtomicBool::new(false));
        let patience = launcher.patience(hosts.len());
        let (watched, stop, push) = (Arc::clone(&crew), Arc::clone(&ended), push.clone());
        let (launcher, callback) = (launcher.clone(), callback.clone());
        let watch = move || {
            while !stop.load(Ordering::Relaxed) {
                lock(&watched).launched.iter_mut().for_each(|launched| launched.look(&push));
                while !stop.load(Ordering::Relaxed) {
                    let next = lock(&watched).next(launcher.fanout, patience);
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
        Ok(Self { crew, ended, watcher: Some(watcher) })
    }

    /// A host's receiver has called back, or is given up: the next one may be started.
    pub fn has_called(&self, host: usize) {
        let mut crew = lock(&self.crew);
        for launched in crew.launched.iter_mut().filter(|launched| launched.host == host) {
            launched.has_called = true;
        }
    }

    /// Starts a receiver anew on a host whose last one was lost: the `start`th after the first.
    pub fn launch_again(
        &self,
        launcher: &Launcher,
        host: (usize, &str),
        start: u32,
        callback: &Callback,
        push: &PushHandle,
    ) {
        let mut crew = lock(&self.crew);
        crew.waiting.retain(|waiting| waiting.0 != host.0);
        crew.launched.retain_mut(|launched| {
            let is_kept = launched.host != host.0;
            if !is_kept {
                launched.kill();
            }
            is_kept
        });
        match self::start(launcher, host, start, callback) {
            Ok(launched) => crew.launched.push(launched),
            Err(reason) => push.host_failed(host.0, start, reason),
        }
    }

    /// Waits a little for all processes to end, less for those of hosts that are lost, and then ends
    /// them.
    pub fn end(&mut self, is_lost: &dyn Fn(usize) -> bool) {
        let started = Instant::now();
        // First, so that nobody takes the end of a process that is killed here for its own.
        self.ended.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        let is_waited_for = |launched: &mut Launched| {
            let patience = if is_lost(launched.host) { LOST_FAREWELL } else { FAREWELL };
            launched.poll().is_none() && started.elapsed() < patience
        };
        while lock(&self.crew).launched.iter_mut().any(is_waited_for) {
            thread::sleep(TICK);
        }
        lock(&self.crew).launched.iter_mut().for_each(Launched::kill);
    }

    /// What a host's process said last, or else how it ended if that was not well.
    pub fn last_words(&self, host: usize) -> Option<String> {
        let crew = lock(&self.crew);
        let launched = crew.launched.iter().find(|launched| launched.host == host)?;
        let words = lock(&launched.last_words).clone();
        let status = launched.status.filter(|status| !status.success());
        if words.is_empty() { status.map(|status| status.to_string()) } else { Some(words) }
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        if self.watcher.is_some() {
            self.end(&|_| false);
        }
    }
}

impl Crew {
    /// The next host to start a receiver on, unless so many are starting already.
    fn next(&mut self, fanout: usize, patience: Duration) -> Option<(usize, String)> {
        let is_starting = |launched: &&Launched| {
            let has_time = launched.since.elapsed() < patience;
            has_time && !launched.has_called && launched.status.is_none()
        };
        let starting = self.launched.iter().filter(is_starting).count();
        if starting < fanout { self.waiting.pop_front() } else { None }
    }
}

impl Launched {
    /// Ends it, if it has not ended. Its status would only tell what is done here.
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
    fn look(&mut self, push: &PushHandle) {
        if self.status.is_some() || self.poll().is_none() {
            return;
        }
        // Its last words may still be on their way through the pipe.
        thread::sleep(TICK);
        let words = lock(&self.last_words).clone();
        let reason = match self.status {
            // A program of this name that does not know these words.
            Some(status) if words.starts_with("error: ") && status.code() == Some(2) => format!(
                "its receiver could not be started: {words}; is the same version of rdmc installed \
                 there? (see --remote-rdmc)"
            ),
            _ if !words.is_empty() => format!("its receiver could not be started: {words}"),
            Some(status) => format!(
                "its receiver ended before it called back ({status}); is rdmc installed there? \
                 (see --remote-rdmc)"
            ),
            None => return,
        };
        push.host_failed(self.host, self.start, reason);
    }
}

/// Starts a receiver on a host (index and name) on which so many were started before it.
///
/// Errors: why it cannot be, in words for people.
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
            .map_err(|error| format!("there is no file for its part of the trace: {error}"))?;
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
        // Fits into the pipe, so this does not wait. A process that is gone already reports itself.
        let _ = stdin.write_all(invitation.to_line().as_bytes());
    }
    let last_words = Arc::new(Mutex::new(String::new()));
    if let Some(stderr) = child.stderr.take() {
        let (words, host, verbose) = (Arc::clone(&last_words), host.to_owned(), launcher.verbose);
        // Ends when the last process that holds the pipe does; nobody waits for it.
        let _ = thread::Builder::new()
            .name("rdmc-stderr".into())
            .spawn(move || listen(stderr, &words, verbose.then_some(&host)));
    }
    let (since, has_called, status) = (Instant::now(), false, None);
    Ok(Launched { host: index, start, since, has_called, child, status, last_words })
}

fn listen(stderr: ChildStderr, last_words: &Mutex<String>, show_as: Option<&String>) {
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        if let Some(host) = show_as {
            say(format_args!("{host}: {line}"));
        }
        let line = line.trim();
        let mut last = lock(last_words);
        // What follows in the same breath says only how to call the program.
        let is_explained = last.starts_with("error: ") && !line.starts_with("rdmc: ");
        if !line.is_empty() && !is_explained {
            let line = line.strip_prefix("rdmc: ").unwrap_or(line);
            // Hostile or broken programs say much.
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
    fn a_path_is_one_word_at_the_host() {
        for ssh in ["ssh {host}", "/usr/bin/ssh -p 22 {host}", "timeout 9 ssh {host} sudo"] {
            assert_eq!(program(ssh, "/opt/rdmc"), "/opt/rdmc");
            assert_eq!(program(ssh, "/opt/my tools/rdmc"), "'/opt/my tools/rdmc'");
            assert_eq!(program(ssh, "~/my tools/rdmc"), "~/'my tools/rdmc'");
            assert_eq!(program(ssh, "~/bin/rdmc"), "~/bin/rdmc");
        }
        assert_eq!(program("ip netns exec {host}", "/opt/my tools/rdmc"), "/opt/my tools/rdmc");
    }

    #[test]
    fn all_are_started_in_half_of_the_time_that_they_have() {
        let launcher = Launcher::from_template("ssh {host}", "rdmc", false).unwrap();
        let launcher = launcher.paced(64, Duration::from_secs(30));
        for hosts in [0_usize, 1, 64, 65, 1000, 10_000] {
            let rounds = u32::try_from(hosts.div_ceil(64)).unwrap();
            assert!(launcher.patience(hosts) * rounds <= Duration::from_secs(15), "{hosts}");
            assert!(launcher.patience(hosts) > TICK, "{hosts}");
        }
    }
}
