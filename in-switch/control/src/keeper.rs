//! At a sender: renews a group's lease at the agent of its first switch.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcrdma::plan::Group;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{Agent, Claim, ControlError, ErrorKind};

/// Deadline for installing a group in all switches.
pub const INSERT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest interval between renewals, so that troubles are reported soon.
const KEEP_AT_LEAST: Duration = Duration::from_secs(2);
/// Retry interval while the agent has not removed a failed member, for which the others wait.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Deadline for removing a group; after it the lease expires.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Members' newer delegations that are not in the switches yet. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Renewals(Arc<Mutex<BTreeMap<IpAddr, Vec<u8>>>>);

impl Renewals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a member's newest delegation, which replaces an older one. It gets into the switches when the lease is
    /// renewed.
    pub fn put(&self, member: IpAddr, delegation: Vec<u8>) {
        self.lock().insert(member, delegation);
    }

    /// Moves them into the group. Returns whether there were some of its members'.
    fn move_into(&self, group: &mut Group) -> bool {
        let mut newer = std::mem::take(&mut *self.lock());
        let mut are_some = false;
        for member in &mut group.members {
            if let Some(delegation) = newer.remove(&member.address) {
                (member.delegation, are_some) = (delegation, true);
            }
        }
        are_some
    }
}

/// Keeps a group in the switches, until [`Keeper::end`].
pub struct Keeper {
    removed: mpsc::UnboundedSender<IpAddr>,
    /// Why packets may not reach all members, each time that this changes.
    pub troubles: mpsc::UnboundedReceiver<Option<String>>,
    task: JoinHandle<()>,
}

struct Keeping {
    agent: Agent,
    claim: Claim,
    group: Group,
    /// The lease's duration.
    stale_after: Duration,
    /// Failed members that the agent has not removed yet.
    to_remove: Vec<IpAddr>,
    renewals: Renewals,
    /// The group has delegations that the agent may not have.
    is_newer: bool,
}

impl Keeper {
    /// Starts renewing the lease of a group that has been inserted, and puts its members' renewed delegations into
    /// the switches.
    pub fn start(
        agent: Agent,
        claim: Claim,
        group: Group,
        stale_after: Duration,
        renewals: Renewals,
    ) -> Self {
        let (removed, removals) = mpsc::unbounded_channel();
        let (report, troubles) = mpsc::unbounded_channel();
        let (to_remove, is_newer) = (Vec::new(), false);
        let keeping = Keeping { agent, claim, group, stale_after, to_remove, renewals, is_newer };
        let task = tokio::spawn(keeping.run(removals, report));
        Self { removed, troubles, task }
    }

    /// Removes a failed member; the group continues.
    pub fn remove_member(&self, member: IpAddr) {
        // The task runs until this is dropped.
        let _ = self.removed.send(member);
    }

    /// Removes the group from the switches. If that takes too long, its lease expires.
    pub async fn end(self) {
        let Self { removed, mut task, .. } = self;
        drop(removed);
        if timeout(REMOVE_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Keeping {
    async fn run(
        mut self,
        mut removals: mpsc::UnboundedReceiver<IpAddr>,
        report: mpsc::UnboundedSender<Option<String>>,
    ) {
        let interval = (self.stale_after / 3).min(KEEP_AT_LEAST);
        let (mut reported, mut renewed) = (None, Instant::now());
        loop {
            let wait = if self.to_remove.is_empty() { interval } else { interval.min(AGAIN_AFTER) };
            tokio::select! {
                member = removals.recv() => match member {
                    Some(member) => {
                        self.group.members.retain(|known| known.address != member);
                        self.to_remove.push(member);
                    }
                    None => break,
                },
                () = sleep(wait) => {}
            }
            let trouble = match self.keep().await {
                Ok(trouble) => {
                    renewed = Instant::now();
                    trouble
                }
                // The switch copies without its agent; the lease has not expired.
                Err(error) if error.is_no_answer() && renewed.elapsed() < self.stale_after => {
                    continue;
                }
                Err(error) => Some(error.message),
            };
            if trouble != reported {
                reported.clone_from(&trouble);
                let _ = report.send(trouble);
            }
        }
        if let Err(error) = self.agent.remove(&self.claim).await {
            tracing::warn!(group = %self.claim.key, %error, "not removed: its lease will expire");
        }
    }

    /// Renews the lease. Returns why packets may not reach all members.
    async fn keep(&mut self) -> Result<Option<String>, ControlError> {
        self.is_newer |= self.renewals.move_into(&mut self.group);
        match self.ask().await {
            Ok(trouble) if self.is_newer => self.insert().await.map(|()| trouble),
            Err(error) if error.kind == ErrorKind::Unknown => {
                tracing::info!(group = %self.claim.key, "is inserted again: {error}");
                self.insert().await?;
                self.to_remove.clear();
                Ok(None)
            }
            asked => asked,
        }
    }

    async fn insert(&mut self) -> Result<(), ControlError> {
        self.agent.insert(&self.group, &self.claim, INSERT_TIMEOUT).await?;
        self.is_newer = false;
        Ok(())
    }

    async fn ask(&mut self) -> Result<Option<String>, ControlError> {
        while let Some(&member) = self.to_remove.last() {
            self.agent.remove_member(&self.claim, member).await?;
            self.to_remove.pop();
        }
        Ok(self.agent.keep(&self.claim).await?.trouble)
    }
}
