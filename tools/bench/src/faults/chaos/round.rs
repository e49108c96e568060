//! One push with a fault, and the same command again.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::Lab;
use serde_json::Value;

use super::{
    fault::{Fault, Ongoing, processes},
    notices::{LOGS, Notices},
};
use crate::{interrupt::Interrupt, outcome::Outcome, random::Random, running::Running};

/// No push takes longer, whatever happens.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a receiver that is cut off may take to notice.
const FAREWELL: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_millis(5);

/// Where and what is pushed.
pub struct Ground<'a> {
    pub lab: &'a Lab,
    pub rdmc: &'a Path,
    pub object: &'a Path,
    pub directory: &'a Path,
    pub bytes: u64,
    /// In seconds, as `rdmc push` takes it.
    pub failure_deadline: &'a str,
}

/// What a round gave.
pub struct Told {
    pub lost: u32,
    pub seconds_after_fault: f64,
    /// How long after the fault each member without one of a group that failed knew of it.
    pub noticed_s: Vec<f64>,
    pub repeated_bytes: u64,
    /// Of the hosts that were lost, when they came back.
    pub resumed_bytes: Vec<u64>,
}

/// How one push ended.
struct Ended {
    code: Option<i32>,
    summary: Value,
    /// From the fault to the end.
    after_s: f64,
    /// As in [`Told`].
    noticed_s: Vec<f64>,
}

/// A small file system, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf, bytes: u64) -> Outcome<Self> {
        let size = format!("size={bytes}");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&path)
            .status()?;
        if status.success() { Ok(Self(path)) } else { Err("cannot mount a small disk".into()) }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

