//! The outcome of a run.

/// The outcome of a run.
#[derive(Clone, Default, Debug)]
pub struct WireOutcome {
    /// Violations; empty if the run is correct.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// Digest of all events: equal runs have equal digests.
    pub digest: u64,
    /// How many steps there were.
    pub steps: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// Kinds of faults that happened.
    pub faults: Vec<usize>,
    /// Ends of channels, by kind.
    pub ends: [u64; 6],
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
