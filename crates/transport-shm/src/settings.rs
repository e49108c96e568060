//! Settings of the transport.

use std::time::Duration;

use crate::{
    error::ShmError,
    ring::{USUAL_RING_BYTES, check_ring},
};

/// The longest timeout, one year: any clock can add it. Longer values are reduced to it.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// The shortest [`ShmSettings::silence_timeout`]: heartbeats are then 1 ms apart.
const SILENCE_TIMEOUT_MIN: Duration = Duration::from_millis(4);

/// The settings of a transport. The defaults rarely need to be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ShmSettings {
    /// A peer that has not polled for this long is considered lost ([`transport::Cause::Silent`]). Heartbeats are a quarter
    /// of this interval apart; the values of two members may differ by a factor of at most 2. 4 ms or more.
    pub silence_timeout: Duration,
    /// How long an endpoint that closes waits for space in the ring for control words that were written before.
    pub drain_timeout: Duration,
    /// Length in bytes of the ring through which an end sends blocks and words: a power of two, 4 KiB to 64 MiB. May differ
    /// between members.
    pub ring_bytes: usize,
    /// How long a wait polls before it sleeps. A peer that sleeps has to be woken, which takes microseconds.
    pub spin: Duration,
    /// Whether peers may map the memory that is exposed to them. Otherwise they send what they write through the ring.
    pub direct_writes: bool,
    /// Whether long blocks are copied out of the memory of the peer's process (docs/decisions/one-machine.md), where the system
    /// lets this process do that: it does not run as root, and the kernel is Linux 6.5 or newer.
    pub direct_copies: bool,
}

impl Default for ShmSettings {
    fn default() -> Self {
        Self {
            silence_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(3),
            ring_bytes: USUAL_RING_BYTES,
            spin: Duration::from_micros(50),
            direct_writes: true,
            direct_copies: true,
        }
    }
}

impl ShmSettings {
    /// Sets [`ShmSettings::silence_timeout`].
    #[must_use]
    pub fn silence_timeout(mut self, timeout: Duration) -> Self {
        self.silence_timeout = timeout;
        self
    }

    /// Sets [`ShmSettings::drain_timeout`].
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Sets [`ShmSettings::ring_bytes`].
    #[must_use]
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Sets [`ShmSettings::spin`].
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Sets [`ShmSettings::direct_writes`].
    #[must_use]
    pub fn direct_writes(mut self, direct: bool) -> Self {
        self.direct_writes = direct;
        self
    }

    /// Sets [`ShmSettings::direct_copies`].
    #[must_use]
    pub fn direct_copies(mut self, direct: bool) -> Self {
        self.direct_copies = direct;
        self
    }

    /// Checks the ranges, and reduces timeouts that no clock could add.
    pub(crate) fn checked(mut self) -> Result<Self, ShmError> {
        if self.silence_timeout < SILENCE_TIMEOUT_MIN {
            return Err(ShmError::Setting("silence_timeout is less than 4 ms"));
        }
        check_ring(self.ring_bytes).map_err(ShmError::Setting)?;
        for timeout in [&mut self.silence_timeout, &mut self.drain_timeout, &mut self.spin] {
            *timeout = TIMEOUT_MAX.min(*timeout);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let refused = |settings: ShmSettings| settings.checked().unwrap_err().to_string();
        let new = ShmSettings::default;
        assert!(new().checked().is_ok());
        assert!(refused(new().silence_timeout(Duration::from_millis(3))).contains("silence"));
        for bytes in [0, 2048, 5000, 128 << 20] {
            assert!(refused(new().ring_bytes(bytes)).contains("ring_bytes"), "{bytes}");
        }
        let longest = new().silence_timeout(Duration::MAX).checked().unwrap();
        assert_eq!(longest.silence_timeout, TIMEOUT_MAX);
    }
}
