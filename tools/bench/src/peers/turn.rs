//! One turn of a peer: its processes from their start until they have told all times, or until the
//! deadline.

use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::times::Sheet;
use crate::{crew::Measured, interrupt::Interrupt, outcome::Outcome, processes::children};

/// How many of a peer's complaints stand in the table: the first ones, which name the cause.
const COMPLAINTS: usize = 2;

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

/// Who takes part, how often, and for how long at most.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub members: u32,
    pub repeats: u32,
    pub patience: Duration,
}

/// Runs these processes until all members have told the times of all transfers; then they are
/// killed, because some libraries never come back from their own end.
///
/// Errors: a program that does not start, complaints of one that ended early, the deadline, times
/// that cannot be, an interrupt.
pub fn take(launches: &[Launch], terms: Terms, interrupt: &Interrupt) -> Outcome<Vec<Measured>> {
    let (sender, said) = mpsc::channel();
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
    let outcome = listen_until_told(&said, terms, interrupt);
    // A signal that ended the peer too is not the peer's fault.
    interrupt.check()?;
    outcome
}

enum Said {
    Out(String),
    Err(String),
}

fn listen(child: &mut Child, sender: &Sender<Said>) {
    let out = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    let err = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    for (pipe, said) in [(out, Said::Out as fn(String) -> Said), (err, Said::Err)] {
        let (Some(pipe), sender) = (pipe, sender.clone()) else { continue };
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if sender.send(said(line)).is_err() {
                    break;
                }
            }
        });
    }
}

fn listen_until_told(
    said: &Receiver<Said>,
    terms: Terms,
    interrupt: &Interrupt,
) -> Outcome<Vec<Measured>> {
    let mut sheet = Sheet::new(terms.members, terms.repeats);
    let mut complaints = Vec::new();
    let start = Instant::now();
    while !sheet.is_full() {
        interrupt.check()?;
        if start.elapsed() > terms.patience {
            let seconds = terms.patience.as_secs();
            return Err(with(&format!("hung: killed after {seconds} s"), &complaints).into());
        }
        match said.recv_timeout(Duration::from_millis(100)) {
            Ok(Said::Out(line)) if line.starts_with("times ") => sheet.note(&line)?,
            Ok(Said::Out(line) | Said::Err(line)) => remember(&mut complaints, line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(with("ended early", &complaints).into());
            }
        }
    }
    Ok(sheet.measured())
}

fn remember(complaints: &mut Vec<String>, line: String) {
    // Rulers around a message say nothing.
    if complaints.len() < COMPLAINTS && line.chars().any(char::is_alphanumeric) {
        complaints.push(line);
    }
}

fn with(what: &str, complaints: &[String]) -> String {
    if complaints.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {}", complaints.join(" "))
    }
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

    /// How many transfers were measured in a turn of two members.
    fn outcome_of(launch: Launch, patience: Duration) -> Result<usize, String> {
        let terms = Terms { members: 2, repeats: 1, patience };
        let interrupt = Interrupt::watch().unwrap();
        let times = take(&[launch], terms, &interrupt).map_err(|error| error.to_string())?;
        Ok(times.len())
    }

    /// No test waits for it.
    const LONG: Duration = Duration::from_secs(600);
    const TELL: &str = "echo times 0 0 1 2 3; echo times 0 1 1 2 3";

    #[test]
    fn a_turn_ends_when_all_times_are_told() {
        let lingers = format!("echo hello; {TELL}; sleep 600");
        assert_eq!(outcome_of(shell(&lingers, false), LONG), Ok(1));
    }

    #[test]
    fn who_ends_early_is_quoted() {
        let error = outcome_of(shell("echo ----; echo out of luck >&2; exit 3", false), LONG);
        assert_eq!(error, Err("ended early: out of luck".to_owned()));
        let error = outcome_of(shell("echo times 0 9 1 2 3; sleep 600", false), LONG);
        assert_eq!(error, Err("these times cannot be: times 0 9 1 2 3".to_owned()));
    }

    #[test]
    fn who_hangs_is_killed() {
        let error = outcome_of(shell("echo thinking; sleep 600", false), Duration::from_secs(1));
        assert_eq!(error, Err("hung: killed after 1 s: thinking".to_owned()));
    }

    /// Also those that left their parent.
    #[test]
    fn children_end_with_their_peer() {
        let mark = format!("600.{}", std::process::id());
        let script = format!("(setsid sleep {mark} >/dev/null 2>&1 &); {TELL}; sleep 600");
        match outcome_of(shell(&script, true), LONG) {
            Ok(measured) => assert_eq!(measured, 1),
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
