//! Faults of hosts, and how they are taken back.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};

use crate::{outcome::Outcome, random::Random};

/// A slow program runs so long, and then stands still so long.
const TURN: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// One receiver is killed
    Kill,
    /// Two receivers are killed, one a little after the other
    TwoKills,
    /// A receiver stands still, for less time than it takes to be given up
    Pause,
    /// A receiver stands still for so long that it is given up
    Freeze,
    /// A host's link is down for a while
    Cut,
    /// Two hosts cannot reach each other any more
    NoRoute,
    /// A receiver runs only half of the time
    Slow,
    /// A receiver's disk is too small
    DiskFull,
    /// The root is killed
    RootKilled,
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::TwoKills => "two kills",
            Self::Pause => "pause",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::NoRoute => "no route",
            Self::Slow => "slow",
            Self::DiskFull => "disk full",
            Self::RootKilled => "root killed",
        }
    }
}

/// A fault that lasts until this is dropped.
pub struct Ongoing {
    fault: Fault,
    /// Namespaces of the hosts that have it.
    hosts: Vec<String>,
    /// What takes it back.
    remedy: Option<Vec<String>>,
    until: Option<Instant>,
    next_turn: Instant,
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
            remedy: None,
            until: None,
            next_turn: Instant::now(),
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
                ongoing.remedy = Some(words(&["-n", &first, "link", "set", "eth0", "up"]));
            }
            Fault::NoRoute => {
                ip(&["-n", &first, "route", "add", "blackhole", address])?;
                ongoing.remedy = Some(words(&["-n", &first, "route", "del", "blackhole", address]));
            }
            Fault::Slow | Fault::DiskFull | Fault::RootKilled => {}
        }
        Ok(ongoing)
    }

    /// To be called often: takes back what was for a while, and lets a slow program go on or stand.
    pub fn go_on(&mut self) -> Outcome<()> {
        let now = Instant::now();
        if self.until.is_some_and(|until| now >= until) {
            self.end();
        }
        if self.fault == Fault::Slow && now >= self.next_turn {
            self.next_turn = now + TURN;
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
        if let Some(remedy) = self.remedy.take() {
            let remedy: Vec<&str> = remedy.iter().map(String::as_str).collect();
            let _ = ip(&remedy);
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

/// Runs `ip`. Errors: what it says.
fn ip(arguments: &[&str]) -> Outcome<Vec<u8>> {
    let output = Command::new("ip").args(arguments).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("ip {}: {}", arguments.join(" "), said.trim()).into());
    }
    Ok(output.stdout)
}

/// Processes of a host.
pub fn processes(namespace: &str) -> Outcome<Vec<i32>> {
    let listed = String::from_utf8_lossy(&ip(&["netns", "pids", namespace])?).into_owned();
    Ok(listed.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// To all of a host's processes; those that have ended meanwhile do not matter.
fn signal(namespace: &str, signal: Signal) -> Outcome<()> {
    for process in processes(namespace)? {
        if let Some(process) = Pid::from_raw(process) {
            let _ = kill_process(process, signal);
        }
    }
    Ok(())
}
