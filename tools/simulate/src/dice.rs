//! Random choices from a seed.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// A source of random choices; equal seeds give equal choices on every machine.
#[derive(Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Makes a source with a different sequence for each seed and purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(purpose);
        Self(generator)
    }

    /// Returns a uniform number from 0 up to but excluding `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: its bias is at most end / 2^64.
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a uniform number between both, inclusive.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// As [`Dice::between`], but each order of magnitude is equally likely.
    pub fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let bits = u64::from((most / least.max(1)).max(1).ilog2());
        let shift = self.between(0, bits);
        let low = least.max(1) << shift;
        self.between(low.min(most), (2 * low - 1).min(most))
    }

    /// Returns 0, or in `percent` of the cases a number as of [`Dice::magnitude`].
    pub fn rarely(&mut self, percent: u64, least: u64, most: u64) -> u64 {
        if self.percent(percent) { self.magnitude(least, most) } else { 0 }
    }

    /// Returns `true` with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of these, each equally likely. Panics if there is none.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_stay_in_range_and_repeat() {
        let mut dice = Dice::new(1, 2);
        for _ in 0..10_000 {
            assert!(dice.below(7) < 7);
            assert!((3..=5).contains(&dice.between(3, 5)));
            assert!((10..=1_000).contains(&dice.magnitude(10, 1_000)));
            assert!((0..=1).contains(&dice.magnitude(0, 1)));
        }
        assert_eq!(dice.below(0), 0);
        let of = |seed, purpose| Dice::new(seed, purpose).below(u64::MAX);
        assert_eq!(of(3, 4), of(3, 4));
        assert_ne!(of(3, 4), of(3, 5));
    }
}
