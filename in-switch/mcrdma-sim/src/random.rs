//! Chance that is the same everywhere for the same seed.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The same seed, the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// From 0 up to but without 1, evenly.
    pub fn part(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 up to but without `count`, which is at least 1. Not quite evenly: by 2^-32 or less
    /// for such counts as there are here.
    pub fn below(&mut self, count: usize) -> usize {
        (self.part() * count as f64) as usize
    }

    /// 24 bits, as packet numbers have.
    pub fn serial(&mut self) -> u32 {
        self.0.next_u32() >> 8
    }
}