impl Ground<'_> {
    /// Plays one round. Errors: a promise that was broken, in words.
    pub fn play(&self, fault: Fault, random: &mut Random, interrupt: &Interrupt) -> Outcome<Told> {
        let _ = fs::remove_dir_all(self.directory);
        for host in self.receivers() {
            fs::create_dir_all(self.copy(&host).parent().unwrap_or(self.directory))?;
        }
        let victims = self.victims(fault, random);
        let small_disk = match fault {
            Fault::DiskFull => {
                let place = self.directory.join(&victims[0]);
                Some(SmallDisk::mount(place, (self.bytes / 2).max(4096))?)
            }
            _ => None,
        };
        let Ended { code, summary, after_s, noticed_s } =
            self.push(interrupt, Some((fault, &victims, random)))?;
        drop(small_disk);
        let mut told = Told {
            lost: 0,
            seconds_after_fault: after_s,
            noticed_s,
            repeated_bytes: 0,
            resumed_bytes: Vec::new(),
        };
        let mut lost = Vec::new();
        if fault == Fault::RootKilled {
            lost = self.receivers();
            for host in lost.iter().filter(|host| self.copy(host).exists()) {
                self.check_equal(host)?;
            }
        } else {
            for (host, state, reason) in self.states(&summary)? {
                if state == "published" {
                    self.check_equal(&host)?;
                    continue;
                }
                if !victims.contains(&host) {
                    return Err(
                        format!("{host} has no copy and nothing was done to it: {reason}").into()
                    );
                }
                if fault == Fault::Pause || fault == Fault::Slow {
                    return Err(format!("{host} was only late, and was given up: {reason}").into());
                }
                // Whoever was lost while it published may have done so.
                if self.copy(&host).exists() && fault != Fault::DiskFull {
                    if !reason.contains("while it published") {
                        return Err(format!(
                            "{host} has failed, and there is a file of that name: {reason}"
                        )
                        .into());
                    }
                    self.check_equal(&host)?;
                }
                lost.push(host);
            }
            let expected = match lost.len() {
                0 => 0,
                some if some == self.receivers().len() => 1,
                _ => 3,
            };
            if code != Some(expected) {
                return Err(format!("the exit code is {code:?}, not {expected}").into());
            }
            told.repeated_bytes = self.most(&summary, "repeated_bytes");
        }
        self.check_nobody_left()?;
        told.lost = lost.len() as u32;
        let Ended { code, summary, .. } = self.push(interrupt, None)?;
        if code != Some(0) {
            return Err(format!("the same command again ended with {code:?}: {summary}").into());
        }
        for host in self.receivers() {
            self.check_equal(&host)?;
        }
        for host in &lost {
            told.resumed_bytes.push(self.of_host(&summary, host, "resumed_bytes"));
        }
        self.check_nobody_left()?;
        self.check_no_temporaries()?;
        fs::remove_dir_all(self.directory)?;
        Ok(told)
    }

    /// Names of the receiving hosts: their namespaces.
    fn receivers(&self) -> Vec<String> {
        (1..self.lab.settings().hosts).map(|host| self.lab.host_name(host)).collect()
    }

    /// Two different hosts that may fail; where a route is missing, both of its ends.
    fn victims(&self, fault: Fault, random: &mut Random) -> Vec<String> {
        let mut hosts = self.receivers();
        let first = hosts.remove((random.part() * hosts.len() as f64) as usize);
        let second = hosts.remove((random.part() * hosts.len() as f64) as usize);
        match fault {
            Fault::TwoKills | Fault::NoRoute => vec![first, second],
            _ => vec![first],
        }
    }

    fn copy(&self, host: &str) -> PathBuf {
        self.directory.join(host).join("object")
    }

    /// Runs the command to its end, with a fault at some moment.
    fn push(
        &self,
        interrupt: &Interrupt,
        fault: Option<(Fault, &[String], &mut Random)>,
    ) -> Outcome<Ended> {
        let hosts = self.lab.hosts();
        let mut command = hosts[0].command(self.rdmc);
        command.arg("push").arg(self.object).arg("--json");
        command.args(["--failure-deadline", self.failure_deadline]);
        command.args(["--to", &self.receivers().join(",")]);
        command.args(["--launcher", "ip netns exec {host}"]).arg("--remote-rdmc").arg(self.rdmc);
        command.arg("--dest").arg(self.directory.join("{host}/object"));
        command.arg("--verbose").env("RUST_LOG", LOGS);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut push = Running(command.spawn()?);
        let notices = push.0.stderr.take().map(Notices::read);
        let faulty = fault.as_ref().map_or(Vec::new(), |(_, victims, _)| victims.to_vec());
        let started = Instant::now();
        let transfer_s =
            self.bytes as f64 * 8.0 / self.lab.settings().link.rate.bits_per_s() as f64;
        let mut fault = fault.map(|(kind, victims, random)| {
            let at = started + Duration::from_secs_f64(random.part() * (transfer_s * 1.2 + 0.5));
            (kind, victims, random, at)
        });
        let mut ongoing: Option<Ongoing> = None;
        let mut failed_at = started;
        let status = loop {
            interrupt.check()?;
            if let Some(status) = push.0.try_wait()? {
                break status;
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("the push hangs, after {PATIENCE:?}").into());
            }
            if let Some((kind, victims, random, at)) = fault.take() {
                if Instant::now() < at {
                    fault = Some((kind, victims, random, at));
                } else {
                    failed_at = Instant::now();
                    if kind == Fault::RootKilled {
                        push.0.kill()?;
                    }
                    let address = self.address_of(victims.last().map_or("", String::as_str));
                    ongoing = Some(Ongoing::begin(kind, victims.to_vec(), &address, random)?);
                }
            }
            if let Some(ongoing) = &mut ongoing {
                ongoing.go_on()?;
            }
            thread::sleep(TICK);
        };
        let after_s = failed_at.elapsed().as_secs_f64();
        drop(ongoing);
        let noticed_s = notices.map_or(Vec::new(), |notices| notices.since(failed_at, &faulty));
        let mut said = String::new();
        if let Some(mut out) = push.0.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        let summary = serde_json::from_str(&said).unwrap_or(Value::Null);
        Ok(Ended { code: status.code(), summary, after_s, noticed_s })
    }

    fn address_of(&self, host: &str) -> String {
        let number =
            (1..self.lab.settings().hosts).find(|&number| self.lab.host_name(number) == host);
        self.lab.settings().address(number.unwrap_or(1)).to_string()
    }

    /// Each host, its state and the reason for that.
    fn states(&self, summary: &Value) -> Outcome<Vec<(String, String, String)>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let hosts = summary["hosts"].as_array().ok_or("there is no summary")?;
        let of = |host: &Value| (text(&host["host"]), text(&host["state"]), text(&host["error"]));
        Ok(hosts.iter().map(of).collect())
    }

    fn of_host(&self, summary: &Value, name: &str, field: &str) -> u64 {
        let hosts = summary["hosts"].as_array().into_iter().flatten();
        let found = hosts.into_iter().find(|host| host["host"] == name);
        found.and_then(|host| host[field].as_u64()).unwrap_or(0)
    }

    fn most(&self, summary: &Value, field: &str) -> u64 {
        let hosts = summary["hosts"].as_array().into_iter().flatten();
        hosts.filter_map(|host| host[field].as_u64()).max().unwrap_or(0)
    }

    fn check_equal(&self, host: &str) -> Outcome<()> {
        if fs::read(self.copy(host))? == fs::read(self.object)? {
            Ok(())
        } else {
            Err(format!("the copy of {host} is not equal").into())
        }
    }

    fn check_nobody_left(&self) -> Outcome<()> {
        let until = Instant::now() + FAREWELL;
        for host in self.receivers() {
            while !processes(&host)?.is_empty() {
                if Instant::now() > until {
                    return Err(format!("a process is left at {host}").into());
                }
                thread::sleep(TICK);
            }
        }
        Ok(())
    }

    fn check_no_temporaries(&self) -> Outcome<()> {
        for host in self.receivers() {
            for entry in fs::read_dir(self.directory.join(&host))? {
                let name = entry?.file_name();
                if name != "object" {
                    return Err(format!("{host} has a file {name:?} left").into());
                }
            }
        }
        Ok(())
    }
}
