//! Hosts around a switch, and the pushes between them.

use std::{
    fs::{self, File},
    io::Read,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSettings, Link};
use serde_json::Value;
use tempfile::TempDir;

use super::certificates::Certificates;
use crate::{interrupt::Interrupt, outcome::Outcome, running::Running, watch::Watch};

/// The switch's own address: beyond those of a lab's hosts, in their network.
const SWITCH: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 255, 1));
/// Where its agent is asked, and where receivers listen.
const AGENT_PORT: u16 = 4790;
const PORT: u16 = 7000;
/// How long agents and receivers may take to begin.
const START: Duration = Duration::from_secs(20);
/// No push takes longer than this beyond several times what its bytes take on the sender's link.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);

/// What is pushed, by which program, and where copies may go.
pub struct Ground<'a> {
    pub rdmc: &'a Path,
    pub object: &'a Path,
    pub scratch: &'a Path,
}

/// What the switch bridges with, and copies, if it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copier {
    Kernel,
    Userspace,
}

/// What one push gave.
pub struct Run {
    /// From the first byte sent until the last receiver had all.
    pub seconds: f64,
    /// With making the group, verifying and publishing.
    pub total_seconds: f64,
    /// Of all that `rdmc` has running on the hosts and at the switch, user and system.
    pub cpu_seconds: f64,
    /// What each host's link carried towards the switch; the sender's first.
    pub sent_bytes: Vec<u64>,
    /// Why receivers relayed, where the switch was to copy.
    pub fell_back: Option<String>,
}

/// A lab whose hosts but the first listen for pushes; gone when dropped.
pub struct Site {
    /// Ended before their network is.
    running: Vec<Running>,
    lab: Lab,
    directory: TempDir,
    certificates: Certificates,
    rdmc: PathBuf,
    object: PathBuf,
}

impl Site {
    /// Makes the network, and starts the receivers and, if somebody needs it, the switch's agent.
    pub fn set_up(
        ground: &Ground<'_>,
        copier: Copier,
        needs_agent: bool,
        (receivers, link): (u32, Link),
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let lab = Lab::create(&LabSettings::new(receivers + 1, link))?;
        let directory = TempDir::new_in(ground.scratch)?;
        let hosts = lab.hosts();
        let addresses: Vec<IpAddr> =
            hosts.iter().map(|host| host.address).chain([SWITCH]).collect();
        let certificates = Certificates::make(directory.path(), &addresses)?;
        let (rdmc, object) = (ground.rdmc.to_owned(), ground.object.to_owned());
        let mut site = Self { running: Vec::new(), lab, directory, certificates, rdmc, object };
        let ports = site.set_up_switch(copier, link)?;
        if needs_agent {
            let mut agent = site.rdmc(site.lab.at_switch(&site.rdmc));
            agent.args(["switch", "run", "--name", "switch", "--plane", copier.name()]);
            agent.args(["--listen", &format!("{SWITCH}:{AGENT_PORT}"), "--ports", &ports]);
            site.start(agent, "switch agent at", interrupt)?;
        } else if copier == Copier::Userspace {
            return Err("without its agent nobody bridges".into());
        }
        for (number, host) in hosts.iter().enumerate().skip(1) {
            let directory = site.directory_of(number);
            fs::create_dir(&directory)?;
            let mut receiver = site.rdmc(host.command(&site.rdmc));
            receiver.args(["receive", "--listen", &format!("{}:{PORT}", host.address)]);
            receiver.arg("--dir").arg(directory);
            site.start(receiver, "listening on", interrupt)?;
        }
        Ok(site)
    }

    /// Gives the switch its address. Answers its ports, as its agent is told of them.
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
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(format!("`ip {line}` failed: {}", said.trim()).into());
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
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts it with certificates, and waits until it says these words.
    fn start(&mut self, mut command: Command, words: &str, interrupt: &Interrupt) -> Outcome<()> {
        let log = self.directory.path().join(format!("log-{}", self.running.len()));
        command.args(self.certificates.options()).stderr(File::create(&log)?);
        let mut running = Running(command.spawn()?);
        let until = Instant::now() + START;
        loop {
            let said = fs::read_to_string(&log)?;
            if said.contains(words) {
                break;
            }
            if running.0.try_wait()?.is_some() || Instant::now() > until {
                return Err(format!("not \"{words}\" after {START:?}, but: {}", said.trim()).into());
            }
            interrupt.check()?;
            thread::sleep(TICK);
        }
        self.running.push(running);
        Ok(())
    }

    /// Pushes once: by this algorithm, or the switch copies.
    ///
    /// Errors: a receiver has no copy.
    pub fn push(&self, algorithm: Option<&str>, bytes: u64, interrupt: &Interrupt) -> Outcome<Run> {
        for copy in self.copies().filter(|copy| copy.exists()) {
            // Nothing would be sent to who has one.
            fs::remove_file(copy)?;
        }
        let hosts = self.lab.hosts();
        let to: Vec<String> =
            hosts[1..].iter().map(|host| format!("{}:{PORT}", host.address)).collect();
        let mut command = self.rdmc(hosts[0].command(&self.rdmc));
        command.arg("push").arg(&self.object).args(["--json", "--to", &to.join(",")]);
        match algorithm {
            Some(algorithm) => command.args(["--algorithm", algorithm]),
            None => command.args(["--switch", &format!("{SWITCH}:{AGENT_PORT}")]),
        };
        command.args(self.certificates.options());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let before = self.lab.sent_bytes()?;
        let one_copy_s = bytes as f64 * 8.0 / self.lab.settings().link.rate.bits_per_s() as f64;
        let copies_s = Duration::from_secs_f64(one_copy_s * 4.0 * hosts.len() as f64);
        let mut watch = Watch::default();
        self.running.iter().for_each(|process| watch.look_at(process.0.id()));
        let mut push = Running(command.spawn()?);
        let status = wait(&mut push.0, &mut watch, PATIENCE + copies_s, interrupt)?;
        self.running.iter().for_each(|process| watch.look_at(process.0.id()));
        let sent = self.lab.sent_bytes()?;
        let mut said = String::new();
        if let Some(mut out) = push.0.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        if !status.success() {
            return Err(format!("the push ended with {status}: {said}").into());
        }
        self.check_copies()?;
        let summary: Value = serde_json::from_str(&said)?;
        let of = |name: &str| summary[name].as_f64().ok_or(format!("there is no {name}: {said}"));
        Ok(Run {
            seconds: of("seconds")?,
            total_seconds: of("total_seconds")?,
            cpu_seconds: watch.cpu_seconds(),
            sent_bytes: sent.iter().zip(before).map(|(sent, before)| sent - before).collect(),
            fell_back: summary["fell_back"].as_str().map(str::to_owned),
        })
    }

    fn check_copies(&self) -> Outcome<()> {
        let object = fs::read(&self.object)?;
        let wrong = self.copies().find(|copy| !fs::read(copy).is_ok_and(|copy| copy == object));
        wrong.map_or(Ok(()), |copy| Err(format!("{} is no copy", copy.display()).into()))
    }
}

impl Copier {
    /// `rdmc switch run --plane`.
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Userspace => "userspace",
        }
    }
}

fn wait(
    child: &mut Child,
    watch: &mut Watch,
    patience: Duration,
    interrupt: &Interrupt,
) -> Outcome<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        watch.look_at(child.id());
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > until {
            return Err(format!("the push hangs, after {patience:?}").into());
        }
        interrupt.check()?;
        thread::sleep(TICK);
    }
}
