//! Sums over many runs of creations.

use std::fmt;

use crate::counts::{Counts, Most, counts, write_runs};

counts! {
    /// What runs count.
    pub struct CreationCounts {
        /// Steps.
        pub steps: u64,
        /// Virtual time.
        pub virtual_ns: u64,
        /// Groups that stood in the end at all members.
        pub groups: u64,
        /// Attempts that were begun by members.
        pub attempts: u64,
        /// Attempts that ended at their timeout.
        pub timeouts: u64,
        /// Attempts that were refused, or failed for another reason.
        pub refused: u64,
        /// Groups of a member that had a link whose other end was given back.
        pub broken: u64,
        /// Shared connections that were lost, and contexts that died.
        pub faults: u64,
        /// The most attempts in a run.
        pub most: Most<u64>,
    }
}

impl Counts for CreationCounts {
    fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_runs(f, runs, self.steps, self.virtual_ns)?;
        let Self { groups, attempts, timeouts, refused, broken, faults, most, .. } = self;
        write!(
            f,
            "{groups} groups created; attempts of members {attempts}: {timeouts} timed out, {refused} refused, \
             {broken} groups broken; connections lost and contexts dead: {faults}\n\
             most attempts in a run: {most}"
        )
    }
}
