//! Limits the sessions of roots that run at the same time.

use std::{collections::BTreeMap, time::Duration};

/// The maximum number of concurrent sessions.
pub const SESSIONS_MAX: usize = 32;
/// The maximum number of concurrent sessions of one root.
pub const SESSIONS_OF_ROOT_MAX: usize = 16;
/// The maximum number of roots that are being notified of a refusal at the same time.
const REFUSALS_MAX: usize = 32;
/// The time without progress after which a session may be ended for another one.
const IDLE: Duration = Duration::from_secs(60);

/// The sessions of a receiver that listens, by number. Decides which roots are served; time is an argument, from any epoch.
///
/// One root cannot take all places: it gets at most half of them. At a limit, the session that has made no progress for longest
/// is ended for a new one, after a minute or more: one of the same root, or of the root with the most sessions.
#[derive(Default, Debug)]
pub struct Sessions {
    running: BTreeMap<u64, Running>,
    refusals: usize,
    next: u64,
}

#[derive(Debug)]
struct Running {
    root: String,
    progress: u64,
    progressed_at: Duration,
    is_ending: bool,
}

/// The decision on a new session.
#[derive(PartialEq, Eq, Debug)]
pub enum Admission {
    /// The session runs, under this number.
    Runs(u64),
    /// The session runs under the first number; the session with the second number must end.
    RunsInsteadOf(u64, u64),
    /// The root is notified of the refusal, with this reason; call [`Sessions::refused`] afterwards.
    Refused(String),
    /// The connection is closed without a reason, as too many roots are being notified.
    Dropped,
}

impl Sessions {
    /// Decides on a session of a root that has connected; `root` identifies the root.
    pub fn admit(&mut self, root: &str, now: Duration) -> Admission {
        let active = || self.running.values().filter(|session| !session.is_ending);
        let (all, own) =
            (active().count(), active().filter(|session| session.root == root).count());
        let is_allowed = |session: &Running| own < SESSIONS_OF_ROOT_MAX || session.root == root;
        let instead_of = match own >= SESSIONS_OF_ROOT_MAX || all >= SESSIONS_MAX {
            false => None,
            true => match self.idlest(now, is_allowed) {
                Some(number) => Some(number),
                None => return self.refuse(own),
            },
        };
        let number = self.next;
        self.next += 1;
        let (root, progressed_at) = (root.to_owned(), now);
        self.running.insert(number, Running { root, progress: 0, progressed_at, is_ending: false });
        let Some(other) = instead_of else { return Admission::Runs(number) };
        self.running.entry(other).and_modify(|session| session.is_ending = true);
        Admission::RunsInsteadOf(number, other)
    }

    /// Notes the progress of a session: any number that changes with it.
    pub fn progress(&mut self, number: u64, progress: u64, now: Duration) {
        if let Some(session) = self.running.get_mut(&number)
            && session.progress != progress
        {
            (session.progress, session.progressed_at) = (progress, now);
        }
    }

    /// Removes a session that has ended.
    pub fn ended(&mut self, number: u64) {
        self.running.remove(&number);
    }

    /// Notes that a root was notified of its refusal.
    pub fn refused(&mut self) {
        self.refusals = self.refusals.saturating_sub(1);
    }

    fn refuse(&mut self, own: usize) -> Admission {
        if self.refusals >= REFUSALS_MAX {
            return Admission::Dropped;
        }
        self.refusals += 1;
        Admission::Refused(match own >= SESSIONS_OF_ROOT_MAX {
            true => format!("{SESSIONS_OF_ROOT_MAX} pushes of this root are running here already"),
            false => format!("{SESSIONS_MAX} pushes are running here already"),
        })
    }

