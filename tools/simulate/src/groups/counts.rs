//! Sums over many runs.

use std::fmt;

use super::{checks::Reported, scenario::Fault};
use crate::counts::{Basics, Blame, Counts, Ends, Most, counts};

counts! {
    /// What runs count.
    pub struct GroupCounts {
        /// What is counted of most runs.
        pub basics: Basics<{ Fault::KINDS.len() }>,
        /// How groups ended.
        pub ends: Ends<7>,
        /// How exactly failures named their causes.
        pub blame: Blame,
        /// How exact the counts in failures were.
        pub reported: Reported,
        /// The longest run after its last disturbance.
        pub slowest: Most<f64>,
    }
}

impl Counts for GroupCounts {
    fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let successes = format_args!("successful everywhere: {} runs", self.ends.successes);
        self.basics.write(f, runs, &Fault::KINDS, successes)?;
        self.ends.write(f, "groups")?;
        let Blame { exact, behind } = self.blame;
        writeln!(
            f,
            "blamed: {exact} times a member with a fault, {behind} times one behind such a member"
        )?;
        let Reported { exact, below, had_to_be_exact } = self.reported;
        writeln!(
            f,
            "messages at all members after a failure: {exact} reports exact, {below} below; exact \
             by all in {had_to_be_exact} groups that had to be"
        )?;
        write!(f, "{}", self.slowest)
    }
}
