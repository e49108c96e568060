//! One turn of a peer: its processes from their start until they have reported all times, or until the timeout.

use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{interrupt::Interrupt, outcome::Outcome, procfs::children};

/// How many of a peer's messages are reported: the first ones, which name the cause.
const MESSAGES_MAX: usize = 2;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How to start one process of a peer.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The command that enters its host; empty for this one.
    pub enter: Vec<String>,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
    /// Whether it starts processes of its own, which must end with it.
    pub has_children: bool,
}

impl Launch {
    /// The process, and whatever it starts, are killed when the thread that starts it ends: a
    /// killed bench leaves nothing running.
    fn command(&self) -> Command {
        let mut words = self.enter.clone();
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(str::to_owned));
        if self.has_children {
            // What is in a process namespace dies with the first process there.
            words.extend(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
                    .map(str::to_owned),
            );
            if !rustix::process::geteuid().is_root() {
                words.extend(["--user", "--map-root-user"].map(str::to_owned));
            }
        }
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// Runs these processes, and gives `note` each line of their output that begins with `prefix`, until it returns true;
/// then they are killed, because some libraries hang when they finish.
///
/// Errors: a program that does not start or ends early, the timeout, an interrupt; those of `note`.
pub fn run(
    launches: &[Launch],
    timeout: Duration,
    interrupt: &Interrupt,
    prefix: &str,
    note: impl FnMut(&str) -> Outcome<bool>,
) -> Outcome<()> {
    let (sender, lines) = mpsc::channel();
    let mut processes = Processes(Vec::new());
    for launch in launches {
        let mut child = launch
            .command()
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", launch.program.display()))?;
        listen(&mut child, &sender);
        processes.0.push((child, launch.has_children));
    }
    drop(sender);
    let outcome = collect(&lines, timeout, interrupt, prefix, note);
    // A peer that the same signal ended is not reported as failed.
    interrupt.check()?;
    outcome
}

enum Line {
    Out(String),
    Err(String),
}

fn listen(child: &mut Child, sender: &Sender<Line>) {
    let out = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    let err = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    for (pipe, kind) in [(out, Line::Out as fn(String) -> Line), (err, Line::Err)] {
        let (Some(pipe), sender) = (pipe, sender.clone()) else { continue };
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if sender.send(kind(line)).is_err() {
                    break;
                }
            }
        });
    }
}

fn collect(
    lines: &Receiver<Line>,
    timeout: Duration,
    interrupt: &Interrupt,
    prefix: &str,
    mut note: impl FnMut(&str) -> Outcome<bool>,
) -> Outcome<()> {
    let mut messages = Vec::new();
    let start = Instant::now();
    loop {
        interrupt.check()?;
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok(Line::Out(line)) if line.starts_with(prefix) => {
                if note(&line)? {
                    return Ok(());
                }
            }
            Ok(Line::Out(line) | Line::Err(line)) => remember(&mut messages, line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(with("ended early", &messages).into());
            }
        }
        if start.elapsed() > timeout {
            let seconds = timeout.as_secs();
            return Err(with(&format!("hung: killed after {seconds} s"), &messages).into());
        }
    }
}

fn remember(messages: &mut Vec<String>, line: String) {
    // Rulers around messages are left out.
    if messages.len() < MESSAGES_MAX && line.chars().any(char::is_alphanumeric) {
        messages.push(line);
    }
}

fn with(what: &str, messages: &[String]) -> String {
    if messages.is_empty() { what.to_owned() } else { format!("{what}: {}", messages.join(" ")) }
}

/// Killed and waited for when dropped.
struct Processes(Vec<(Child, bool)>);

impl Drop for Processes {
    fn drop(&mut self) {
        for (process, has_children) in &mut self.0 {
            // The first process of a namespace is gone only when all others there are: better
            // than killing the one that waits for it.
            let children = if *has_children { children(process.id()) } else { Vec::new() };
            match children.first().and_then(|&child| Pid::from_raw(child.cast_signed())) {
                Some(child) => drop(kill_process(child, Signal::KILL)),
                None => drop(process.kill()),
            }
        }
        for (process, _) in &mut self.0 {
            let _ = process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, has_children: bool) -> Launch {
        Launch {
            enter: Vec::new(),
            program: "sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: Vec::new(),
            has_children,
        }
    }

    /// Whether both lines of times came.
    fn outcome_of(launch: Launch) -> Result<(), String> {
        let (interrupt, mut left) = (Interrupt::watch().unwrap(), 2);
        let note = |_: &str| {
            left -= 1;
            Ok(left == 0)
        };
        run(&[launch], LONG, &interrupt, "times ", note).map_err(|error| error.to_string())
    }

    const LONG: Duration = Duration::from_secs(600);
    const TIMES: &str = "echo times 0 0 1 2 3; echo times 0 1 1 2 3";

    #[test]
    fn a_turn_ends_when_all_times_are_reported() {
        let lingers = format!("echo hello; {TIMES}; sleep 600");
        assert_eq!(outcome_of(shell(&lingers, false)), Ok(()));
    }

    #[test]
    fn messages_of_one_that_ends_early_are_reported() {
        let error = outcome_of(shell("echo ----; echo out of luck >&2; exit 3", false));
        assert_eq!(error, Err("ended early: out of luck".to_owned()));
    }

    #[test]
    fn a_peer_that_hangs_is_reported() {
        let (sender, lines) = mpsc::channel();
        sender.send(Line::Out("thinking".to_owned())).unwrap();
        let watch = Interrupt::watch().unwrap();
        let error = collect(&lines, Duration::ZERO, &watch, "times ", |_| Ok(true)).unwrap_err();
        assert_eq!(error.to_string(), "hung: killed after 0 s: thinking");
    }

    /// Also those in another session.
    #[test]
    fn children_end_with_their_peer() {
        let mark = format!("600.{}", std::process::id());
        let script = format!("(setsid sleep {mark} >/dev/null 2>&1 &); {TIMES}; sleep 600");
        match outcome_of(shell(&script, true)) {
            Ok(()) => {}
            Err(error) if error.contains("unshare") => {
                eprintln!("SKIPPED: no process namespaces here ({error})");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let left = lines.filter(|line| String::from_utf8_lossy(line).contains(&mark)).count();
        assert_eq!(left, 0);
    }
}
