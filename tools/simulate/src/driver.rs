//! Virtual time of members on a simulated network: what happens next, who is stopped, and how long a run may last.

use std::{fmt, time::Duration};

use transport_sim::SimNet;

use crate::{agenda::Agenda, counts::Most, dice::Dice, faults::PlannedFault};

/// A run with more steps does not terminate.
const STEPS_MAX: u64 = 2_000_000;

/// Advances virtual time.
pub(crate) struct Driver<'a, D, F> {
    pub(crate) network: &'a SimNet,
    pub(crate) dice: Dice,
    pub(crate) agenda: Agenda<D>,
    pub(crate) step: u64,
    /// Those that are to be injected, by step.
    faults: &'a [PlannedFault<F>],
    /// Until when each member is stopped; `u64::MAX`: for ever.
    held_until_ns: Vec<u64>,
    /// When the last known disturbance from outside ended.
    disturbed_ns: u64,
    /// How long the run may last from then on.
    pub(crate) bound_ns: u64,
}

/// Members on a simulated network, which a [`Driver`] moves.
pub(crate) trait World<'a> {
    /// A planned action of a member.
    type Due: Copy + Ord;
    /// A fault.
    type Fault: fmt::Debug + 'a;

    /// Returns what advances time.
    fn driver(&mut self) -> &mut Driver<'a, Self::Due, Self::Fault>;

    /// Returns the violations so far; the first ends the run.
    fn violations(&mut self) -> &mut Vec<String>;

    /// Returns whether all members have ended that can end.
    fn is_over(&self) -> bool;

    /// Describes those that have not.
    fn living(&self) -> String;

    /// Returns whether a member has yet to disturb the run by itself.
    fn will_be_disturbed(&self) -> bool;

    /// Plans an action, unless it is planned for an earlier time.
    fn plan(&mut self, rank: usize, due: Self::Due, at_ns: u64);

    /// Something has completed for a member.
    fn notify(&mut self, rank: usize);

    /// A member does what was planned.
    fn happen(&mut self, rank: usize, due: Self::Due);

    /// Injects a fault.
    fn inject(&mut self, what: &'a Self::Fault);

    /// Runs until all members that can end have ended, or a check fails.
    fn run_to_end(&mut self) {
        while self.violations().is_empty() && !self.is_over() {
            self.driver().step += 1;
            while let Some(what) = self.driver().next_fault() {
                self.inject(what);
            }
            let goes_on = self.advance();
            if self.is_over() {
                return;
            }
            let living = format!("{} have not ended", self.living());
            let will_be_disturbed = self.will_be_disturbed();
            let driver = self.driver();
            let (steps, bound_us) = (driver.step, driver.bound_ns / 1_000);
            let is_late = driver.now_ns() > driver.disturbed_ns + driver.bound_ns;
            if !goes_on {
                self.violations().push(format!("nothing happens any more: {living}"));
            }
            if is_late && !will_be_disturbed {
                let what = format!("{bound_us} us after the last disturbance: {living}");
                self.violations().push(what);
            }
            if steps > STEPS_MAX {
                self.violations().push(format!("{STEPS_MAX} steps: {living}"));
            }
        }
    }

    /// Executes the next step. Returns `false` if there is none.
    fn advance(&mut self) -> bool {
        let driver = self.driver();
        let reporting = match driver.agenda.next_ns() {
            Some(at_ns) => driver.network.run_until(Duration::from_nanos(at_ns)),
            None => driver.network.step(),
        };
        if let Some(rank) = reporting {
            self.notify(rank);
            return true;
        }
        let has_more = driver.agenda.next_ns().is_some();
        let Some((at_ns, rank, due)) = driver.agenda.pop() else { return has_more };
        let held_until_ns = driver.held_until_ns[rank];
        if held_until_ns <= at_ns {
            self.happen(rank, due);
        } else if held_until_ns < u64::MAX {
            self.plan(rank, due, held_until_ns);
        }
        true
    }
}

impl<'a, D: Copy + Ord, F: fmt::Debug> Driver<'a, D, F> {
    /// Makes one of this many members. `bound_ns`: how long a run may last that nothing delays.
    pub(crate) fn new(
        network: &'a SimNet,
        dice: Dice,
        members: usize,
        faults: &'a [PlannedFault<F>],
        bound_ns: u64,
    ) -> Self {
        let (agenda, held_until_ns) = (Agenda::default(), vec![0; members]);
        Self { network, dice, agenda, step: 0, faults, held_until_ns, disturbed_ns: 0, bound_ns }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.network.now().as_nanos() as u64
    }

    /// Takes the next fault of the current step.
    fn next_fault(&mut self) -> Option<&'a F> {
        let (first, rest) = self.faults.split_first().filter(|(it, _)| it.step <= self.step)?;
        self.faults = rest;
        self.network.remark(|| format!("step {}: {:?}", self.step, first.what));
        Some(&first.what)
    }

    /// Notes that something disturbs the run from outside, for this long; `u64::MAX` for ever.
    pub(crate) fn disturb(&mut self, holds_ns: u64) {
        let holds_ns = if holds_ns == u64::MAX { 0 } else { holds_ns };
        self.disturbed_ns = self.disturbed_ns.max(self.now_ns() + holds_ns);
    }

    /// Stops a member; `None`: for ever.
    pub(crate) fn hold(&mut self, rank: usize, for_ns: Option<u64>) {
        let until_ns = for_ns.map_or(u64::MAX, |for_ns| self.now_ns() + for_ns);
        self.held_until_ns[rank] = self.held_until_ns[rank].max(until_ns);
    }

    /// Returns whether a member is stopped now.
    pub(crate) fn is_held(&self, rank: usize) -> bool {
        self.held_until_ns[rank] > self.now_ns()
    }

    /// Returns whether a member is stopped for ever.
    pub(crate) fn is_held_for_ever(&self, rank: usize) -> bool {
        self.held_until_ns[rank] == u64::MAX
    }

    /// Returns when a member polls after something has completed; `None`: at once.
    pub(crate) fn polls_ns(&mut self, rank: usize, delay_ns_max: u64) -> Option<u64> {
        let at_ns = self.now_ns() + self.dice.between(0, delay_ns_max);
        (delay_ns_max > 0 || self.held_until_ns[rank] > at_ns).then_some(at_ns)
    }

    /// Returns how long the run took after the last disturbance. Only runs that reach deadlines can last long.
    pub(crate) fn slowest(&self, last_ns: u64, has_deadline: bool, seed: u64) -> Most<f64> {
        let late_ns = last_ns.saturating_sub(self.disturbed_ns);
        let value = if has_deadline { late_ns as f64 / self.bound_ns as f64 } else { 0.0 };
        Most { value, seed }
    }
}
