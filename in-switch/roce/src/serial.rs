//! 24-bit serial numbers: packet and message sequence numbers, which wrap.

/// A packet or message sequence number, modulo 2^24.
///
/// Ordered by serial number arithmetic: the later of two is less than 2^23 ahead of the other (IBA 9.7.2
/// takes the half behind the expected number for duplicates).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Serial(u32);

impl Serial {
    /// Size of the number space.
    pub const COUNT: u32 = 1 << 24;

    /// The lower 24 bits of a number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number % Self::COUNT)
    }

    /// As a number below 2^24.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number that is this many after this one.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The number that is this many before this one.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// How far this one is ahead of another: -2^23 to 2^23 - 1, negative if it is behind.
    #[must_use]
    pub const fn ahead_of(self, other: Self) -> i32 {
        // The difference of 24 bits, moved up to the sign bit and back.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Whether it is later than another.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        self.ahead_of(other) > 0
    }

    /// The earlier of two.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.is_after(other) { other } else { self }
    }

    /// The later of two.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.is_after(other) { self } else { other }
    }

    pub(crate) const fn to_bytes(self) -> [u8; 3] {
        let [_, high, middle, low] = self.0.to_be_bytes();
        [high, middle, low]
    }

    pub(crate) const fn from_bytes([high, middle, low]: [u8; 3]) -> Self {
        Self(u32::from_be_bytes([0, high, middle, low]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_is_kept_across_the_wrap() {
        let last = Serial::new(Serial::COUNT - 1);
        assert_eq!(last.plus(1), Serial::new(0));
        assert_eq!(Serial::new(0).minus(1), last);
        assert!(Serial::new(3).is_after(last) && !last.is_after(Serial::new(3)));
        assert_eq!((Serial::new(3).min(last), Serial::new(3).max(last)), (last, Serial::new(3)));
        assert_eq!(Serial::new(1 << 23).ahead_of(Serial::new(0)), -(1 << 23));
        assert_eq!(Serial::new((1 << 23) - 1).ahead_of(Serial::new(0)), (1 << 23) - 1);
    }

    proptest! {
        #[test]
        fn distances_add_up(from in any::<u32>(), steps in -(1_i32 << 23)..1 << 23) {
            let from = Serial::new(from);
            let to = from.plus(steps as u32);
            prop_assert_eq!(to.ahead_of(from), steps);
            prop_assert_eq!(Serial::from_bytes(to.to_bytes()), to);
        }
    }
}
