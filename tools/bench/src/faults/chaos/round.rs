//! One push with a fault, and the same command again.

use std::{
    fs,
    path::PathBuf,
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
use crate::{
    interrupt::Interrupt, outcome::Outcome, push_command::PushFiles, random::Random,
    running::Running,
};

const PUSH_TIMEOUT: Duration = Duration::from_secs(180);
/// How long processes of receivers may run after the push has ended: one that is cut off has to notice.
const EXIT_TIMEOUT: Duration = Duration::from_secs(40);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Where and what is pushed.
pub struct Scenario<'a> {
    pub lab: &'a Lab,
    pub files: &'a PushFiles,
    pub bytes: u64,
    /// In seconds, as an option of `rdmc push`.
    pub failure_deadline: &'a str,
}

/// What was measured in a round.
pub struct RoundResult {
    /// Hosts without a copy after the first push.
    pub lost: usize,
    /// From the fault to the end of the push.
    pub seconds_after_fault: f64,
    /// From the fault until each member without a fault reported that its group failed.
    pub noticed_s: Vec<f64>,
    /// The most that was sent to one host again although it had it.
    pub repeated_bytes: u64,
    /// What each lost host had when the second push began.
    pub resumed_bytes: Vec<u64>,
}

/// How one push ended.
struct Ended {
    code: Option<i32>,
    summary: Value,
    /// From the fault to the end.
    after_s: f64,
    /// As in [`RoundResult`].
    noticed_s: Vec<f64>,
}

/// A small file system, unmounted when dropped.
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

