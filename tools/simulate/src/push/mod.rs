//! Whole pushes in virtual time: the decisions of both ends ([`files::machines`]) on top of real
//! engines, with control connections and disks that are made up.
//!
//! A seed makes a [`PushScenario`]; [`run_push`] carries it out, and after it the same command again,
//! when all harm is over.

mod canary;
mod draw;
mod facts;
mod harm;
mod line;
mod process;
mod receiver;
mod root;
mod scenario;
mod shrink;
mod tally;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use files::{HostPlan, PushSettings, Reach, machines::Coordinator};
use rdmc::Secret;
use transport_sim::SimNet;

pub use canary::PushCanary;
pub use draw::draw as draw_push;
pub use facts::Done as BlowDone;
pub use scenario::{Blow, Harm, HostScenario, PushScenario};

pub use shrink::smaller_pushes;
pub use tally::PushTally;

use root::Root;
use world::World;

use crate::subject::Options;

/// What has come of a push, and of the same command again.
#[derive(Clone, Default, Debug)]
pub struct PushOutcome {
    /// What must not have happened; empty if all is well.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// Of all that has happened in the network: equal runs have equal digests.
    pub digest: u64,
    /// How many steps there were.
    pub steps: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// How long it took after the last disturbance, in parts of what it may take.
    pub lateness: f64,
    /// Harm that was done.
    pub harms: Vec<BlowDone>,
    /// Hosts that have got their copies, and hosts that have failed, in all pushes.
    pub published: u64,
    /// See `published`.
    pub failed: u64,
    /// How often groups were made for what was missing.
    pub rounds: u64,
    /// How often hosts came back.
    pub retries: u64,
    /// How many hosts have joined, and how many were set aside.
    pub joined: u64,
    /// See `joined`.
    pub set_aside: u64,
    /// What hosts had of earlier sessions, what came although it was there, and what there was to
    /// replicate, in bytes of all hosts and pushes.
    pub resumed_bytes: u64,
    /// See `resumed_bytes`.
    pub bytes_again: u64,
    /// See `resumed_bytes`.
    pub bytes: u64,
}

/// Runs a push to its end, or to the first thing that must not happen. A panic is such a thing.
pub fn run_push(scenario: &PushScenario, options: Options<PushCanary>) -> PushOutcome {
    let network = SimNet::new(scenario.network.config(options.trace_events), scenario.seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let settings = settings(scenario)?;
        let mut world = World::new(scenario, &settings, options, &network);
        world.push();
        if world.facts.violations.is_empty() {
            world.push_again(&settings);
        }
        Ok(world.outcome())
    }));
    let mut outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    });
    let mut outcome = match &mut outcome {
        Ok(outcome) => std::mem::take(outcome),
        Err(problem) => {
            PushOutcome { violations: vec![std::mem::take(problem)], ..PushOutcome::default() }
        }
    };
    outcome.digest = network.digest();
    if options.trace_events > 0 {
        outcome.trace = network.trace();
    }
    outcome
}

fn name(host: usize) -> String {
    format!("h{host}")
}

fn plan(host: usize) -> HostPlan {
    let (name, rack) = (name(host), host as u32 / 3);
    HostPlan { destination: name.clone(), name, rack, reach: Reach::Calls }
}

fn settings(scenario: &PushScenario) -> Result<PushSettings, String> {
    scenario.check()?;
    let hosts = scenario.named().map(plan).collect();
    let rate = scenario.network.rate_bytes_per_s;
    let rate_min = (rate * scenario.rate_min_percent / 100).max(1);
    Ok(PushSettings {
        algorithm: scenario.algorithm()?,
        block_bytes: Some(scenario.block_bytes),
        rate_bits_per_second: Some(rate.saturating_mul(8)),
        retries: scenario.retries,
        rate_min: (scenario.rate_min_percent > 0).then_some(rate_min),
        ..PushSettings::new(hosts, Secret::from_bytes([7; 32]))
    })
}

impl<'a> World<'a> {
    /// One push, with all that is done to it.
    fn push(&mut self) {
        self.facts.pushes += 1;
        self.start_push();
        self.live();
        if self.facts.violations.is_empty() {
            self.check_push();
        }
        if self.facts.violations.is_empty() {
            self.settle();
            self.check_leaks();
        }
    }

    /// All machines are well again, and somebody repeats the command.
    fn push_again(&mut self, settings: &'a PushSettings) {
        for machine in 0..self.machines.len() {
            self.kill_machine(machine, false);
            self.machines[machine].held_until_ns = 0;
        }
        self.partitions.clear();
        self.agenda.clear();
        self.disturbed_ns = self.now_ns();
        let core = Coordinator::new(settings, self.scenario.bytes);
        self.root = Root::new(core, self.scenario);
        self.push();
    }

    fn outcome(self) -> PushOutcome {
        let facts = self.facts;
        let virtual_ns = self.network.now().as_nanos() as u64;
        PushOutcome {
            violations: facts.violations,
            steps: self.step,
            virtual_ns,
            lateness: facts.lateness,
            harms: facts.harms,
            published: facts.published,
            failed: facts.failed,
            rounds: facts.rounds,
            retries: facts.retries,
            joined: facts.joined,
            set_aside: facts.set_aside,
            resumed_bytes: facts.resumed_bytes,
            bytes_again: facts.bytes_again,
            bytes: facts.bytes,
            ..PushOutcome::default()
        }
    }
}
