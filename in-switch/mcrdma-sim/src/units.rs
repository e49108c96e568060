//! Units of time.

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1000;
/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;
