//! What follows from a group that has failed: who is to blame, and whether switches are to copy in the next
//! groups.

use std::collections::BTreeSet;

use super::{attempt::Attempt, host::Host};

/// How often a host that is alive may be blamed for failed groups before it is given up: a
/// connection between two others may have been reset by chance.
const STRIKES_MAX: u32 = 2;
/// Rounds in which groups fail although nobody is to blame.
const UNEXPLAINED_MAX: usize = 3;

/// What to do after a group that has failed.
pub(super) enum Aftermath {
    /// Go on with those that are left.
    GoOn,
    /// Give this host up as well.
    GiveUp(usize),
    /// From now on members relay: what switches could not do they would not do the next time, and nobody has
    /// lost anything.
    Relay,
    /// End the push: groups fail again and again, and nobody is to blame.
    End,
}

/// Failures of a push's groups.
#[derive(Default)]
pub(super) struct Blame {
    /// Rounds in which a group has failed and nobody was to blame.
    unexplained: BTreeSet<u32>,
}

impl Blame {
    /// Of a group of this round, of which these members have said nothing.
    pub(super) fn judge(
        &mut self,
        attempt: &Attempt,
        silent: &[usize],
        round: u32,
        hosts: &mut [Host],
    ) -> Aftermath {
        if attempt.has_failed_by_switches() {
            return Aftermath::Relay;
        }
        // Hosts that are gone explain the failure; else the members' own words have to.
        if attempt.has_lost() || !silent.is_empty() || !attempt.is_wanted {
            return Aftermath::GoOn;
        }
        match attempt.most_blamed() {
            Some(host) => {
                hosts[host].strike(round);
                // One that was told to publish needs no group any more.
                let is_out = hosts[host].strikes >= STRIKES_MAX && hosts[host].is_ready();
                if is_out { Aftermath::GiveUp(host) } else { Aftermath::GoOn }
            }
            None if attempt.is_in_switch() => Aftermath::Relay,
            None => {
                self.unexplained.insert(round);
                if self.unexplained.len() >= UNEXPLAINED_MAX {
                    Aftermath::End
                } else {
                    Aftermath::GoOn
                }
            }
        }
    }
}
