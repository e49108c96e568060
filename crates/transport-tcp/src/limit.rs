//! The limit on the bytes of one direction, together for all connections of a transport
//! (docs/decisions/rate-limit.md).

use std::{collections::VecDeque, time::Duration};

use transport::TokenBucket;

use crate::link::ConnectionId;

/// What may pass at once, as time at the limit: longer than a thread that sleeps usually wakes up
/// too late, so that its sleep loses nothing.
const BURST_TIME: Duration = Duration::from_millis(10);

/// The least burst: two segments.
const BURST_BYTES_MIN: u64 = 128 << 10;

/// Connections wait until this part of the burst is available, so that they move many bytes with few
/// waits.
const GRANTS_PER_BURST: u64 = 4;

/// The direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Send,
    Receive,
}

/// The tokens of one direction, and the connections that wait for them. Connections take turns: while
/// one waits, no other that has no turn takes tokens.
///
/// A call may move more bytes than are available (the least that one call reads or writes, the rest
/// of a segment, control words): all are counted, and the debt is paid before the next turn.
pub(crate) struct Limit {
    /// `None` without a limit.
    bucket: Option<Bucket>,
    /// Each connection at most once; some may have ended.
    waiting: VecDeque<ConnectionId>,
}

struct Bucket {
    tokens: TokenBucket,
    grant_bytes: u64,
}

impl Limit {
    /// Makes a limit in bytes per second, or none.
    pub(crate) fn new(rate_max: Option<u64>) -> Self {
        let bucket = rate_max.map(|rate| {
            let burst = u128::from(rate) * BURST_TIME.as_nanos() / 1_000_000_000;
            let burst_bytes = (burst as u64).max(BURST_BYTES_MIN);
            let tokens = TokenBucket::new(rate, burst_bytes);
            Bucket { tokens, grant_bytes: burst_bytes / GRANTS_PER_BURST }
        });
        Self { bucket, waiting: VecDeque::new() }
    }

    /// Returns how many bytes a connection may move now; 0 if it has to wait for its turn.
    pub(crate) fn room(&self, now: Duration, has_turn: bool) -> usize {
        let Some(bucket) = &self.bucket else { return usize::MAX };
        let available = bucket.tokens.available(now);
        let may_take = has_turn || self.waiting.is_empty();
        if may_take && available >= bucket.grant_bytes { available as usize } else { 0 }
    }

    /// Accounts for bytes that were moved.
    pub(crate) fn take(&mut self, now: Duration, bytes: usize) {
        if let Some(bucket) = &mut self.bucket {
            bucket.tokens.take(now, bytes as u64);
        }
    }

    /// Adds a connection, which is not there yet, behind those that wait.
    pub(crate) fn wait(&mut self, connection: ConnectionId) {
        self.waiting.push_back(connection);
    }

    /// Returns how many connections wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Removes and returns the connection whose turn it is, if there are tokens for it.
    pub(crate) fn next_turn(&mut self, now: Duration) -> Option<ConnectionId> {
        if self.room(now, true) == 0 { None } else { self.waiting.pop_front() }
    }

    /// Returns when the next turn is; `None` if no connection waits.
    pub(crate) fn next_turn_at(&self) -> Option<Duration> {
        let bucket = self.bucket.as_ref().filter(|_| !self.waiting.is_empty())?;
        Some(bucket.tokens.available_from(bucket.grant_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const OTHER: ConnectionId = ConnectionId(2);

    #[test]
    fn without_a_limit_nobody_waits() {
        let mut limit = Limit::new(None);
        limit.take(Duration::ZERO, 1 << 40);
        assert_eq!(limit.room(Duration::ZERO, false), usize::MAX);
        assert_eq!(limit.next_turn_at(), None);
    }

    #[test]
    fn turns_go_round_in_order_and_newcomers_wait_behind() {
        let now = Duration::from_secs(3);
        let mut limit = Limit::new(Some(1 << 20));
        assert_eq!(limit.room(now, false), BURST_BYTES_MIN as usize);
        limit.take(now, BURST_BYTES_MIN as usize);
        assert_eq!(limit.room(now, false), 0);
        limit.wait(ONE);
        limit.wait(OTHER);
        assert_eq!((limit.waiting(), limit.next_turn(now)), (2, None));
        let later = limit.next_turn_at().unwrap();
        // A grant is 32 KiB.
        assert_eq!(later - now, Duration::from_secs(1) / 32);
        assert_eq!(limit.room(later, false), 0, "others have waited longer");
        assert_eq!(limit.room(later, true), 32 << 10);
        assert_eq!(limit.next_turn(later), Some(ONE));
        limit.take(later, 32 << 10);
        limit.wait(ONE);
        assert_eq!(limit.next_turn(later), None);
        let much_later = limit.next_turn_at().unwrap();
        assert_eq!(limit.next_turn(much_later), Some(OTHER));
    }

    #[test]
    fn what_was_moved_beyond_the_tokens_is_paid_before_the_next_turn() {
        let now = Duration::from_secs(3);
        let mut limit = Limit::new(Some(1 << 20));
        limit.take(now, (BURST_BYTES_MIN as usize) + (1 << 20));
        limit.wait(ONE);
        let turn = limit.next_turn_at().unwrap();
        assert_eq!(turn - now, Duration::from_secs(1) + Duration::from_secs(1) / 32);
    }
}