    /// The session that has been idle longest, among those of the root with the most sessions.
    fn idlest(&self, now: Duration, is_allowed: impl Fn(&Running) -> bool) -> Option<u64> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for session in self.running.values() {
            *counts.entry(&session.root).or_default() += 1;
        }
        let idle = |session: &Running| now.saturating_sub(session.progressed_at);
        self.running
            .iter()
            .filter(|(_, session)| {
                !session.is_ending && is_allowed(session) && idle(session) >= IDLE
            })
            .max_by_key(|(_, session)| (counts.get(&*session.root), idle(session)))
            .map(|(&number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn filled(sessions: &mut Sessions, root: &str, count: usize, now: Duration) -> Vec<u64> {
        let admit = |_| match sessions.admit(root, now) {
            Admission::Runs(number) => number,
            other => panic!("{other:?}"),
        };
        (0..count).map(admit).collect()
    }

    #[test]
    fn one_root_has_half_of_the_places_and_others_the_rest() {
        let mut sessions = Sessions::default();
        let own = filled(&mut sessions, "a", SESSIONS_OF_ROOT_MAX, START);
        let refused = sessions.admit("a", START);
        assert!(
            matches!(&refused, Admission::Refused(why) if why.contains("16 pushes of this root"))
        );
        filled(&mut sessions, "b", SESSIONS_MAX - SESSIONS_OF_ROOT_MAX, START);
        let refused = sessions.admit("c", START);
        assert!(matches!(&refused, Admission::Refused(why) if why.contains("32 pushes are")));
        sessions.ended(own[3]);
        assert!(matches!(sessions.admit("c", START), Admission::Runs(_)));
    }

    #[test]
    fn idle_sessions_end_for_new_ones_the_idlest_of_the_root_with_the_most_first() {
        let mut sessions = Sessions::default();
        let own = filled(&mut sessions, "a", SESSIONS_OF_ROOT_MAX, START);
        filled(&mut sessions, "b", SESSIONS_OF_ROOT_MAX - 1, START);
        filled(&mut sessions, "c", 1, START);
        for (at, &number) in (1..).zip(&own) {
            sessions.progress(number, at, START + Duration::from_secs(at));
        }
        // Idle for less than a minute.
        let soon = START + Duration::from_secs(59);
        assert!(matches!(sessions.admit("d", soon), Admission::Refused(_)));
        let later = START + Duration::from_secs(61);
        assert!(
            matches!(sessions.admit("d", later), Admission::RunsInsteadOf(_, first) if first == own[0])
        );
        // The session has not ended, but no longer counts; the next one has been idle for less than a minute.
        sessions.ended(own[0]);
        // Progress keeps a session.
        let end = later + IDLE;
        own[1..].iter().for_each(|&number| sessions.progress(number, 99, end));
        let Admission::RunsInsteadOf(_, ended) = sessions.admit("e", end) else { panic!() };
        assert!(!own.contains(&ended));
    }

    #[test]
    fn a_root_that_waits_for_other_hosts_keeps_its_place_beside_ones_with_more() {
        let mut sessions = Sessions::default();
        let waiting = filled(&mut sessions, "waiting", 1, Duration::ZERO)[0];
        filled(&mut sessions, "a", SESSIONS_OF_ROOT_MAX, START);
        filled(&mut sessions, "b", SESSIONS_MAX - SESSIONS_OF_ROOT_MAX - 1, START);
        let later = START + IDLE;
        for root in ["a", "b", "c", "d"] {
            let Admission::RunsInsteadOf(_, ended) = sessions.admit(root, later) else { panic!() };
            assert_ne!(ended, waiting);
        }
    }

    #[test]
    fn a_root_at_its_limit_ends_its_own_session_only() {
        let mut sessions = Sessions::default();
        let own = filled(&mut sessions, "a", SESSIONS_OF_ROOT_MAX, START);
        filled(&mut sessions, "b", 1, Duration::ZERO);
        let later = START + IDLE;
        assert!(
            matches!(sessions.admit("a", later), Admission::RunsInsteadOf(_, ended) if own.contains(&ended))
        );
    }

    #[test]
    fn only_so_many_roots_are_told() {
        let mut sessions = Sessions::default();
        filled(&mut sessions, "a", SESSIONS_OF_ROOT_MAX, START);
        for _ in 0..REFUSALS_MAX {
            assert!(matches!(sessions.admit("a", START), Admission::Refused(_)));
        }
        assert_eq!(sessions.admit("a", START), Admission::Dropped);
        sessions.refused();
        assert!(matches!(sessions.admit("a", START), Admission::Refused(_)));
    }
}
