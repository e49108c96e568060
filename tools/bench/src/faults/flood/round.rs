//! One push, flooded or not.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    net::SocketAddr,
    process::{ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::Lab;
use serde_json::Value;

use super::attack::{BYSTANDER_PORTS, Kind};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    procfs::{Watch, children, listening_ports},
    push_command::PushFiles,
    report::name,
    running::Running,
};

/// The port of receivers that listen.
const PORT: u16 = 7000;
const PUSH_TIMEOUT: Duration = Duration::from_secs(180);
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
/// From the start of an attack to the push.
const HEAD_START: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const POLLS_PER_PORT_SEARCH: u32 = 5;

/// Where and what is pushed. Of the lab's hosts the first is the root, the last is hostile, and the
/// one before it takes no part; the root starts the second, and all others listen.
pub struct Scenario<'a> {
    pub lab: &'a Lab,
    /// With a file `secret` in their directory, where copies go, too.
    pub files: &'a PushFiles,
}

/// What was measured in one push.
pub struct RoundResult {
    /// From the start of sending until the last receiver had all bytes.
    pub seconds: f64,
    /// With connecting, verifying and publishing.
    pub total_seconds: f64,
    /// Of the root and the receivers, user and system.
    pub cpu_seconds: f64,
    /// The most that one of them had.
    pub threads_max: u64,
    /// Unauthenticated ones.
    pub connections: u64,
}

/// The hostile host's process, and its targets so far.
struct Attack {
    process: Running,
    targets_input: ChildStdin,
    targets: BTreeSet<SocketAddr>,
    is_elsewhere: bool,
}

impl Attack {
    fn add(&mut self, target: SocketAddr) -> Outcome<()> {
        if self.targets.insert(target) {
            writeln!(self.targets_input, "{target}")?;
        }
        Ok(())
    }

    /// Ends it. Answers how many connections there were.
    fn end(self) -> Outcome<u64> {
        let Self { mut process, targets_input, .. } = self;
        drop(targets_input);
        Ok(process.output()?.trim().parse()?)
    }
}

