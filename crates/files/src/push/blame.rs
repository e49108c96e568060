//! The response to a failed group: which host to give up, and whether members relay instead of switches.

use std::collections::BTreeSet;

use super::{group::PushGroup, host::Host};

/// A connected host fails after this many rounds in which it was blamed: one may be due to a single reset connection.
const FAILED_ROUNDS_MAX: u32 = 2;
/// After how many rounds with failures that no host explains the push ends.
const UNEXPLAINED_MAX: usize = 3;

/// What to do after a failed group.
pub(super) enum Response {
    /// Continue with the remaining hosts.
    Continue,
    /// Fail these hosts as well.
    FailHosts(Vec<usize>),
    /// Let members relay from now on, since switches would fail again.
    Relay,
    /// End the push: groups fail repeatedly and no host explains it.
    End,
}

/// Failures of a push's groups that no host explains.
#[derive(Default)]
pub(super) struct Blame {
    /// The rounds of these failures.
    unexplained: BTreeSet<u32>,
}

impl Blame {
    /// All hosts have more of a stream, which has no last round.
    pub(super) fn progressed(&mut self) {
        self.unexplained.clear();
    }

    /// Judges a failed group of this round; `silent`: members that have not reported.
    pub(super) fn judge(
        &mut self,
        group: &PushGroup,
        silent: &[usize],
        round: u32,
        hosts: &mut [Host],
    ) -> Response {
        if group.has_failed_by_switches() {
            return Response::Relay;
        }
        // Lost hosts and changed bytes explain the failure; otherwise the members' reports decide.
        let is_explained = group.has_lost() || !silent.is_empty() || !group.altered.is_empty();
        if is_explained || !group.is_wanted {
            return Response::Continue;
        }
        // Those that had all their time to connect to each other would only take as long in another round.
        let mut given_up = group.unjoined().to_give_up();
        if !given_up.is_empty() {
            for &host in &given_up {
                hosts[host].count_failed_round(round);
                hosts[host].apart_from.extend(group.unjoined().with(host));
            }
            // A host that publishes needs no group any more.
            given_up.retain(|&host| hosts[host].is_ready());
            return Response::FailHosts(given_up);
        }
        match group.most_blamed() {
            Some(host) => {
                hosts[host].count_failed_round(round);
                let is_out =
                    hosts[host].failed_rounds >= FAILED_ROUNDS_MAX && hosts[host].is_ready();
                if is_out { Response::FailHosts(vec![host]) } else { Response::Continue }
            }
            None if group.is_in_switch() => Response::Relay,
            None => {
                self.unexplained.insert(round);
                if self.unexplained.len() >= UNEXPLAINED_MAX {
                    Response::End
                } else {
                    Response::Continue
                }
            }
        }
    }
}
