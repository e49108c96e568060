//! Sums over many pushes.

use std::fmt;

use super::scenario::Fault;
use crate::counts::{Basics, Counts, Kinds, Most, counts};

counts! {
    /// What runs count, each a push and its repetition.
    pub struct PushCounts {
        /// What is counted of most runs.
        pub basics: Basics<{ Fault::KINDS.len() }>,
        /// Copies that were published.
        pub published: u64,
        /// Hosts that have failed in a push.
        pub failed: u64,
        /// How often groups were created for missing bytes.
        pub rounds: u64,
        /// How often hosts reconnected within a push.
        pub retries: u64,
        /// Hosts that have joined.
        pub joined: u64,
        /// Hosts that were deferred.
        pub deferred: u64,
        /// Runs of trees.
        pub trees: u64,
        /// Those of them whose hosts read the tree themselves.
        pub together: u64,
        /// Runs of streams, and those of them in which groups were formed again.
        pub streams: Kinds<2>,
        /// Pushes to all or none that all hosts have published, some of them, and none.
        pub all_or_none: Kinds<3>,
        /// How often a host got other bytes of a stream than those that were sent.
        pub altered: u64,
        /// Bytes kept from earlier sessions, of all hosts in both pushes.
        pub resumed_bytes: u64,
        /// Bytes received although they were in place.
        pub bytes_again: u64,
        /// Bytes to replicate.
        pub bytes: u64,
        /// The longest run after its last disturbance.
        pub slowest: Most<f64>,
    }
}

impl Counts for PushCounts {
    fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { published, failed, rounds, retries, joined, deferred, trees, altered, .. } =
            self;
        let copies = format_args!("copies published: {published}, hosts given up: {failed}");
        self.basics.write(f, runs, &Fault::KINDS, copies)?;
        let percent = |bytes: u64| 100.0 * bytes as f64 / self.bytes.max(1) as f64;
        writeln!(
            f,
            "rounds of groups: {rounds}; hosts that came back: {retries}, joined: {joined}, were set aside: {deferred}; \
             {:.1} % of all bytes were there already, {:.2} % came again",
            percent(self.resumed_bytes),
            percent(self.bytes_again)
        )?;
        let Kinds([streams, again]) = self.streams;
        writeln!(
            f,
            "trees: {trees}, of which {} that hosts read themselves; streams: {streams}, of which {again} with more than one group in a push; altered bytes \
             noticed: {altered}",
            self.together
        )?;
        let Kinds([all, some, none]) = self.all_or_none;
        writeln!(
            f,
            "to all or none: {all} that all hosts have published, {some} some, {none} none"
        )?;
        write!(f, "{}", self.slowest)
    }
}
