//! Starting receivers on their hosts, and what becomes of these processes.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::IpAddr,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
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

/// The command that starts a receiver on a host.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Words before the receiver's own; `{host}` stands for the host. None: on this machine.
    words: Vec<String>,
    /// The receiver's program.
    rdmc: String,
    verbose: bool,
    recording: Option<Arc<Recording>>,
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
        Ok(Self { words, rdmc: rdmc.to_owned(), verbose, recording: None })
    }

    /// Starts this very program, on this machine.
    pub fn local(verbose: bool) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(Failure::while_doing("finding this program"))?;
        let rdmc = own.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::Failed(format!("the path of this program, {own:?}, is not UTF-8"))
        })?;
        Ok(Self { words: Vec::new(), rdmc, verbose, recording: None })
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

/// Where receivers call.
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
    launched: Arc<Mutex<Vec<Launched>>>,
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

struct Launched {
    host: usize,
    /// How many were started on this host before it.
    start: u32,
    child: Child,
    status: Option<ExitStatus>,
    /// The last line on standard error that was not empty.
    last_words: Arc<Mutex<String>>,
}

impl Receivers {
    /// Starts a receiver on each host (index and name). What cannot be started, or ends, is
    /// reported to the push.
    ///
    /// Errors: no thread can be had.
    pub fn launch(
        launcher: &Launcher,
        hosts: &[(usize, String)],
        callback: &Callback,
        push: &PushHandle,
    ) -> Result<Self, Failure> {
        let mut launched = Vec::new();
        for (host, name) in hosts {
            match start(launcher, *host, name, callback) {
                Ok((child, last_words)) => {
                    let (host, start) = (*host, 0);
                    launched.push(Launched { host, start, child, status: None, last_words });
                }
                Err(reason) => push.host_failed(*host, 0, reason),
            }
        }
        let launched = Arc::new(Mutex::new(launched));
        let ended = Arc::new(AtomicBool::new(false));
        let (watched, stop, push) = (Arc::clone(&launched), Arc::clone(&ended), push.clone());
        let watch = move || {
            while !stop.load(Ordering::Relaxed) {
                lock(&watched).iter_mut().for_each(|launched| launched.look(&push));
                thread::sleep(TICK);
            }
        };
        let watcher = thread::Builder::new()
            .name("rdmc-watch".into())
            .spawn(watch)
            .map_err(Failure::while_doing("starting a thread"))?;
        Ok(Self { launched, ended, watcher: Some(watcher) })
    }

    /// Starts a receiver anew on a host whose last one was lost: the `start`th after the first.
    pub fn launch_again(
        &self,
        launcher: &Launcher,
        (host, name): (usize, &str),
        start: u32,
        callback: &Callback,
        push: &PushHandle,
    ) {
        let mut launched = lock(&self.launched);
        for old in launched.iter_mut().filter(|launched| launched.host == host) {
            if old.poll().is_none() {
                let _ = old.child.kill();
                let _ = old.child.wait();
            }
        }
        launched.retain(|launched| launched.host != host);
        match self::start(launcher, host, name, callback) {
            Ok((child, last_words)) => {
                launched.push(Launched { host, start, child, status: None, last_words });
            }
            Err(reason) => push.host_failed(host, start, reason),
        }
    }

    /// Waits a little for all processes to end, less for those of hosts that are lost, and then ends
    /// them.
    pub fn end(&mut self, is_lost: &dyn Fn(usize) -> bool) {
        let started = Instant::now();
        let is_waited_for = |launched: &mut Launched| {
            let patience = if is_lost(launched.host) { LOST_FAREWELL } else { FAREWELL };
            launched.poll().is_none() && started.elapsed() < patience
        };
        while lock(&self.launched).iter_mut().any(is_waited_for) {
            thread::sleep(TICK);
        }
        for launched in lock(&self.launched).iter_mut() {
            if launched.poll().is_none() {
                // Its status would only tell what is done here.
                let _ = launched.child.kill();
                let _ = launched.child.wait();
            }
        }
        self.ended.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }

    /// What a host's process said last, or else how it ended if that was not well.
    pub fn last_words(&self, host: usize) -> Option<String> {
        let launched = lock(&self.launched);
        let launched = launched.iter().find(|launched| launched.host == host)?;
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

impl Launched {
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

fn start(
    launcher: &Launcher,
    index: usize,
    host: &str,
    callback: &Callback,
) -> Result<(Child, Arc<Mutex<String>>), String> {
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
    Ok((child, last_words))
}

fn listen(stderr: ChildStderr, last_words: &Mutex<String>, show_as: Option<&String>) {
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        if let Some(host) = show_as {
            say(format_args!("{host}: {line}"));
        }
        let line = line.trim();
        if !line.is_empty() {
            let line = line.strip_prefix("rdmc: ").unwrap_or(line);
            // Hostile or broken programs say much.
            *lock(last_words) = line.chars().take(500).collect();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
