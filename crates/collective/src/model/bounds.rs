//! The best and the worst case of a time.

use std::ops::Add;

/// The time of an operation, by how well the parts of concurrent writes overlap (the paper, section 5.2), or rounds of blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// What a member needs first arrives first, and nothing but the longest stage delays concurrent writes.
    pub best_us: f64,
    /// What a member needs first arrives last, and the adapter's work overlaps nothing at the receiver.
    pub worst_us: f64,
}

impl Bounds {
    /// Returns a time that is the same in both cases.
    pub fn exactly(us: f64) -> Self {
        Self { best_us: us, worst_us: us }
    }
}

impl Add for Bounds {
    type Output = Self;

    fn add(self, then: Self) -> Self {
        Self { best_us: self.best_us + then.best_us, worst_us: self.worst_us + then.worst_us }
    }
}

impl Add<f64> for Bounds {
    type Output = Self;

    fn add(self, both_us: f64) -> Self {
        Self { best_us: self.best_us + both_us, worst_us: self.worst_us + both_us }
    }
}