impl Scenario<'_> {
    /// Pushes once, while connections of this kind flood every port with a listener.
    ///
    /// Errors: a host has no copy.
    pub fn run(&self, kind: Option<Kind>, interrupt: &Interrupt) -> Outcome<RoundResult> {
        self.remove_copies()?;
        let listeners = self.listeners()?;
        let _bystander = self.bystander()?;
        let mut attack = kind.map(|kind| self.attack(kind)).transpose()?;
        let mut watch = Watch::default();
        listeners.iter().for_each(|(_, process)| watch.look_at(process.id()));
        for (_, process) in &listeners {
            wait_for_listener(process)?;
        }
        if let Some(attack) = &mut attack {
            self.add_targets(attack, &listeners, None)?;
            thread::sleep(HEAD_START);
        }
        let mut push = Running::start(&mut self.push())?;
        let mut polls = 0;
        let mut launched = None;
        let status = push.wait(POLL_INTERVAL, PUSH_TIMEOUT, interrupt, |push| {
            watch.look_at(push.id());
            if let Some(process) = launched {
                watch.look_at(process);
            }
            if polls % POLLS_PER_PORT_SEARCH == 0 {
                launched = launched.or_else(|| children(push.id()).first().copied());
                if let Some(attack) = &mut attack {
                    self.add_targets(attack, &listeners, Some((push.id(), launched)))?;
                }
            }
            polls += 1;
            Ok(())
        })?;
        listeners.iter().for_each(|(_, process)| watch.look_at(process.id()));
        let connections = attack.map_or(Ok(0), Attack::end)?;
        let printed = push.output()?;
        if !status.success() {
            return Err(format!("the push ended with {status}: {printed}").into());
        }
        let summary: Value = serde_json::from_str(&printed)?;
        let of = |name: &str| summary[name].as_f64().ok_or(format!("no {name}: {printed}"));
        Ok(RoundResult {
            seconds: of("seconds")?,
            total_seconds: of("total_seconds")?,
            cpu_seconds: watch.cpu_seconds(),
            threads_max: watch.threads_max(),
            connections,
        })
    }

    /// A host that has a copy would be sent nothing.
    fn remove_copies(&self) -> Outcome<()> {
        for entry in fs::read_dir(self.files.directory())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().contains("copy-") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The hosts whose receivers listen; before them are the root and the receiver that it starts.
    fn listening_hosts(&self) -> std::ops::Range<u32> {
        2..self.bystander_number()
    }

    fn bystander_number(&self) -> u32 {
        self.lab.settings().hosts - 2
    }

    /// Starts them. Answers each one's host.
    fn listeners(&self) -> Outcome<Vec<(u32, Running)>> {
        let hosts = self.lab.hosts();
        let start = |number: u32| {
            let host = &hosts[number as usize];
            let mut command = host.command(&self.files.rdmc);
            command.args(["receive", "--listen"]).arg(format!("{}:{PORT}", host.address));
            command.arg("--secret-file").arg(self.files.directory().join("secret"));
            command.arg("--dir").arg(self.files.directory());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Ok((number, Running::start(&mut command)?))
        };
        self.listening_hosts().map(start).collect()
    }

    fn bystander(&self) -> Outcome<Running> {
        let host = &self.lab.hosts()[self.bystander_number() as usize];
        let mut command = host.command(env::current_exe()?);
        Running::start(command.arg("bystander").stdin(Stdio::piped()).stdout(Stdio::null()))
    }

    fn push(&self) -> Command {
        let hosts = self.lab.hosts();
        let listening = self.listening_hosts();
        let listening =
            listening.map(|number| format!("{}:{PORT}", hosts[number as usize].address));
        let to: Vec<String> = std::iter::once(self.lab.host_name(1)).chain(listening).collect();
        let mut command = hosts[0].command(&self.files.rdmc);
        command.env("RDMC_CONFIG", "/dev/null");
        command.args(["push", "object", "--json", "--secret-file", "secret"]);
        command.args(["--dest", "copy-{host}", "--to", &to.join(",")]);
        command.args(["--launcher", "ip netns exec {host}", "--remote-rdmc"]);
        command.arg(&self.files.rdmc).current_dir(self.files.directory());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    fn attack(&self, kind: Kind) -> Outcome<Attack> {
        let hosts = self.lab.hosts();
        let hostile = hosts.last().ok_or("a lab without hosts")?;
        let mut command = hostile.command(env::current_exe()?);
        command.args(["attack", "--kind", &name(&kind)]);
        let mut process = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let targets_input = process.0.stdin.take().ok_or("the attack has no input")?;
        let is_elsewhere = kind == Kind::Elsewhere;
        let mut attack = Attack { process, targets_input, targets: BTreeSet::new(), is_elsewhere };
        if is_elsewhere {
            let address = self.lab.settings().address(self.bystander_number());
            BYSTANDER_PORTS.into_iter().try_for_each(|port| attack.add((address, port).into()))?;
        }
        Ok(attack)
    }

    /// Adds every port with a listener on the hosts of these receivers, of the root and of the receiver that it has
    /// started, unless the attack is elsewhere.
    fn add_targets(
        &self,
        attack: &mut Attack,
        listeners: &[(u32, Running)],
        push: Option<(u32, Option<u32>)>,
    ) -> Outcome<()> {
        if attack.is_elsewhere {
            return Ok(());
        }
        let mut processes: Vec<(u32, u32)> =
            listeners.iter().map(|(number, process)| (*number, process.id())).collect();
        if let Some((root, launched)) = push {
            processes.push((0, root));
            processes.extend(launched.map(|launched| (1, launched)));
        }
        for (number, process) in processes {
            let address = self.lab.settings().address(number);
            for port in listening_ports(process) {
                attack.add((address, port).into())?;
            }
        }
        Ok(())
    }
}

fn wait_for_listener(process: &Running) -> Outcome<()> {
    let start = Instant::now();
    while !listening_ports(process.id()).contains(&PORT) {
        if start.elapsed() > LISTEN_TIMEOUT {
            return Err(format!("a receiver does not listen after {LISTEN_TIMEOUT:?}").into());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
