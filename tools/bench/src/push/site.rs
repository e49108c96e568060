//! Hosts around a switch, and the pushes between them.

use std::{
    fs::{self, File},
    net::IpAddr,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use lab::{Lab, LabSettings, Link};
use serde_json::Value;
use tempfile::TempDir;

use super::certificates::Certificates;
use crate::{
    interrupt::Interrupt, outcome::Outcome, procfs::Watch, push_command::PushFiles, report::name,
    running::Running,
};

/// The switch's own address: beyond those of a lab's hosts, in their network.
const SWITCH: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 255, 1));
/// Ports of its agent and of listening receivers.
const AGENT_PORT: u16 = 4790;
const PORT: u16 = 7000;
/// Until an agent or a receiver has printed that it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// For a push, beyond several times the time of its bytes on the sender's link.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The data plane of the switch: `rdmc switch run --plane`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Copier {
    Kernel,
    Userspace,
}

/// What was measured in one push.
pub struct Run {
    /// From the first byte sent until the last receiver had all.
    pub seconds: f64,
    /// With making the group, verifying and publishing.
    pub total_seconds: f64,
    /// Of all that `rdmc` has running on the hosts and at the switch, user and system.
    pub cpu_seconds: f64,
    /// What each host's link carried towards the switch; the sender's first.
    pub sent_bytes: Vec<u64>,
    /// Packets that the sender's queue pair in userspace has sent, and how many of them again; none where receivers relayed.
    pub packets: Option<Packets>,
    /// Why receivers relayed, where the switch was to copy.
    pub fell_back: Option<String>,
}

/// What a queue pair has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    pub sent: u64,
    pub repeated: u64,
}

impl Packets {
    /// From the log of a push (`transport_switch=debug`).
    fn of_log(log: &str) -> Option<Self> {
        let line =
            log.lines().find(|line| line.contains("sent through a queue pair in userspace"))?;
        let number =
            |name: &str| line.split_once(&format!("{name}="))?.1.split(' ').next()?.parse().ok();
        Some(Self { sent: number("packets")?, repeated: number("repeated")? })
    }
}

/// A lab whose hosts but the first listen for pushes; gone when dropped.
pub struct Site<'a> {
    /// Dropped before their network.
    running: Vec<Running>,
    lab: Lab,
    files: &'a PushFiles,
    /// In that of the files.
    directory: TempDir,
    certificates: Certificates,
}

impl<'a> Site<'a> {
    /// Makes the network, and starts the receivers and, if needed, the switch's agent.
    pub fn set_up(
        files: &'a PushFiles,
        copier: Copier,
        needs_agent: bool,
        (receivers, link): (u32, Link),
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let lab = Lab::create(&LabSettings::new(receivers + 1, link))?;
        let directory = TempDir::new_in(files.directory())?;
        let hosts = lab.hosts();
        let addresses: Vec<IpAddr> =
            hosts.iter().map(|host| host.address).chain([SWITCH]).collect();
        let certificates = Certificates::make(directory.path(), &addresses)?;
        let mut site = Self { running: Vec::new(), lab, files, directory, certificates };
        let ports = site.set_up_switch(copier, link)?;
        if needs_agent {
            let mut agent = site.rdmc(site.lab.at_switch(&site.files.rdmc));
            agent.args(["switch", "run", "--name", "switch", "--plane", &name(&copier)]);
            agent.args(["--listen", &format!("{SWITCH}:{AGENT_PORT}"), "--ports", &ports]);
            site.start(agent, "switch agent at", interrupt)?;
        } else if copier == Copier::Userspace {
            return Err("the userspace plane bridges only with its agent".into());
        }
        for (number, host) in hosts.iter().enumerate().skip(1) {
            let directory = site.directory_of(number);
            fs::create_dir(&directory)?;
            let mut receiver = site.rdmc(host.command(&site.files.rdmc));
            receiver.args(["receive", "--listen", &format!("{}:{PORT}", host.address)]);
            receiver.arg("--dir").arg(directory).args(["--fabric", "tcp,in-switch"]);
            site.start(receiver, "listening on", interrupt)?;
        }
        Ok(site)
    }

