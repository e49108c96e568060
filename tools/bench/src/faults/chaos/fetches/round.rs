//! One round: all hosts fetch while some members are killed, then those that were killed fetch again.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab};

use super::{
    super::fault::processes,
    actions::{Action, Fetch, Kill, Plan},
    copies::Copies,
    program::Program,
};
use crate::{interrupt::Interrupt, outcome::Outcome, random::Random};

const FETCH_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Where and what is fetched.
pub struct Scenario<'a> {
    pub lab: &'a Lab,
    pub copies: &'a Copies,
    pub bytes: u64,
}

/// What was measured in a round.
pub struct RoundResult {
    /// Fetches, the second ones of hosts that were killed included.
    pub fetches: usize,
    /// Hosts that were killed before they had ended.
    pub killed: usize,
    /// From the first kill until the last host that was not killed had ended.
    pub seconds_after_kill: f64,
}

/// The members of a round by their numbers; the first are servers.
struct Round<'a> {
    scenario: &'a Scenario<'a>,
    hosts: Vec<Host>,
    servers: u32,
    /// The name of what is fetched.
    object: &'static str,
    plan: Plan,
    running: BTreeMap<u32, Program>,
    killed: Vec<u32>,
}

impl Scenario<'_> {
    /// Runs one round. Errors: which promise was broken.
    pub fn run(
        &self,
        kill: Kill,
        random: &mut Random,
        interrupt: &Interrupt,
    ) -> Outcome<RoundResult> {
        let settings = self.lab.settings();
        let copy_s = self.bytes as f64 * 8.0 / settings.link.rate.bits_per_s() as f64;
        let plan = Plan::new(kill, settings.hosts, copy_s, random);
        let round = Round {
            scenario: self,
            hosts: self.lab.hosts(),
            servers: kill.servers(),
            object: if plan.is_tree { "directory" } else { "file" },
            plan,
            running: BTreeMap::new(),
            killed: Vec::new(),
        };
        round.run(interrupt)
    }

    fn check_no_processes(&self) -> Outcome<()> {
        for host in (0..self.lab.settings().hosts).map(|host| self.lab.host_name(host)) {
            let left = processes(&host)?;
            if !left.is_empty() {
                return Err(format!("processes {left:?} are left at {host}").into());
            }
        }
        Ok(())
    }
}

impl Round<'_> {
    fn run(mut self, interrupt: &Interrupt) -> Outcome<RoundResult> {
        let copies = self.scenario.copies;
        let names: Vec<String> = self.fetching().map(|host| self.name(host)).collect();
        copies.clear(names.iter().map(String::as_str))?;
        for host in self.fetching().filter(|&host| self.fetch(host).has_old) {
            copies.put_old(&self.name(host), self.object)?;
        }
        (0..self.servers).try_for_each(|server| self.start(server, interrupt))?;
        let seconds_after_kill = self.fetch_all(interrupt)?;
        for host in self.fetching() {
            let name = self.name(host);
            if self.killed.contains(&host) {
                copies.check_old_or_new(&name, self.object, self.fetch(host).has_old)?;
            } else {
                copies.check_whole(&name, self.object)?;
            }
        }
        let again: Vec<u32> =
            self.killed.iter().copied().filter(|&it| it >= self.servers).collect();
        again.iter().try_for_each(|&host| self.start(host, interrupt))?;
        self.await_hosts(Instant::now(), interrupt)?;
        self.fetching().try_for_each(|host| copies.check_whole(&self.name(host), self.object))?;
        for server in std::mem::take(&mut self.running).into_values() {
            server.end(interrupt)?;
        }
        self.scenario.check_no_processes()?;
        let fetches = names.len() + again.len();
        Ok(RoundResult { fetches, killed: again.len(), seconds_after_kill })
    }

    /// The hosts that fetch.
    fn fetching(&self) -> std::ops::Range<u32> {
        self.servers..self.hosts.len() as u32
    }

    fn fetch(&self, host: u32) -> Fetch {
        self.plan.fetches[(host - self.servers) as usize]
    }

    fn name(&self, member: u32) -> String {
        self.scenario.lab.host_name(member)
    }

    fn start(&mut self, member: u32, interrupt: &Interrupt) -> Outcome<()> {
        let (copies, host, name) =
            (self.scenario.copies, &self.hosts[member as usize], self.name(member));
        let program = if member < self.servers {
            Program::serve(copies, host, &name, interrupt)?
        } else {
            let servers: Vec<&Host> = self.hosts[..self.servers as usize].iter().collect();
            Program::fetch(copies, host, &name, self.object, &servers, self.fetch(member))?
        };
        self.running.insert(member, program);
        Ok(())
    }

    /// Carries out the plan, and waits for all hosts. Returns the time from the first kill, in seconds.
    fn fetch_all(&mut self, interrupt: &Interrupt) -> Outcome<f64> {
        let start = Instant::now();
        let mut first_kill = None;
        for (at, action) in std::mem::take(&mut self.plan.actions) {
            while start.elapsed() < at {
                interrupt.check()?;
                self.check_ended()?;
                thread::sleep(POLL_INTERVAL.min(at.saturating_sub(start.elapsed())));
            }
            match action {
                Action::Start(member) => self.start(member, interrupt)?,
                Action::Kill(member) => {
                    first_kill.get_or_insert_with(Instant::now);
                    let program = self.running.remove(&member);
                    if program.map(Program::kill).transpose()?.unwrap_or(false) {
                        self.killed.push(member);
                    }
                }
            }
        }
        self.await_hosts(start, interrupt)?;
        Ok(first_kill.map_or(0.0, |at| at.elapsed().as_secs_f64()))
    }

    fn await_hosts(&mut self, since: Instant, interrupt: &Interrupt) -> Outcome<()> {
        while let Some(host) = self.running.keys().copied().find(|&it| it >= self.servers) {
            interrupt.check()?;
            self.check_ended()?;
            if since.elapsed() > FETCH_TIMEOUT {
                return Err(self.running[&host].error("has not ended"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Removes hosts that have ended. Errors: one without a copy, or a server.
    fn check_ended(&mut self) -> Outcome<()> {
        let servers = self.servers;
        let mut failed = None;
        let mut ended = Vec::new();
        for (&member, program) in &mut self.running {
            if let Some(status) = program.ended()? {
                ended.push(member);
                if member < servers || !status.success() {
                    failed = Some(program.error(&format!("has ended with {status}")));
                }
            }
        }
        ended.iter().for_each(|member| drop(self.running.remove(member)));
        failed.map_or(Ok(()), Err)
    }
}
