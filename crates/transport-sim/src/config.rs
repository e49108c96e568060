//! What a simulated network is like.

/// Properties of a network; what differs by link or member can be set later at [`crate::SimNet`].
#[derive(Clone, PartialEq, Debug)]
pub struct SimConfig {
    /// Rate of each member's transmit port and of its receive port. At least 1.
    pub port_rate_bytes_per_s: u64,
    /// What each link is like, unless it is connected with properties of its own.
    pub link: LinkConfig,
    /// What each block costs its two ports besides its bytes.
    pub block_overhead_ns: u64,
    /// Random time for which a block keeps its two ports longer than it should: slow hosts, lost
    /// packets.
    pub block_jitter: Jitter,
    /// Random delay on the way, uniform between 0 and this. It occupies no port, and lets blocks of
    /// one endpoint arrive in another order than they were sent in.
    pub delivery_jitter_ns_max: u64,
    /// Random delay of a control word, uniform between 0 and this; words of one endpoint stay in
    /// order.
    pub control_jitter_ns_max: u64,
    /// After this time a killed member's peers report that their connections are lost.
    pub loss_detection_ns: u64,
    /// A member that is stalled for this long is reported as silent by its peers. `None`: never.
    pub silence_timeout_ms: Option<u64>,
    /// So long a close waits for its peer at the most.
    pub drain_timeout_ms: u64,
    /// The most bytes that one post can carry.
    pub block_bytes_max: u64,
    /// Whether bytes are copied from sender to receiver. Without that only time is modelled, and
    /// the receivers' memory is never touched.
    pub carry_bytes: bool,
    /// How many of the last events are kept for [`crate::SimNet::trace`].
    pub trace_events: usize,
}

/// Properties of a link, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// A rate below that of the ports makes the link slow. At least 1.
    pub rate_bytes_per_s: u64,
    /// From the end of a block at the ports to its arrival; of a control word, from being written.
    pub latency_ns: u64,
}

/// A random time, drawn anew for each block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Jitter {
    /// None at all.
    None,
    /// Uniform between 0 and so many nanoseconds.
    Ns(u64),
    /// Uniform between 0 and so many times what the block takes anyway.
    BlockTimes(f64),
}

impl LinkConfig {
    /// No slower than the ports, and without latency.
    pub const IDEAL: Self = Self { rate_bytes_per_s: u64::MAX, latency_ns: 0 };
}

impl SimConfig {
    /// Ports of one byte per nanosecond, no latency, no overhead, no randomness: a block of b
    /// bytes takes b ns. Bytes are carried; lost members are noticed at once, stalled ones never.
    pub const IDEAL: Self = Self {
        port_rate_bytes_per_s: 1_000_000_000,
        link: LinkConfig::IDEAL,
        block_overhead_ns: 0,
        block_jitter: Jitter::None,
        delivery_jitter_ns_max: 0,
        control_jitter_ns_max: 0,
        loss_detection_ns: 0,
        silence_timeout_ms: None,
        drain_timeout_ms: 1_000,
        block_bytes_max: u32::MAX as u64,
        carry_bytes: true,
        trace_events: 200,
    };
}

impl Default for SimConfig {
    /// A data centre of 100 Gb/s: 5 us from member to member, a lost member is noticed after 10 ms,
    /// a silent one after 5 s. No randomness.
    fn default() -> Self {
        Self {
            port_rate_bytes_per_s: 12_500_000_000,
            link: LinkConfig { rate_bytes_per_s: u64::MAX, latency_ns: 5_000 },
            loss_detection_ns: 10_000_000,
            silence_timeout_ms: Some(5_000),
            ..Self::IDEAL
        }
    }
}
