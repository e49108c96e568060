//! Reproducible random numbers.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// With a seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform in [0, 1).
    pub fn part(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 to `count - 1`; `count` is at least 1. Uniform up to 2^-32 for counts used here.
    pub fn below(&mut self, count: usize) -> usize {
        (self.part() * count as f64) as usize
    }

    /// 24 bits, as packet numbers have.
    pub fn serial(&mut self) -> u32 {
        self.0.next_u32() >> 8
    }
}
