//! One push, flooded or not.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{Read, Write},
    net::SocketAddr,
    path::Path,
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
    running::Running,
    watch::{Watch, listening_ports},
};

/// Where receivers listen.
const PORT: u16 = 7000;
/// No push takes longer, whatever happens.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long receivers may take to listen.
const START: Duration = Duration::from_secs(20);
/// How long an attack goes on before the push.
const HEAD_START: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);
/// New ports are looked for once in so many ticks.
const TICKS_PER_SEARCH: u32 = 5;

/// Where and what is pushed. Of the lab's hosts the first is the root, the last is hostile, and the
/// one before it takes no part; the second is started by the root, and all others listen.
pub struct Ground<'a> {
    pub lab: &'a Lab,
    pub rdmc: &'a Path,
    /// Has the file `object` and the secret `secret`; copies go there, too.
    pub directory: &'a Path,
}

/// What a push gave.
pub struct Told {
    /// From the start of sending until the last receiver had all bytes.
    pub seconds: f64,
    /// With finding each other, verifying and publishing.
    pub total_seconds: f64,
    /// Of the root and the receivers, user and system.
    pub cpu_seconds: f64,
    /// The most that one of them had.
    pub threads_max: u64,
    /// That strangers made.
    pub connections: u64,
}

/// The hostile host's process, and which ports it was told of.
struct Attack {
    process: Running,
    orders: ChildStdin,
    known: BTreeSet<SocketAddr>,
    is_elsewhere: bool,
}

impl Attack {
    fn on(&mut self, target: SocketAddr) -> Outcome<()> {
        if self.known.insert(target) {
            writeln!(self.orders, "{target}")?;
        }
        Ok(())
    }

    /// Ends it. Answers how many connections there were.
    fn end(self) -> Outcome<u64> {
        let Self { mut process, orders, .. } = self;
        drop(orders);
        let mut said = String::new();
        if let Some(mut out) = process.0.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        Ok(said.trim().parse()?)
    }
}

