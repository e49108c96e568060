//! Clocks.

pub use rustix::time::ClockId;
use rustix::time::clock_gettime;

/// This clock, in nanoseconds.
pub fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The processor time that this process has used, user and system, in nanoseconds.
pub fn cpu_ns() -> u64 {
    now_ns(ClockId::ProcessCPUTime)
}
