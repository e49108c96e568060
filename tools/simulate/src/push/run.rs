//! Carries a scenario out.

use files::PushSettings;

use super::{
    canary::PushCanary,
    counts::PushCounts,
    facts::{Facts, PushEnd},
    scenario::PushScenario,
    seats::Root,
    settings::{root_machine, settings},
    world::World,
};
use crate::{
    counts::{Basics, Kinds},
    subject::{Options, Outcome},
};

/// Runs a push to its end, or to the first violation. A panic counts as one.
pub(super) fn run(
    scenario: &PushScenario,
    options: Options<PushCanary>,
) -> Outcome<PushCounts, PushEnd> {
    scenario.network.run(scenario.seed, options.trace_events, |network| {
        let settings = settings(scenario)?;
        let mut world = World::new(scenario, &settings, options, network);
        world.push();
        if world.facts.violations.is_empty() {
            world.push_again(&settings);
        }
        Ok(world.outcome())
    })
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

    fn outcome(self) -> Outcome<PushCounts, PushEnd> {
        let Facts { violations, faults, mut ends, counts, traffic, .. } = self.facts;
        ends.iter_mut().take(1).for_each(|end| end.traffic = traffic);
        let virtual_ns = self.network.now().as_nanos() as u64;
        let is_stream = self.scenario.stream.is_some();
        let again = is_stream && counts.rounds > ends.len() as u64;
        let kinds = faults.iter().map(|fault| fault.what.kind());
        let counts = PushCounts {
            basics: Basics::new(self.step, virtual_ns, kinds),
            trees: u64::from(!self.scenario.files.is_empty()),
            together: u64::from(self.scenario.together),
            streams: Kinds([is_stream, again].map(u64::from)),
            ..counts
        };
        Outcome { violations, counts, ends, ..Outcome::default() }
    }
}
