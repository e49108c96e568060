//! Carries a scenario out.

use files::PushSettings;
use transport_sim::SimNet;

use super::{
    canary::PushCanary,
    outcome::PushOutcome,
    scenario::PushScenario,
    seats::Root,
    settings::{root_machine, settings},
    world::World,
};
use crate::{options::Options, panics::caught};

/// Runs a push to its end, or to the first violation. A panic counts as one.
pub fn run_push(scenario: &PushScenario, options: Options<PushCanary>) -> PushOutcome {
    let network = SimNet::new(scenario.network.config(options.trace_events), scenario.seed);
    let outcome = caught(|| {
        let settings = settings(scenario)?;
        let mut world = World::new(scenario, &settings, options, &network);
        world.push();
        if world.facts.violations.is_empty() {
            world.push_again(&settings);
        }
        Ok(world.outcome())
    });
    let mut outcome = outcome.unwrap_or_else(|problem| PushOutcome {
        violations: vec![problem],
        ..PushOutcome::default()
    });
    outcome.digest = network.digest();
    if options.trace_events > 0 {
        outcome.trace = network.trace();
    }
    outcome
}

impl<'a> World<'a> {
    /// Runs the first push, with its faults.
    fn push(&mut self) {
        self.facts.pushes += 1;
        self.start_push();
        self.run_to_end();
        if self.facts.violations.is_empty() {
            self.check_push();
        }
        if self.facts.violations.is_empty() {
            self.settle();
            self.check_repeats();
            self.check_leaks();
        }
    }

    /// Repeats the command after all faults are over.
    fn push_again(&mut self, settings: &'a PushSettings) {
        for machine in 0..self.machines.len() {
            self.kill_machine(machine, false);
            self.machines[machine].held_until_ns = 0;
        }
        self.partitions.clear();
        self.agenda.clear();
        self.disturbed_ns = self.now_ns();
        self.root = Root::new(root_machine(self.scenario, settings), self.scenario);
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
            faults: facts.faults,
            ends: facts.ends,
            published: facts.published,
            failed: facts.failed,
            rounds: facts.rounds,
            retries: facts.retries,
            joined: facts.joined,
            deferred: facts.deferred,
            is_tree: !self.scenario.files.is_empty(),
            is_stream: self.scenario.stream.is_some(),
            altered: facts.altered,
            resumed_bytes: facts.resumed_bytes,
            bytes_again: facts.bytes_again,
            bytes: facts.bytes,
            traffic: facts.traffic,
            ..PushOutcome::default()
        }
    }
}
