//! At a sender: keeps a group in the switches, by the agent of the first of them.

use std::{net::IpAddr, time::Duration};

use mcrdma::plan::Group;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{Agent, Claim, ControlError, ErrorKind};

/// Switches have taken a group within this time.
pub const INSERT_TIMEOUT: Duration = Duration::from_secs(20);
/// Groups are kept at least as often, so that troubles are heard of.
const KEEP_AT_LEAST: Duration = Duration::from_secs(2);
/// What holds others up is tried again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A group that has ended is taken out within this time, or collected by the agent.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps a group in the switches.
pub struct Keeper {
    gone: mpsc::UnboundedSender<IpAddr>,
    /// Why packets may not reach all members, each time that this changes.
    pub troubles: mpsc::UnboundedReceiver<Option<String>>,
    task: JoinHandle<()>,
}

struct Keeping {
    agent: Agent,
    claim: Claim,
    group: Group,
    /// The agent forgets it if it does not hear of it for so long.
    stale_after: Duration,
    /// Members that the agent still has to hear of.
    gone: Vec<IpAddr>,
}

impl Keeper {
    /// Keeps a group that has been inserted.
    pub fn start(agent: Agent, claim: Claim, group: Group, stale_after: Duration) -> Self {
        let (gone, told) = mpsc::unbounded_channel();
        let (tell, troubles) = mpsc::unbounded_channel();
        let keeping = Keeping { agent, claim, group, stale_after, gone: Vec::new() };
        let task = tokio::spawn(keeping.run(told, tell));
        Self { gone, troubles, task }
    }

    /// The group goes on without a member.
    pub fn remove_member(&self, member: IpAddr) {
        // It is there until this is dropped.
        let _ = self.gone.send(member);
    }

    /// Takes the group out of the switches. If that takes too long, they forget it by themselves.
    pub async fn end(self) {
        let Self { gone, mut task, .. } = self;
        drop(gone);
        if timeout(REMOVE_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Keeping {
    async fn run(
        mut self,
        mut told: mpsc::UnboundedReceiver<IpAddr>,
        tell: mpsc::UnboundedSender<Option<String>>,
    ) {
        let interval = (self.stale_after / 3).min(KEEP_AT_LEAST);
        let (mut said, mut heard) = (None, Instant::now());
        loop {
            let wait = if self.gone.is_empty() { interval } else { interval.min(AGAIN_AFTER) };
            tokio::select! {
                gone = told.recv() => match gone {
                    Some(member) => self.forget(member),
                    None => break,
                },
                () = sleep(wait) => {}
            }
            let trouble = match self.keep().await {
                Ok(trouble) => {
                    heard = Instant::now();
                    trouble
                }
                // Switches go on without their agents, for a time.
                Err(error) if error.is_silence() && heard.elapsed() < self.stale_after => continue,
                Err(error) => Some(error.message),
            };
            if trouble != said {
                said.clone_from(&trouble);
                let _ = tell.send(trouble);
            }
        }
        if let Err(error) = self.agent.remove(&self.claim).await {
            tracing::warn!(group = %self.claim.key, %error, "not removed: it is forgotten later");
        }
    }

    fn forget(&mut self, member: IpAddr) {
        self.group.members.retain(|known| known.address != member);
        self.gone.push(member);
    }

    /// Answers why packets may not reach all members.
    async fn keep(&mut self) -> Result<Option<String>, ControlError> {
        match self.ask().await {
            Err(error) if error.kind == ErrorKind::Unknown => {
                tracing::info!(group = %self.claim.key, "is inserted again: {error}");
                self.agent.insert(&self.group, &self.claim, INSERT_TIMEOUT).await?;
                self.gone.clear();
                Ok(None)
            }
            asked => asked,
        }
    }

    async fn ask(&mut self) -> Result<Option<String>, ControlError> {
        while let Some(&member) = self.gone.last() {
            self.agent.remove_member(&self.claim, member).await?;
            self.gone.pop();
        }
        Ok(self.agent.keep(&self.claim).await?.trouble)
    }
}
