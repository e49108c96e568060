//! The look at the source before copies are published: a complete listing again, so that one mechanism decides what is in
//! the tree and what has changed in it.

use std::{collections::BTreeSet, time::Duration};

use rdmc::Error;

use super::settings::PushError;

/// How long a look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(600);

/// Hosts by index, each with how often it was lost: what was seen for one that has returned is too old.
type Starts = BTreeSet<(usize, u32)>;

/// A copy is published only after a look at the source that began when its host was ready to publish it.
#[derive(Default)]
pub(super) struct SourceLook {
    /// The hosts for which a look is running, and when it has to be over.
    running: Option<(Starts, Duration)>,
    /// The hosts for which one has just ended without a difference.
    unchanged: Starts,
}

/// What to do now.
#[derive(Default)]
pub(super) struct Look {
    /// A look begins.
    pub(super) begins: bool,
    /// These hosts may publish.
    pub(super) unchanged: Vec<usize>,
}

impl SourceLook {
    /// The look that was running has ended, and found no difference.
    pub(super) fn on_unchanged(&mut self) {
        self.unchanged = self.running.take().map(|(starts, _)| starts).unwrap_or_default();
    }

    /// `ready`: the hosts that are ready to publish. `together`: all of them publish after one look. Errors: the look takes too long.
    pub(super) fn judge(
        &mut self,
        ready: Starts,
        together: bool,
        now: Duration,
    ) -> Result<Look, PushError> {
        if self.deadline().is_some_and(|until| now >= until) {
            let what = "looking at the source again".into();
            let unconnected = Vec::new();
            return Err(Error::Timeout { what, timeout: LOOK_TIMEOUT, unconnected }.into());
        }
        // A look that has ended counts now or never: later it is too old.
        let seen = std::mem::take(&mut self.unchanged);
        let (mut unchanged, mut unseen): (Starts, Starts) =
            ready.into_iter().partition(|start| seen.contains(start));
        if together && !unseen.is_empty() {
            unseen.append(&mut unchanged);
        }
        let begins = self.running.is_none() && !unseen.is_empty();
        if begins {
            self.running = Some((unseen, now + LOOK_TIMEOUT));
        }
        Ok(Look { begins, unchanged: unchanged.into_iter().map(|(host, _)| host).collect() })
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.running.as_ref().map(|&(_, until)| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a look begins, and which hosts may publish.
    fn judge(look: &mut SourceLook, ready: &[(usize, u32)], at_s: u64) -> (bool, Vec<usize>) {
        let now = Duration::from_secs(at_s);
        let Look { begins, unchanged } =
            look.judge(ready.iter().copied().collect(), false, now).unwrap();
        (begins, unchanged)
    }

    #[test]
    fn a_host_publishes_after_a_look_that_began_when_it_was_ready() {
        let mut look = SourceLook::default();
        assert_eq!(judge(&mut look, &[], 0), (false, vec![]));
        assert_eq!(judge(&mut look, &[(0, 0)], 1), (true, vec![]));
        // Another one is ready while it runs, and needs the next.
        assert_eq!(judge(&mut look, &[(0, 0), (1, 0)], 2), (false, vec![]));
        look.on_unchanged();
        assert_eq!(judge(&mut look, &[(0, 0), (1, 0)], 3), (true, vec![0]));
        look.on_unchanged();
        // One that has returned meanwhile, and one that was needed by others when it ended.
        assert_eq!(judge(&mut look, &[(1, 1)], 4), (true, vec![]));
        look.on_unchanged();
        assert_eq!(judge(&mut look, &[], 5), (false, vec![]));
        assert_eq!(judge(&mut look, &[(1, 1)], 6), (true, vec![]));
    }

    #[test]
    fn hosts_that_publish_together_do_so_after_one_look() {
        let mut look = SourceLook::default();
        let together = |look: &mut SourceLook, ready: &[(usize, u32)]| {
            let starts = ready.iter().copied().collect();
            let Look { begins, unchanged } = look.judge(starts, true, Duration::ZERO).unwrap();
            (begins, unchanged)
        };
        assert_eq!(together(&mut look, &[(0, 0), (1, 0)]), (true, vec![]));
        // One of them was lost and has returned while it ran.
        look.on_unchanged();
        assert_eq!(together(&mut look, &[(0, 0), (1, 1)]), (true, vec![]));
        look.on_unchanged();
        assert_eq!(together(&mut look, &[(0, 0), (1, 1)]), (false, vec![0, 1]));
    }

    #[test]
    fn a_look_that_does_not_end_ends_the_push() {
        let mut look = SourceLook::default();
        judge(&mut look, &[(0, 0)], 0);
        let until = look.deadline().unwrap();
        assert!(look.judge([(0, 0)].into(), false, until).is_err());
    }
}
