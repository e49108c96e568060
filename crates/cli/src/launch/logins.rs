//! The queue of logins, as data: time is an argument.

use std::{collections::VecDeque, time::Duration};

use super::order::Recipient;

/// The maximum number of tries of a login that its server refuses, including the first.
const TRIES_MAX: u32 = 7;
/// The longest pause before the second try; it doubles with each further one ...
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// ... up to this.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// A number of concurrent logins that no server refuses by default: sshd's `MaxStartups` begins at 10.
const ACCEPTED: usize = 8;

/// A login to the first of some hosts, which starts the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    pub hosts: Vec<Recipient>,
    /// The number of receivers that were started on the first host before.
    pub start: u32,
    /// How often the server has refused this login.
    pub refusals: u32,
}

impl Login {
    /// A first login to the first of these hosts.
    pub fn to(hosts: Vec<Recipient>) -> Self {
        Self { hosts, start: 0, refusals: 0 }
    }
}

/// Waiting logins, and the number that may be in progress. Times count from the first login.
#[derive(Debug, Default)]
pub struct Logins {
    waiting: VecDeque<Login>,
    /// Refused logins, with the time of the next try.
    refused: Vec<(Duration, Login)>,
    /// The maximum number of concurrent logins.
    limit: usize,
    /// When `limit` was last lowered.
    lowered_at: Option<Duration>,
    /// No login is retried after this time.
    until: Duration,
}

impl Logins {
    /// At most `limit` concurrent logins; refused logins are retried until `until`.
    pub fn new(parts: Vec<Vec<Recipient>>, limit: usize, until: Duration) -> Self {
        let waiting = parts.into_iter().map(Login::to).collect();
        Self { waiting, limit, until, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.refused.is_empty()
    }

    pub fn add(&mut self, login: Login) {
        self.waiting.push_back(login);
    }

    /// Removes the waiting logins to this host.
    pub fn forget(&mut self, host: usize) {
        let refused = self.refused.iter_mut().map(|(_, login)| login);
        for login in self.waiting.iter_mut().chain(refused) {
            login.hosts.retain(|waiting| waiting.host != host);
        }
        self.waiting.retain(|login| !login.hosts.is_empty());
        self.refused.retain(|(_, login)| !login.hosts.is_empty());
    }

    /// Takes as many logins as may start, in addition to those in progress.
    pub fn take(&mut self, under_way: usize, now: Duration) -> Vec<Login> {
        let (due, later) = self.refused.drain(..).partition(|(at, _)| now >= *at);
        self.refused = later;
        let due: Vec<(Duration, Login)> = due;
        // Due retries go first: they have waited longest.
        due.into_iter().for_each(|(_, login)| self.waiting.push_front(login));
        let room = self.limit.saturating_sub(under_way).min(self.waiting.len());
        self.waiting.drain(..room).collect()
    }

    /// Notes that a server has refused a login begun at `begun`, before anything ran there: it is retried after a random
    /// pause, and the limit is lowered. `random`: any number. Returns false if it is not retried.
    pub fn refused(&mut self, login: &Login, begun: Duration, now: Duration, random: u64) -> bool {
        if self.lowered_at.is_none_or(|at| begun >= at) {
            self.limit = (self.limit / 2).max(ACCEPTED).min(self.limit);
            self.lowered_at = Some(now);
        }
        let again = Login { refusals: login.refusals + 1, ..login.clone() };
        let at = now + pause(again.refusals, random);
        if again.refusals >= TRIES_MAX || at >= self.until {
            return false;
        }
        self.refused.push((at, again));
        true
    }
}

/// A random pause, from 0 to twice the maximum of the last try, so that logins that were refused together do not retry together.
fn pause(refusals: u32, random: u64) -> Duration {
    let doubled = PAUSE_FIRST.saturating_mul(1 << refusals.saturating_sub(1).min(16));
    doubled.min(PAUSE_MAX).mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use rdmc::Secret;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn hosts(count: usize) -> Vec<Vec<Recipient>> {
        let token = Secret::from_bytes([0; 32]);
        let recipient = |host| Recipient { host, name: format!("h{host}"), token: token.clone() };
        (0..count).map(|host| vec![recipient(host)]).collect()
    }

    fn index(login: &Login) -> usize {
        login.hosts[0].host
    }

    #[test]
    fn refused_logins_come_again_after_a_pause_and_fewer_at_a_time() {
        let mut logins = Logins::new(hosts(40), 32, LONG);
        let first = logins.take(0, Duration::ZERO);
        assert_eq!(first.len(), 32);
        let second = Duration::from_secs(1);
        // Refusals of logins that were begun together count once.
        for login in &first[..4] {
            assert!(logins.refused(login, Duration::ZERO, second, u64::MAX));
        }
        assert_eq!(logins.take(16, second), [], "half as many");
        let next = logins.take(15, second);
        assert_eq!(next.iter().map(index).collect::<Vec<_>>(), [32], "the pause is not over");
        let again = logins.take(13, second + PAUSE_FIRST);
        assert!(again.len() == 3 && again.iter().all(|login| index(login) < 4), "{again:?}");
        assert!(again.iter().all(|login| login.refusals == 1 && login.start == 0));
        for round in 2..9 {
            let at = second * round;
            logins.refused(&again[0], at, at, 0);
        }
        assert_eq!(logins.take(ACCEPTED, LONG), [], "and not fewer than every server takes");
        assert!(!logins.take(ACCEPTED - 1, LONG).is_empty());
    }

    #[test]
    fn one_at_a_time_stays_one_at_a_time() {
        let mut logins = Logins::new(hosts(3), 1, LONG);
        let first = logins.take(0, Duration::ZERO);
        assert!(logins.refused(&first[0], Duration::ZERO, Duration::ZERO, 0));
        assert_eq!((logins.take(1, LONG).len(), logins.take(0, LONG).len()), (0, 1));
    }

    #[test]
    fn refused_logins_are_given_up_after_some_tries_or_in_time() {
        let mut logins = Logins::new(hosts(1), 1, LONG);
        let (mut now, mut tries) = (Duration::ZERO, 0);
        while let [login] = &logins.take(0, now)[..] {
            tries += 1;
            if !logins.refused(login, now, now, u64::MAX) {
                break;
            }
            now += PAUSE_MAX;
        }
        assert!(tries == TRIES_MAX && logins.is_empty());
        let mut logins = Logins::new(hosts(1), 1, PAUSE_FIRST);
        let login = logins.take(0, Duration::ZERO).remove(0);
        assert!(!logins.refused(&login, Duration::ZERO, Duration::ZERO, u64::MAX));
        assert!(logins.refused(&login, Duration::ZERO, Duration::ZERO, u64::MAX / 2));
        logins.forget(0);
        assert!(logins.is_empty());
    }

    #[test]
    fn pauses_are_random_and_grow_to_a_limit() {
        assert_eq!([pause(1, u64::MAX), pause(2, u64::MAX)], [PAUSE_FIRST, PAUSE_FIRST * 2]);
        assert_eq!([pause(40, u64::MAX), pause(40, 0)], [PAUSE_MAX, Duration::ZERO]);
        assert_eq!(pause(2, u64::MAX / 4), PAUSE_FIRST / 2);
    }
}
