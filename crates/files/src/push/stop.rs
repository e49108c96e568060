//! Ending a push early.
//!
//! What is under way is given up at once. Hosts that were told to publish their copies may have done so,
//! so that they are asked: the push waits for their answers, but not for long.

use std::time::Duration;

use super::{
    coordinator::Coordinator,
    host::Step,
    settings::{PushError, PushEvent},
    stage::Stage,
};
use crate::SourceError;

/// How long hosts that publish may take to say so once the push is to end.
const LAST_ANSWER: Duration = Duration::from_secs(10);

impl Coordinator<'_> {
    /// Ends the push for this reason, and waits for hosts that publish: until
    /// [`Coordinator::is_over`]. Interrupted again, it waits no longer; other reasons after the first
    /// do not matter.
    pub fn stop(&mut self, stage: &mut impl Stage, error: PushError) {
        let is_interrupt = matches!(error, PushError::Cancelled);
        let reason = match &error {
            PushError::Cancelled => "interrupted at the root".to_owned(),
            other => other.to_string(),
        };
        if self.stopped.is_some() {
            if is_interrupt {
                self.end_now(stage, &reason);
            }
            return;
        }
        self.stopped = Some(error);
        let mut publishing = 0;
        for host in 0..self.hosts.len() {
            let known = &mut self.hosts[host];
            known.retries = 0;
            if let Step::Publishing(until) = &mut known.step {
                *until = (*until).min(self.now + LAST_ANSWER);
                publishing += 1;
            } else if known.is_open() {
                self.fail(stage, host, &reason);
            }
        }
        for group in std::mem::take(&mut self.attempts).into_keys() {
            stage.abort(group, &reason);
        }
        if publishing > 0 {
            stage.observe(PushEvent::Stopping { publishing });
        }
    }

    fn end_now(&mut self, stage: &mut impl Stage, reason: &str) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_open() {
                self.fail(stage, host, reason);
            }
        }
    }

    /// Whether what hosts have received is of use to a later push: unless the source has changed.
    pub(super) fn keeps(&self) -> bool {
        !matches!(self.stopped, Some(PushError::Source(SourceError::Changed { .. })))
    }

    /// How a push ended for which nothing is left to be done.
    pub fn outcome(&mut self) -> Result<(), PushError> {
        let all_have_it = self.hosts.iter().all(|host| host.step == Step::Published);
        match self.stopped.take() {
            Some(error) if !all_have_it => Err(error),
            _ => Ok(()),
        }
    }
}