impl Ground<'_> {
    /// Pushes once, while strangers of this kind flood every port that somebody listens on.
    ///
    /// Errors: a host has no copy.
    pub fn play(&self, kind: Option<Kind>, interrupt: &Interrupt) -> Outcome<Told> {
        self.remove_copies()?;
        let listeners = self.listeners()?;
        let _bystander = self.bystander()?;
        let mut attack = kind.map(|kind| self.attack(kind)).transpose()?;
        let mut watch = Watch::default();
        for process in &listeners {
            watch.look_at(process.0.id());
        }
        self.wait_for(&listeners, &mut attack)?;
        if attack.is_some() {
            thread::sleep(HEAD_START);
        }
        let mut push = Running(self.push().spawn()?);
        let started = Instant::now();
        let mut ticks = 0;
        let mut launched = None;
        let status = loop {
            interrupt.check()?;
            watch.look_at(push.0.id());
            launched.iter().for_each(|&process| watch.look_at(process));
            if let Some(status) = push.0.try_wait()? {
                break status;
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("the push hangs, after {PATIENCE:?}").into());
            }
            if ticks % TICKS_PER_SEARCH == 0 {
                launched = launched.or_else(|| child_of(push.0.id()));
                self.spread(push.0.id(), launched, &listeners, &mut attack)?;
            }
            ticks += 1;
            thread::sleep(TICK);
        };
        listeners.iter().for_each(|process| watch.look_at(process.0.id()));
        let connections = attack.map_or(Ok(0), Attack::end)?;
        let mut said = String::new();
        if let Some(mut out) = push.0.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        if !status.success() {
            return Err(format!("the push ended with {status}: {said}").into());
        }
        let summary: Value = serde_json::from_str(&said)?;
        let of = |name: &str| summary[name].as_f64().ok_or(format!("there is no {name}: {said}"));
        Ok(Told {
            seconds: of("seconds")?,
            total_seconds: of("total_seconds")?,
            cpu_seconds: watch.cpu_seconds(),
            threads_max: watch.threads_max(),
            connections,
        })
    }

    /// Nothing would be sent to who has a copy.
    fn remove_copies(&self) -> Outcome<()> {
        for entry in fs::read_dir(self.directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().contains("copy-") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn receivers(&self) -> std::ops::Range<u32> {
        1..self.lab.settings().hosts - 2
    }

    fn listeners(&self) -> Outcome<Vec<Running>> {
        let (hosts, mut listeners) = (self.lab.hosts(), Vec::new());
        for number in self.receivers().skip(1) {
            let host = &hosts[number as usize];
            let mut command = host.command(self.rdmc);
            command.args(["receive", "--listen"]).arg(format!("{}:{PORT}", host.address));
            command.arg("--secret-file").arg(self.directory.join("secret"));
            command.arg("--dir").arg(self.directory);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            listeners.push(Running(command.spawn()?));
        }
        Ok(listeners)
    }

    fn bystander(&self) -> Outcome<Running> {
        let mut command =
            self.lab.hosts()[self.bystander_number() as usize].command(env::current_exe()?);
        command.arg("bystander").stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Running(command.spawn()?))
    }

    fn bystander_number(&self) -> u32 {
        self.lab.settings().hosts - 2
    }

    fn push(&self) -> Command {
        let hosts = self.lab.hosts();
        let started = self.lab.host_name(1);
        let listening = self.receivers().skip(1);
        let listening =
            listening.map(|number| format!("{}:{PORT}", hosts[number as usize].address));
        let to: Vec<String> = std::iter::once(started).chain(listening).collect();
        let mut command = hosts[0].command(self.rdmc);
        command.args([
            "push",
            "object",
            "--json",
            "--secret-file",
            "secret",
            "--dest",
            "copy-{host}",
        ]);
        command.arg("--to").arg(to.join(","));
        command.args(["--launcher", "ip netns exec {host}", "--remote-rdmc"]).arg(self.rdmc);
        command.current_dir(self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    fn attack(&self, kind: Kind) -> Outcome<Attack> {
        let hosts = self.lab.hosts();
        let hostile = hosts.last().ok_or("a lab without hosts")?;
        let mut command = hostile.command(env::current_exe()?);
        command.args(["attack", "--kind", &kind.argument()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Running(command.spawn()?);
        let orders = process.0.stdin.take().ok_or("no way to say whom to attack")?;
        let mut attack = Attack {
            process,
            orders,
            known: BTreeSet::new(),
            is_elsewhere: kind == Kind::Elsewhere,
        };
        if attack.is_elsewhere {
            let address = self.lab.settings().address(self.bystander_number());
            for port in BYSTANDER_PORTS {
                attack.on((address, port).into())?;
            }
        }
        Ok(attack)
    }

    /// Until all receivers that listen do so.
    fn wait_for(&self, listeners: &[Running], attack: &mut Option<Attack>) -> Outcome<()> {
        let until = Instant::now() + START;
        for process in listeners {
            while !listening_ports(process.0.id()).contains(&PORT) {
                if Instant::now() > until {
                    return Err(format!("a receiver does not listen after {START:?}").into());
                }
                thread::sleep(TICK);
            }
        }
        self.spread_to_listeners(listeners, attack)
    }

    /// Tells the attack, if there is one, of every port that somebody listens on.
    fn spread(
        &self,
        root: u32,
        launched: Option<u32>,
        listeners: &[Running],
        attack: &mut Option<Attack>,
    ) -> Outcome<()> {
        self.spread_to(0, root, attack)?;
        if let Some(launched) = launched {
            self.spread_to(1, launched, attack)?;
        }
        self.spread_to_listeners(listeners, attack)
    }

    fn spread_to_listeners(
        &self,
        listeners: &[Running],
        attack: &mut Option<Attack>,
    ) -> Outcome<()> {
        for (process, number) in listeners.iter().zip(self.receivers().skip(1)) {
            self.spread_to(number, process.0.id(), attack)?;
        }
        Ok(())
    }

    fn spread_to(&self, number: u32, process: u32, attack: &mut Option<Attack>) -> Outcome<()> {
        let address = self.lab.settings().address(number);
        for port in listening_ports(process) {
            if let Some(attack) = attack.as_mut().filter(|attack| !attack.is_elsewhere) {
                attack.on(SocketAddr::from((address, port)))?;
            }
        }
        Ok(())
    }
}

/// The first process that this one has started.
fn child_of(process: u32) -> Option<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let children =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    children
        .flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .next()
}
