//! Settings of a simulated network.

/// Properties of a network; those of single links or members can be changed later at
/// [`crate::SimNet`].
#[derive(Clone, PartialEq, Debug)]
pub struct SimConfig {
    /// Rate of each member's transmit port and of its receive port. At least 1.
    pub port_rate_bytes_per_s: u64,
    /// How a port serves several transfers at once.
    pub ports: Ports,
    /// Properties of each link, unless it is connected with its own.
    pub link: LinkConfig,
    /// Time for which each block occupies its two ports in addition to its bytes.
    pub block_overhead_ns: u64,
    /// Random additional time for which a block occupies its two ports, as with slow hosts or lost
    /// packets.
    pub block_jitter: Jitter,
    /// Random delay of a block in transit, uniform between 0 and this. It occupies no port, and
    /// lets blocks of one endpoint arrive out of order.
    pub delivery_jitter_ns_max: u64,
    /// Random delay of a control word, uniform between 0 and this; words of one endpoint stay in
    /// order.
    pub control_jitter_ns_max: u64,
    /// With a value, all one-sided writes of a member leave one after another, and each needs this time
    /// in addition to its bytes. `None`: only those of one connection do.
    pub write_overhead_ns: Option<u64>,
    /// How bytes of a one-sided write become visible before it is reported. `None`: not before.
    pub write_placement: Option<Placement>,
    /// Time after which a killed member's peers report that their connections are lost.
    pub loss_detection_ns: u64,
    /// Time after which the peers of a stalled member report it as silent. `None`: never.
    pub silence_timeout_ms: Option<u64>,
    /// The longest time for which a close waits for its peer.
    pub drain_timeout_ms: u64,
    /// Whether blocks can be sent on while they arrive, and how much of one arrives before the rest:
    /// what is left is sent on this many bytes behind. `None`: no cut-through.
    pub cut_through_bytes: Option<u64>,
    /// The most bytes that one post can carry.
    pub block_bytes_max: u64,
    /// Whether bytes are copied from sender to receiver. Otherwise only time is modelled, and the
    /// receivers' memory is not accessed.
    pub carry_bytes: bool,
    /// How many of the last events are kept for [`crate::SimNet::trace`].
    pub trace_events: usize,
}

/// Properties of a link, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// A rate below that of the ports makes the link slow. At least 1.
    pub rate_bytes_per_s: u64,
    /// From the end of a block's transfer through the ports to its arrival; for a control word,
    /// from the call that writes it.
    pub latency_ns: u64,
}

/// How a port serves several transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ports {
    /// One after another, in the order of the posts, and only while the port at the other end is free:
    /// the model of the papers' step counts.
    InOrder,
    /// All at once, part by part in turn, as TCP connections share a link: a connection sends one block
    /// after another, and parts wait in the network for their target's port.
    Shared {
        /// Length of a part.
        part_bytes: u64,
        /// How many parts of a connection may be on their way: its window.
        parts_under_way: u32,
    },
}

/// How bytes of a one-sided write become visible: in parts, at several random times from its arrival
/// until it is reported. Writes of one endpoint do so one after another. The transport vouches for
/// what is true here ([`transport::Visibility`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// In ascending order, or else in any.
    pub in_order: bool,
    /// In units of eight bytes at a multiple of eight from the start of the exposed memory, or else
    /// of one byte.
    pub whole_words: bool,
    /// From the first part to the report.
    pub lasting_ns: u64,
}

/// A random time, drawn anew for each block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Jitter {
    /// None at all.
    None,
    /// Uniform between 0 and this many nanoseconds.
    Ns(u64),
    /// Uniform between 0 and this many times the block's transfer time.
    BlockTimes(f64),
}

impl LinkConfig {
    /// As fast as the ports, and without latency.
    pub const IDEAL: Self = Self { rate_bytes_per_s: u64::MAX, latency_ns: 0 };
}

impl SimConfig {
    /// Ports of one byte per nanosecond, no latency, no overhead, no randomness: a block of b bytes
    /// takes b ns. Bytes are copied; lost members are detected at once, stalled ones never.
    pub const IDEAL: Self = Self {
        port_rate_bytes_per_s: 1_000_000_000,
        ports: Ports::InOrder,
        link: LinkConfig::IDEAL,
        block_overhead_ns: 0,
        block_jitter: Jitter::None,
        delivery_jitter_ns_max: 0,
        control_jitter_ns_max: 0,
        write_overhead_ns: None,
        write_placement: None,
        loss_detection_ns: 0,
        silence_timeout_ms: None,
        drain_timeout_ms: 1_000,
        cut_through_bytes: None,
        block_bytes_max: u32::MAX as u64,
        carry_bytes: true,
        trace_events: 200,
    };
}

impl Default for SimConfig {
    /// A data centre of 100 Gb/s: 5 us between members, a lost member is detected after 10 ms, a
    /// silent one after 5 s. No randomness.
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
