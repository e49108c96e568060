//! Random pauses of a program.

use std::time::Duration;

use crate::random::Random;

/// Pauses of one length, each with some probability.
#[derive(Clone, Debug)]
pub struct Delays {
    length: Duration,
    probability: f64,
    random: Random,
}

impl Delays {
    /// The same seed gives the same pauses.
    pub fn new(length: Duration, probability: f64, seed: u64) -> Self {
        Self { length, probability, random: Random::new(seed) }
    }

    /// The next pause, if any.
    pub fn draw(&mut self) -> Option<Duration> {
        let part = self.random.part();
        (part <= self.probability && !self.length.is_zero()).then_some(self.length)
    }
}