impl Scenario<'_> {
    /// Runs one round. Errors: which promise was broken.
    pub fn run(
        &self,
        fault: Fault,
        random: &mut Random,
        interrupt: &Interrupt,
    ) -> Outcome<RoundResult> {
        let _ = fs::remove_dir_all(self.copies());
        for host in self.receivers() {
            fs::create_dir_all(self.copies().join(host))?;
        }
        let victims = self.victims(fault, random);
        let small_disk = match fault {
            Fault::DiskFull => {
                let place = self.copies().join(&victims[0]);
                Some(SmallDisk::mount(place, (self.bytes / 2).max(4096))?)
            }
            _ => None,
        };
        let ended = self.push(interrupt, Some((fault, &victims, random)))?;
        drop(small_disk);
        let lost = match fault {
            Fault::RootKilled => {
                for host in self.receivers().iter().filter(|host| self.copy(host).exists()) {
                    self.check_equal(host)?;
                }
                self.receivers()
            }
            _ => self.check_states(fault, &victims, &ended)?,
        };
        self.check_no_processes()?;
        let again = self.push(interrupt, None)?;
        if again.code != Some(0) {
            let (code, summary) = (again.code, again.summary);
            return Err(format!("the same command again ended with {code:?}: {summary}").into());
        }
        self.receivers().iter().try_for_each(|host| self.check_equal(host))?;
        self.check_no_processes()?;
        self.check_no_temporaries()?;
        fs::remove_dir_all(self.copies())?;
        let of_hosts = |summary: &Value, field: &str, wanted: &dyn Fn(&Value) -> bool| {
            let hosts = summary["hosts"].as_array().into_iter().flatten();
            let hosts = hosts.filter(|host| wanted(&host["host"]));
            hosts.map(|host| host[field].as_u64().unwrap_or(0)).collect::<Vec<u64>>()
        };
        let repeated = of_hosts(&ended.summary, "repeated_bytes", &|_| true);
        let is_lost = |host: &Value| lost.iter().any(|lost| host == lost);
        Ok(RoundResult {
            lost: lost.len(),
            seconds_after_fault: ended.after_s,
            noticed_s: ended.noticed_s,
            repeated_bytes: repeated.into_iter().max().unwrap_or(0),
            resumed_bytes: of_hosts(&again.summary, "resumed_bytes", &is_lost),
        })
    }

    /// Compares the copies, the exit code and the reported states with the fault. Answers the hosts without a copy.
    fn check_states(
        &self,
        fault: Fault,
        victims: &[String],
        ended: &Ended,
    ) -> Outcome<Vec<String>> {
        let mut lost = Vec::new();
        let hosts = ended.summary["hosts"].as_array().ok_or("there is no summary")?;
        for entry in hosts {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let (host, reason) = (text("host"), text("error"));
            if text("state") == "published" {
                self.check_equal(&host)?;
                continue;
            }
            if !victims.contains(&host) {
                return Err(format!("{host} has no copy and had no fault: {reason}").into());
            }
            if fault == Fault::Pause || fault == Fault::Slow {
                return Err(format!("{host} was only late, and was given up: {reason}").into());
            }
            if self.copy(&host).exists() && fault != Fault::DiskFull {
                // A host that is lost while it publishes may have published.
                if !reason.contains("while it published") {
                    let what = "has failed, and there is a file of that name";
                    return Err(format!("{host} {what}: {reason}").into());
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
        if ended.code != Some(expected) {
            return Err(format!("the exit code is {:?}, not {expected}", ended.code).into());
        }
        Ok(lost)
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

    fn copies(&self) -> PathBuf {
        self.files.directory().join("copies")
    }

    fn copy(&self, host: &str) -> PathBuf {
        self.copies().join(host).join("object")
    }

    /// Runs the command to its end, with a fault at a random moment.
    fn push(
        &self,
        interrupt: &Interrupt,
        fault: Option<(Fault, &[String], &mut Random)>,
    ) -> Outcome<Ended> {
        let hosts = self.lab.hosts();
        let rdmc = &self.files.rdmc;
        let mut command = hosts[0].command(rdmc);
        command.env("RDMC_CONFIG", "/dev/null");
        command.arg("push").arg(&self.files.object).arg("--json");
        command.args(["--failure-deadline", self.failure_deadline]);
        command.args(["--to", &self.receivers().join(",")]);
        command.args(["--launcher", "ip netns exec {host}"]).arg("--remote-rdmc").arg(rdmc);
        command.arg("--dest").arg(self.copies().join("{host}/object"));
        command.arg("--verbose").env("RUST_LOG", LOGS);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut push = Running::start(&mut command)?;
        let notices = push.0.stderr.take().map(Notices::read);
        let victims = fault.as_ref().map_or(Vec::new(), |(_, victims, _)| victims.to_vec());
        let started = Instant::now();
        let transfer_s =
            self.bytes as f64 * 8.0 / self.lab.settings().link.rate.bits_per_s() as f64;
        let mut planned = fault.map(|(fault, _, random)| {
            let at = started + Duration::from_secs_f64(random.part() * (transfer_s * 1.2 + 0.5));
            (at, fault, random)
        });
        let mut ongoing: Option<Ongoing> = None;
        let mut failed_at = started;
        let status = push.wait(POLL_INTERVAL, PUSH_TIMEOUT, interrupt, |push| {
            if let Some((_, fault, random)) = planned.take_if(|(at, ..)| Instant::now() >= *at) {
                failed_at = Instant::now();
                if fault == Fault::RootKilled {
                    push.kill()?;
                }
                let address = self.address_of(victims.last().map_or("", String::as_str));
                ongoing = Some(Ongoing::begin(fault, victims.clone(), &address, random)?);
            }
            ongoing.as_mut().map_or(Ok(()), Ongoing::update)
        })?;
        let after_s = failed_at.elapsed().as_secs_f64();
        drop(ongoing);
        let noticed_s = notices.map_or(Vec::new(), |notices| notices.since(failed_at, &victims));
        let summary = serde_json::from_str(&push.output()?).unwrap_or(Value::Null);
        Ok(Ended { code: status.code(), summary, after_s, noticed_s })
    }

    fn address_of(&self, host: &str) -> String {
        let number =
            (1..self.lab.settings().hosts).find(|&number| self.lab.host_name(number) == host);
        self.lab.settings().address(number.unwrap_or(1)).to_string()
    }

    fn check_equal(&self, host: &str) -> Outcome<()> {
        if fs::read(self.copy(host))? == fs::read(&self.files.object)? {
            Ok(())
        } else {
            Err(format!("the copy of {host} is not equal").into())
        }
    }

    fn check_no_processes(&self) -> Outcome<()> {
        let until = Instant::now() + EXIT_TIMEOUT;
        for host in self.receivers() {
            while !processes(&host)?.is_empty() {
                if Instant::now() > until {
                    return Err(format!("a process is left at {host}").into());
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    fn check_no_temporaries(&self) -> Outcome<()> {
        for host in self.receivers() {
            for entry in fs::read_dir(self.copies().join(&host))? {
                let name = entry?.file_name();
                if name != "object" {
                    return Err(format!("{host} has a file {name:?} left").into());
                }
            }
        }
        Ok(())
    }
}
