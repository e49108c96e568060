//! Clocks that differ from member to member.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dice::Dice;

const MILLION: u128 = 1_000_000;

/// A member's clock, as a function of virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// The time that it shows when virtual time begins.
    pub offset_ns: u64,
    /// Its rate: 1,000,000 is exact. At least 1.
    pub rate_ppm: u64,
}

impl Clock {
    /// A clock that shows virtual time.
    pub const RIGHT: Self = Self { offset_ns: 0, rate_ppm: MILLION as u64 };

    /// Draws a clock.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        Self {
            offset_ns: dice.rarely(50, 1, 10_000_000_000),
            rate_ppm: if dice.percent(50) { dice.between(950_000, 1_050_000) } else { 1_000_000 },
        }
    }

    /// Returns the time that the clock shows at a virtual time.
    pub fn shows(&self, virtual_ns: u64) -> Duration {
        let passed_ns = u128::from(virtual_ns) * u128::from(self.rate_ppm) / MILLION;
        Duration::from_nanos(self.offset_ns + passed_ns as u64)
    }

    /// Returns the first virtual time at which the clock shows this time or a later one.
    pub fn virtual_ns(&self, shown: Duration) -> u64 {
        let passed_ns = shown.as_nanos().saturating_sub(u128::from(self.offset_ns));
        (passed_ns * MILLION).div_ceil(u128::from(self.rate_ppm.max(1))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_the_earliest_time_the_clock_shows_it() {
        for rate_ppm in [950_000, 1_000_000, 1_050_000, 3] {
            let clock = Clock { offset_ns: 77, rate_ppm };
            for shown_ns in [0, 77, 78, 1_000, 12_345_678] {
                let shown = Duration::from_nanos(shown_ns);
                let at_ns = clock.virtual_ns(shown);
                assert!(clock.shows(at_ns) >= shown);
                assert!(at_ns == 0 || clock.shows(at_ns - 1) < shown);
            }
        }
    }
}
