//! A token bucket, by a clock that its caller has.

use std::time::Duration;

/// Tokens of one byte. At r bytes per second exactly r tokens come in each nanosecond.
const TOKENS_PER_BYTE: u128 = 1_000_000_000;

/// Limits a flow of bytes: over any time t, at most `burst + rate * t` bytes are taken by a caller
/// that never takes more than is available. The bucket is full at first.
///
/// Pure: time is an argument, counted from any origin. A time before an earlier one counts as that.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// In bytes per second, which is also tokens per nanosecond; at least 1.
    rate: u64,
    burst_bytes: u64,
    /// Tokens that the bucket lacked at the time `at`; more than its size while it is in debt.
    lacking: u128,
    at: Duration,
}

impl TokenBucket {
    /// Makes a full bucket of `burst_bytes`, which refills at a rate in bytes per second. A rate of
    /// 0 counts as 1.
    pub fn new(rate: u64, burst_bytes: u64) -> Self {
        Self { rate: rate.max(1), burst_bytes, lacking: 0, at: Duration::ZERO }
    }

    /// Returns how many bytes may pass now.
    pub fn available(&self, now: Duration) -> u64 {
        // At most `burst_bytes`, so it fits.
        (self.size().saturating_sub(self.lacking_at(now)) / TOKENS_PER_BYTE) as u64
    }

    /// Accounts for bytes that pass now. They may be more than are available; then none are until
    /// this debt is paid.
    pub fn take(&mut self, now: Duration, bytes: u64) {
        let taken = u128::from(bytes) * TOKENS_PER_BYTE;
        self.lacking = self.lacking_at(now).saturating_add(taken);
        self.at = self.at.max(now);
    }

    /// Returns from when on this many bytes are available if nothing else is taken; more than the
    /// burst counts as the burst.
    pub fn available_from(&self, bytes: u64) -> Duration {
        let kept = self.size() - u128::from(bytes.min(self.burst_bytes)) * TOKENS_PER_BYTE;
        let wait_ns = self.lacking.saturating_sub(kept).div_ceil(u128::from(self.rate));
        self.at.saturating_add(Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    fn size(&self) -> u128 {
        u128::from(self.burst_bytes) * TOKENS_PER_BYTE
    }

    fn lacking_at(&self, now: Duration) -> u128 {
        let elapsed_ns = now.saturating_sub(self.at).as_nanos();
        self.lacking.saturating_sub(elapsed_ns.saturating_mul(u128::from(self.rate)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_full_bucket_has_its_burst_and_refills_at_its_rate() {
        let mut bucket = TokenBucket::new(1000, 300);
        assert_eq!(bucket.available(Duration::ZERO), 300);
        bucket.take(Duration::ZERO, 300);
        assert_eq!(bucket.available(Duration::ZERO), 0);
        assert_eq!(bucket.available(SECOND / 10), 100);
        assert_eq!(bucket.available(SECOND), 300);
        assert_eq!(bucket.available_from(200), SECOND / 5);
    }

    #[test]
    fn a_debt_is_paid_first() {
        let mut bucket = TokenBucket::new(1000, 100);
        bucket.take(SECOND, 1100);
        assert_eq!(bucket.available(SECOND), 0);
        assert_eq!(bucket.available(2 * SECOND), 0);
        assert_eq!(bucket.available_from(1), 2 * SECOND + SECOND / 1000);
    }

    /// The longest times and highest rates.
    #[test]
    fn extremes_saturate() {
        let mut bucket = TokenBucket::new(u64::MAX, u64::MAX);
        bucket.take(Duration::ZERO, u64::MAX);
        bucket.take(Duration::ZERO, u64::MAX);
        assert_eq!(bucket.available(Duration::MAX), u64::MAX);
        assert_eq!(bucket.available_from(u64::MAX), 2 * SECOND);
        let mut slow = TokenBucket::new(0, 1);
        slow.take(Duration::MAX, u64::MAX);
        assert_eq!(slow.available(Duration::MAX), 0);
        assert_eq!(slow.available_from(1), Duration::MAX);
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..2_000_000_000, 0_u64..200_000), 1..60)
    }

    proptest! {
        /// A caller that takes at most what is available: in every interval at most the burst and
        /// what has come meanwhile.
        #[test]
        fn no_interval_passes_more(rate in 1_u64..1_000_000, burst in 1_u64..100_000, steps in steps()) {
            let mut bucket = TokenBucket::new(rate, burst);
            let (mut now, mut passed) = (Duration::ZERO, Vec::new());
            for (pause_ns, wanted) in steps {
                now += Duration::from_nanos(pause_ns);
                let bytes = wanted.min(bucket.available(now));
                bucket.take(now, bytes);
                passed.push((now, bytes));
            }
            for (first, (from, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (to, bytes) in &passed[first..] {
                    sum += u128::from(*bytes);
                    let came = (*to - *from).as_nanos() * u128::from(rate);
                    prop_assert!(sum * TOKENS_PER_BYTE <= u128::from(burst) * TOKENS_PER_BYTE + came);
                }
            }
        }

        /// Nothing is lost: a caller that always takes all gets the rate, to the byte.
        #[test]
        fn all_that_comes_can_be_taken(rate in 1_u64..1_000_000, steps in steps()) {
            // So large that it never overflows.
            let mut bucket = TokenBucket::new(rate, u64::MAX >> 8);
            bucket.take(Duration::ZERO, u64::MAX >> 8);
            let (mut now, mut sum) = (Duration::ZERO, 0);
            for (pause_ns, _) in steps {
                now += Duration::from_nanos(pause_ns);
                let bytes = bucket.available(now);
                bucket.take(now, bytes);
                sum += u128::from(bytes);
            }
            prop_assert_eq!(sum, now.as_nanos() * u128::from(rate) / TOKENS_PER_BYTE);
        }

        /// The time to wait is exact: enough then, not enough a nanosecond before.
        #[test]
        fn the_wait_is_exact(
            rate in 1_u64..10_000_000_000,
            burst in 1_u64..1 << 30,
            taken in 0_u64..1 << 32,
            wanted in 1_u64..1 << 31,
        ) {
            let mut bucket = TokenBucket::new(rate, burst);
            bucket.take(SECOND, taken);
            let from = bucket.available_from(wanted);
            let enough = wanted.min(burst);
            prop_assert!(bucket.available(from) >= enough);
            if from > SECOND {
                prop_assert!(bucket.available(from - Duration::from_nanos(1)) < enough);
            }
        }
    }
}