    /// Gives the switch its address. Answers its ports, for its agent.
    fn set_up_switch(&self, copier: Copier, link: Link) -> Outcome<String> {
        let mut ports = self.lab.ports();
        let mut lines = Vec::new();
        let own = match copier {
            Copier::Kernel => Lab::BRIDGE,
            Copier::Userspace => {
                // Its bridge takes the ports, and has one more for the switch itself.
                lines.extend(ports.iter().map(|port| format!("link set {port} nomaster")));
                let mtu = link.mtu_bytes;
                lines
                    .push(format!("link add own mtu {mtu} type veth peer name own-port mtu {mtu}"));
                lines.extend(["own", "own-port"].map(|end| format!("link set {end} up")));
                ports.push("own-port".to_owned());
                "own"
            }
        };
        lines.push(format!("addr add {SWITCH}/16 dev {own}"));
        for line in lines {
            let output = self.lab.at_switch("ip").args(line.split(' ')).output()?;
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                return Err(format!("`ip {line}` failed: {}", error.trim()).into());
            }
        }
        Ok(ports.join(","))
    }

    fn directory_of(&self, host: usize) -> PathBuf {
        self.directory.path().join(host.to_string())
    }

    fn copies(&self) -> impl Iterator<Item = PathBuf> {
        (1..self.lab.settings().hosts as usize).map(|host| self.directory_of(host).join("object"))
    }

    /// With what is the same for all that is started here.
    fn rdmc(&self, mut command: Command) -> Command {
        // No configuration of this user's.
        command.env_remove("RUST_LOG").env("RDMC_CONFIG", "/dev/null");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts it with certificates, and waits until it has printed these words.
    fn start(&mut self, mut command: Command, words: &str, interrupt: &Interrupt) -> Outcome<()> {
        let log = self.directory.path().join(format!("log-{}", self.running.len()));
        command.args(self.certificates.options()).stderr(File::create(&log)?);
        let mut running = Running::start(&mut command)?;
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let printed = fs::read_to_string(&log)?;
            if printed.contains(words) {
                break;
            }
            if running.0.try_wait()?.is_some() || Instant::now() > until {
                return Err(format!(
                    "not \"{words}\" after {START_TIMEOUT:?}, but: {}",
                    printed.trim()
                )
                .into());
            }
            interrupt.check()?;
            thread::sleep(POLL_INTERVAL);
        }
        self.running.push(running);
        Ok(())
    }

    /// Pushes once: by this algorithm, or the switch copies.
    ///
    /// Errors: a receiver has no copy.
    pub fn push(&self, algorithm: Option<&str>, bytes: u64, interrupt: &Interrupt) -> Outcome<Run> {
        for copy in self.copies().filter(|copy| copy.exists()) {
            // A host that has one would be sent nothing.
            fs::remove_file(copy)?;
        }
        let hosts = self.lab.hosts();
        let to: Vec<String> =
            hosts[1..].iter().map(|host| format!("{}:{PORT}", host.address)).collect();
        let mut command = self.rdmc(hosts[0].command(&self.files.rdmc));
        command.arg("push").arg(&self.files.object).args(["--json", "--to", &to.join(",")]);
        match algorithm {
            Some(algorithm) => command.args(["--algorithm", algorithm]),
            None => command.args(["--switch", &format!("{SWITCH}:{AGENT_PORT}")]),
        };
        command.args(self.certificates.options());
        let log = self.directory.path().join("log-push");
        command.env("RUST_LOG", "transport_switch=debug");
        command.stdout(Stdio::piped()).stderr(File::create(&log)?);
        let before = self.lab.sent_bytes()?;
        let one_copy_s = bytes as f64 * 8.0 / self.lab.settings().link.rate.bits_per_s() as f64;
        let copies_s = Duration::from_secs_f64(one_copy_s * 4.0 * hosts.len() as f64);
        let mut watch = Watch::default();
        self.running.iter().for_each(|process| watch.look_at(process.id()));
        let mut push = Running::start(&mut command)?;
        let status = push.wait(POLL_INTERVAL, TIMEOUT + copies_s, interrupt, |push| {
            watch.look_at(push.id());
            Ok(())
        })?;
        self.running.iter().for_each(|process| watch.look_at(process.id()));
        let sent = self.lab.sent_bytes()?;
        let printed = push.output()?;
        if !status.success() {
            return Err(format!("the push ended with {status}: {printed}").into());
        }
        self.check_copies()?;
        let summary: Value = serde_json::from_str(&printed)?;
        let of = |name: &str| summary[name].as_f64().ok_or(format!("no {name}: {printed}"));
        Ok(Run {
            seconds: of("seconds")?,
            total_seconds: of("total_seconds")?,
            cpu_seconds: watch.cpu_seconds(),
            sent_bytes: sent.iter().zip(before).map(|(sent, before)| sent - before).collect(),
            packets: Packets::of_log(&fs::read_to_string(&log)?),
            fell_back: summary["fell_back"].as_str().map(str::to_owned),
        })
    }

    fn check_copies(&self) -> Outcome<()> {
        let object = fs::read(&self.files.object)?;
        let wrong = self.copies().find(|copy| !fs::read(copy).is_ok_and(|copy| copy == object));
        wrong.map_or(Ok(()), |copy| Err(format!("{} is no copy", copy.display()).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_from_the_log() {
        let log = "2026-01-01T00:00:00Z INFO transport_switch::queue_pair: blocks go through a queue pair\n\
                   2026-01-01T00:00:01Z DEBUG transport_switch::userspace: sent through a queue pair in userspace \
                   packets=32801 repeated=33\n";
        assert_eq!(Packets::of_log(log), Some(Packets { sent: 32801, repeated: 33 }));
        assert_eq!(Packets::of_log("nothing of the kind"), None);
    }
}
