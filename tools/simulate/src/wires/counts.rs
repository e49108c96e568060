//! Sums over many runs of the wire.

use std::fmt;

use super::fault::WireFault;
use crate::counts::{Basics, Counts, Kinds, counts};

/// Kinds of ends, in the order in which they are counted.
const END_KINDS: [&str; 6] = ["closed", "closed by peer", "lost", "silent", "corrupt", "protocol"];

counts! {
    /// What runs count.
    pub struct WireCounts {
        /// What is counted of most runs.
        pub basics: Basics<{ WireFault::KINDS.len() }>,
        /// Ends of channels, by kind: closed, closed by the peer, lost, silent, corrupt, protocol.
        pub ends: Kinds<{ END_KINDS.len() }>,
        /// Blocks that were received.
        pub blocks: u64,
        /// Blocks that were sent on before they had arrived.
        pub cut_through: u64,
        /// One-sided writes that were sent.
        pub writes: u64,
        /// Control words that were received.
        pub words: u64,
        /// Messages of shared connections that were received.
        pub messages: u64,
        /// Channels on which everything came to both ends, as it had to.
        pub complete: u64,
    }
}

impl Counts for WireCounts {
    fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, cut_through, writes, words, messages, complete, .. } = self;
        let complete = format_args!("channels that had to be and were complete: {complete}");
        self.basics.write(f, runs, &WireFault::KINDS, complete)?;
        writeln!(f, "channels ended: {}", self.ends.named(&END_KINDS))?;
        write!(
            f,
            "blocks {blocks}, of these sent on before they had arrived {cut_through}; writes {writes}, control words {words}, \
             messages {messages}"
        )
    }
}
