//! Sums over many runs of teams.

use std::fmt;

use super::fault::TeamFault;
use crate::counts::{Basics, Blame, Counts, Ends, Most, counts};

counts! {
    /// What runs count.
    pub struct TeamCounts {
        /// What is counted of most runs.
        pub basics: Basics<{ TeamFault::KINDS.len() }>,
        /// Operations that were complete at members.
        pub completed: u64,
        /// How teams ended.
        pub ends: Ends<5>,
        /// How exactly failures named their causes.
        pub blame: Blame,
        /// The longest run after its last disturbance.
        pub slowest: Most<f64>,
    }
}

impl Counts for TeamCounts {
    fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (successes, completed) = (self.ends.successes, self.completed);
        let successes = format_args!(
            "successful everywhere: {successes} runs; operations complete at members: {completed}"
        );
        self.basics.write(f, runs, &TeamFault::KINDS, successes)?;
        self.ends.write(f, "teams")?;
        let Blame { exact, behind } = self.blame;
        writeln!(
            f,
            "blamed: {exact} times a member with a fault, {behind} times one that waited with it"
        )?;
        write!(f, "{}", self.slowest)
    }
}
