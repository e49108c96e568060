//! What replication costs in a network: the parameters of the model of [`crate::choice`].

use relay::BLOCK_BYTES_MAX;

/// The shortest block that is considered.
pub(crate) const BLOCK_BYTES_MIN: u64 = 16 << 10;

/// How long a block may take on a link where several links of a member have one on its way at once; so that 128 KiB may at 1 Gbit/s.
/// Ports of cheap switches have queues of some 2 ms, and lose packets of longer blocks (docs/decisions/choice.md).
const BLOCK_SECONDS_MAX: f64 = 1.1e-3;

/// A block of this length stays in a core's second-level cache.
const CACHED_BYTES: u64 = 256 << 10;

/// Longer blocks that are copied out of their sender's memory gain some hundredths at most.
const COPIED_BYTES_MAX: u64 = 2 << 20;

/// How many times more a rack's hosts can send than its uplink carries, unless given: racks are named where
/// uplinks are oversubscribed, and this is a usual ratio.
pub const OVERSUBSCRIPTION_DEFAULT: f64 = 4.0;

/// How blocks move, as far as the costs depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// Through sockets, which deliver the beginning of a block before its end.
    Tcp,
    /// By a network device or shared memory, which deliver whole blocks.
    Device,
}

/// What the members of a group on one machine have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Number of processors.
    pub processors: u32,
    /// Whether blocks over TCP are copied out of their sender's memory (docs/decisions/one-machine.md).
    pub copies_directly: bool,
}

/// Costs of replication in a network whose members and links are all alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Rate of a link in each direction, in bytes per second.
    pub rate_bytes_per_second: f64,
    /// Processor time to receive and send a block. Overlaps with the time on the link; the longer of the
    /// two counts.
    pub busy_seconds: f64,
    /// Fixed cost of a step, which nothing overlaps.
    pub gap_seconds: f64,
    /// From one member to the next, for an empty block.
    pub latency_seconds: f64,
    /// Burst of links limited by a token bucket, as on many rented machines; 0 for others.
    pub burst_bytes: u64,
    /// Longer blocks are used only on request.
    pub block_bytes_max: u64,
    /// The same for schedules in which several links of a member have blocks on their way at once, which wait for each other in
    /// queues.
    pub queued_bytes_max: u64,
    /// Whether members send a block on while they receive it.
    pub cut_through: bool,
    /// How many times more the hosts of a rack can send than its uplink carries; 1 for racks that cost nothing. Of no
    /// effect without racks.
    pub oversubscription: f64,
}

impl Costs {
    /// Members on separate hosts. The default rate is 10 Gbit/s over TCP and 100 Gbit/s over other
    /// fabrics. Over TCP a block takes some 30 us of processor time at both ends together; it counts
    /// twice, since members that use more than half of a processor are late.
    pub fn between_hosts(network: Network, rate_bits_per_second: Option<u64>) -> Self {
        let (usual_rate, busy_seconds, block_bytes_max) = match network {
            Network::Tcp => (10_000_000_000, 60e-6, 1 << 20),
            Network::Device => (100_000_000_000, 10e-6, 16 << 20),
        };
        let rate = rate_bits_per_second.unwrap_or(usual_rate).max(1);
        let rate_bytes_per_second = rate as f64 / 8.0;
        let queued_bytes = (rate_bytes_per_second * BLOCK_SECONDS_MAX) as u64;
        Self {
            rate_bytes_per_second,
            busy_seconds,
            gap_seconds: 3e-6,
            latency_seconds: 100e-6,
            burst_bytes: 0,
            block_bytes_max,
            queued_bytes_max: match network {
                Network::Tcp => queued_bytes.max(BLOCK_BYTES_MIN),
                Network::Device => u64::MAX,
            },
            cut_through: network == Network::Tcp,
            oversubscription: OVERSUBSCRIPTION_DEFAULT,
        }
    }

    /// The same with all `members` on this many processors, as in a lab.
    pub fn on_shared_processors(self, members: u32, processors: u32) -> Self {
        let share = (f64::from(members) / f64::from(processors.max(1))).max(1.0);
        let (busy_seconds, gap_seconds) = (self.busy_seconds * share, self.gap_seconds * share);
        Self { busy_seconds, gap_seconds, ..self }
    }

    /// `members` processes on one machine: only copies and system calls cost time, and all members
    /// share its processors.
    pub fn of_one_machine(network: Network, members: u32, machine: Machine) -> Self {
        let is_direct = network == Network::Tcp && machine.copies_directly;
        let copies = f64::from(members.saturating_sub(1).max(1));
        let copies_per_core = (copies / f64::from(machine.processors.max(1))).max(1.0);
        // Sockets copy twice, cheaply while a block is still in the cache when it is relayed.
        // Others copy once; through libfabric wake-ups dominate the cost of a block.
        let (rate, gap_seconds, block_bytes_max) = match network {
            Network::Tcp if is_direct => (10e9, 7e-6, COPIED_BYTES_MAX),
            Network::Tcp => (1.5e9, 5e-6, CACHED_BYTES),
            Network::Device => (3e9, 100e-6, BLOCK_BYTES_MAX),
        };
        Self {
            rate_bytes_per_second: rate / copies_per_core,
            busy_seconds: 0.0,
            gap_seconds: gap_seconds * copies_per_core,
            latency_seconds: 100e-6,
            burst_bytes: 0,
            block_bytes_max,
            queued_bytes_max: u64::MAX,
            cut_through: network == Network::Tcp && !is_direct,
            oversubscription: 1.0,
        }
    }
}
