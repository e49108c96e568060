//! Faults of hosts, and how they are undone.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};

use crate::{outcome::Outcome, random::Random};

/// A slow program runs for this time, and is stopped for this time.
const SLOW_PERIOD: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// One receiver is killed
    Kill,
    /// Two receivers are killed, one a little after the other
    TwoKills,
    /// A receiver is stopped, for less time than the failure deadline
    Pause,
    /// A receiver is stopped for longer than the failure deadline
    Freeze,
    /// A host's link is down for a while
    Cut,
    /// One host has no route to another
    NoRoute,
    /// A receiver runs only half of the time
    Slow,
    /// A receiver's disk is too small
    DiskFull,
    /// The root is killed
    RootKilled,
}

/// A fault that lasts until this is dropped.
pub struct Ongoing {
    fault: Fault,
    /// Namespaces of the hosts that have it.
    hosts: Vec<String>,
    /// Arguments of `ip` that undo it.
    undo: Option<Vec<String>>,
    until: Option<Instant>,
    next_change: Instant,
    is_stopped: bool,
}

impl Ongoing {
    /// Injects the fault into these hosts, given by their namespaces and the address of the second.
    pub fn begin(
        fault: Fault,
        hosts: Vec<String>,
        address: &str,
        random: &mut Random,
    ) -> Outcome<Self> {
        let seconds = |from: f64, to: f64, random: &mut Random| {
            Some(Instant::now() + Duration::from_secs_f64(from + random.part() * (to - from)))
        };
        let mut ongoing = Self {
            fault,
            hosts,
            undo: None,
            until: None,
            next_change: Instant::now(),
            is_stopped: false,
        };
        let first = ongoing.hosts[0].clone();
        match fault {
            Fault::Kill => signal(&first, Signal::KILL)?,
            Fault::TwoKills => {
                signal(&first, Signal::KILL)?;
                std::thread::sleep(Duration::from_secs_f64(random.part() * 0.5));
                signal(&ongoing.hosts[1], Signal::KILL)?;
            }
            Fault::Pause => {
                ongoing.until = seconds(0.2, 3.0, random);
                ongoing.stop()?;
            }
            Fault::Freeze => {
                ongoing.until = seconds(8.0, 25.0, random);
                ongoing.stop()?;
            }
            Fault::Cut => {
                ongoing.until = seconds(0.1, 20.0, random);
                ip(&["-n", &first, "link", "set", "eth0", "down"])?;
                ongoing.undo = Some(words(&["-n", &first, "link", "set", "eth0", "up"]));
            }
            Fault::NoRoute => {
                ip(&["-n", &first, "route", "add", "blackhole", address])?;
                ongoing.undo = Some(words(&["-n", &first, "route", "del", "blackhole", address]));
            }
            Fault::Slow | Fault::DiskFull | Fault::RootKilled => {}
        }
        Ok(ongoing)
    }

    /// To be called every few ms: undoes the fault when its time is over, and stops or continues a slow program.
    pub fn update(&mut self) -> Outcome<()> {
        let now = Instant::now();
        if self.until.is_some_and(|until| now >= until) {
            self.end();
        }
        if self.fault == Fault::Slow && now >= self.next_change {
            self.next_change = now + SLOW_PERIOD;
            if self.is_stopped { self.resume() } else { self.stop()? }
        }
        Ok(())
    }

    fn stop(&mut self) -> Outcome<()> {
        self.is_stopped = true;
        signal(&self.hosts[0], Signal::STOP)
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.is_stopped) {
            let _ = signal(&self.hosts[0], Signal::CONT);
        }
    }

    fn end(&mut self) {
        self.until = None;
        self.resume();
        if let Some(undo) = self.undo.take() {
            let undo: Vec<&str> = undo.iter().map(String::as_str).collect();
            let _ = ip(&undo);
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.end();
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

/// Runs `ip`. Errors: with its standard error.
fn ip(arguments: &[&str]) -> Outcome<Vec<u8>> {
    let output = Command::new("ip").args(arguments).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("ip {}: {}", arguments.join(" "), error.trim()).into());
    }
    Ok(output.stdout)
}

/// The processes in a network namespace.
pub fn processes(namespace: &str) -> Outcome<Vec<i32>> {
    let listed = String::from_utf8_lossy(&ip(&["netns", "pids", namespace])?).into_owned();
    Ok(listed.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// To all processes of a host; one that has ended meanwhile is no error.
fn signal(namespace: &str, signal: Signal) -> Outcome<()> {
    for process in processes(namespace)? {
        if let Some(process) = Pid::from_raw(process) {
            let _ = kill_process(process, signal);
        }
    }
    Ok(())
}
