//! Installs groups of rdmc in switches, by the agent of the sender's first one.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcrdma::{InsertError, Inserted, Suspicion, Switches, plan::Group};
use session::certificates::Certificates;
use tokio::runtime::{Builder, Runtime};

use crate::{
    Agent, Claim, ControlError, ErrorKind,
    keeper::{Keeper, Renewals},
    proto,
    suspicions::Suspicions,
};

/// Installs groups by the agent at the sender's first switch.
///
/// Has a thread of its own, which renews leases; it ends when this and all groups have been dropped.
/// Neither may be dropped on a thread of a tokio runtime.
pub struct AgentSwitches {
    agent: Agent,
    runtime: Arc<Runtime>,
}

impl fmt::Debug for AgentSwitches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentSwitches({})", self.agent.address())
    }
}

impl AgentSwitches {
    /// Starts the thread. Connects to the agent at `HOST:PORT` with the first group.
    ///
    /// Errors: the address is invalid; the thread cannot be started.
    pub fn start(address: &str, certificates: &Certificates) -> Result<Self, ControlError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rdmc-switches")
            .enable_all()
            .build()
            .map_err(|error| {
                ControlError::new(
                    ErrorKind::Failed,
                    format!("starting the thread of the switches' client: {error}"),
                )
            })?;
        let entered = runtime.enter();
        let agent = Agent::new(address, certificates)?;
        drop(entered);
        Ok(Self { agent, runtime: Arc::new(runtime) })
    }
}

impl Switches for AgentSwitches {
    fn insert(&self, group: &Group, timeout: Duration) -> Result<Box<dyn Inserted>, InsertError> {
        let caller = format!("host {}", group.key.sender);
        let claim = Claim { key: group.key, caller, instance: group.instance };
        let inserted = self.runtime.block_on(self.agent.insert(group, &claim, timeout));
        let stale_after = inserted.map_err(|error| match error.kind {
            ErrorKind::Taken => InsertError::Duplicate,
            _ => InsertError::Refused(error.message),
        })?;
        let _entered = self.runtime.enter();
        let suspicions = Suspicions::start(self.agent.clone(), claim.clone());
        let renewals = Renewals::default();
        let keeper = Keeper::start(self.agent.clone(), claim, group.clone(), stale_after, renewals);
        let kept = Mutex::new(Kept { keeper: Some(keeper), trouble: None, suspicions });
        Ok(Box::new(InSwitches { kept, runtime: Arc::clone(&self.runtime) }))
    }
}

/// A group that is installed in the switches.
struct InSwitches {
    kept: Mutex<Kept>,
    runtime: Arc<Runtime>,
}

struct Kept {
    keeper: Option<Keeper>,
    /// The last trouble that was reported.
    trouble: Option<String>,
    suspicions: Suspicions,
}

impl Inserted for InSwitches {
    fn trouble(&self) -> Option<String> {
        let Kept { keeper, trouble, .. } = &mut *lock(&self.kept);
        while let Some(reported) =
            keeper.as_mut().and_then(|keeper| keeper.troubles.try_recv().ok())
        {
            *trouble = reported;
        }
        trouble.clone()
    }

    fn suspicions(&self) -> Vec<Suspicion> {
        let reports = &mut lock(&self.kept).suspicions.reports;
        let reported = std::iter::from_fn(|| reports.try_recv().ok());
        let suspicion = |proto::Suspicion { member, reason, .. }: proto::Suspicion| {
            Some(Suspicion { member: member.parse().ok()?, reason })
        };
        reported.filter_map(suspicion).collect()
    }
}

impl Drop for InSwitches {
    fn drop(&mut self) {
        let keeper = lock(&self.kept).keeper.take();
        if let Some(keeper) = keeper {
            self.runtime.block_on(keeper.end());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
