//! What follows from groups that have failed, and from copies that differ: who is given up, and whether
//! switches are to copy in the next groups.

use rdmc::Algorithm;

use super::{
    attempt::Verdict,
    coordinator::Coordinator,
    parts::Part,
    settings::{PushError, PushEvent},
    stage::Stage,
};

/// How often a host that is alive may be blamed for failed groups before it is given up: a
/// connection between two others may have been reset by chance.
const STRIKES_MAX: u32 = 2;
/// Rounds in which groups fail although nobody is to blame.
const UNEXPLAINED_MAX: usize = 3;

impl Coordinator<'_> {
    /// Concludes attempts that have failed, once enough has been heard of them.
    pub(super) fn settle(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        let groups: Vec<u64> = self.attempts.keys().copied().collect();
        for group in groups {
            let Some(attempt) = self.attempts.get_mut(&group) else { continue };
            if attempt.is_joining() && attempt.deadline().is_some_and(|until| self.now >= until) {
                self.begin_failing(stage, group, "it took too long to join");
                continue;
            }
            if !attempt.is_failing() {
                continue;
            }
            if let Verdict::Over { silent } = attempt.judge(self.now) {
                self.conclude(stage, group, &silent)?;
            }
        }
        Ok(())
    }

    /// After a failed group: gives up who is lost, and leaves the others ready.
    fn conclude(
        &mut self,
        stage: &mut impl Stage,
        group: u64,
        silent: &[usize],
    ) -> Result<(), PushError> {
        self.note_shares(group);
        let Some(attempt) = self.attempts.remove(&group) else { return Ok(()) };
        // A source that has changed explains any failure, and no further attempt could be right.
        stage.check_source()?;
        let why = attempt.why();
        for &host in silent {
            self.fail(stage, host, &format!("it no longer answers: {why}"));
        }
        if attempt.has_failed_by_switches() {
            self.fall_back(stage, why);
            return Ok(());
        }
        // Hosts that are gone explain the failure; else the members' own words have to.
        if attempt.has_lost() || !silent.is_empty() || !attempt.is_wanted {
            return Ok(());
        }
        match attempt.most_blamed() {
            Some(host) => {
                self.hosts[host].strike(self.rounds);
                // One that was told to publish needs no group any more.
                if self.hosts[host].strikes >= STRIKES_MAX && self.hosts[host].is_ready() {
                    self.fail(stage, host, &format!("it {why}"));
                }
            }
            None if attempt.is_in_switch() => self.fall_back(stage, why),
            None => {
                self.unexplained.insert(self.rounds);
                if self.unexplained.len() >= UNEXPLAINED_MAX {
                    return Err(PushError::Group(why));
                }
            }
        }
        Ok(())
    }

    /// A host's copy differs: gives it up, unless the source was changed. Its attributes may not tell, so
    /// that it is read again, once for all hosts.
    pub(super) fn judge_difference(
        &mut self,
        stage: &mut impl Stage,
        host: usize,
    ) -> Result<(), PushError> {
        stage.check_source()?;
        if !std::mem::replace(&mut self.is_reading_again, true) {
            return stage.digest();
        }
        if self.reads_the_same {
            let reason = "its copy differs from the source, which reads as it did before: it was written \
                          to while it was sent, and its modification time was kept; or that machine's \
                          memory or network is bad. Run it again";
            self.fail(stage, host, reason);
        }
        Ok(())
    }

    /// From now on members relay: what switches could not do they would not do the next time, and
    /// nobody has lost anything.
    fn fall_back(&mut self, stage: &mut impl Stage, reason: String) {
        if self.fell_back.is_none() {
            tracing::info!(reason, "members relay, though switches were to copy");
            stage.observe(PushEvent::FellBack { reason: reason.clone() });
            self.fell_back = Some(reason);
        }
    }

    /// How blocks of a part travel; `None` for what should be fastest. Switches copy what the root
    /// sends, until that has failed.
    pub(super) fn algorithm(&self, part: &Part) -> Option<Algorithm> {
        let can_copy = part.source.is_none() && self.fell_back.is_none();
        self.settings.algorithm.filter(|&asked| asked != Algorithm::InSwitch || can_copy)
    }
}
