//! Groups of rdmc, put into switches by the agent of the sender's first one.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use mcrdma::plan::Group;
use rdmc::{InsertError, Inserted, Switches, bootstrap::Certificates};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{Agent, Claim, ControlError, ErrorKind};

/// What switches say of a group is known after this time at the latest.
const KEEP_EVERY: Duration = Duration::from_secs(2);
/// Switches that do not answer when a group ends forget it by themselves.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The switches that the agent at the sender's first one tells.
///
/// It has a thread of its own, on which groups are kept alive; it ends when this and all groups have
/// been dropped. Neither may be dropped on a thread of a tokio runtime.
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
    /// Starts the thread. The agent at `HOST:PORT` is called with the first group.
    ///
    /// Errors: that is no such address; there is no thread.
    pub fn start(address: &str, certificates: &Certificates) -> Result<Self, ControlError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rdmc-switches")
            .enable_all()
            .build()
            .map_err(|error| {
                ControlError::new(
                    ErrorKind::Failed,
                    format!("no thread to ask switches on: {error}"),
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
        let claim = Claim { key: group.key, caller, instance: rand::random() };
        let inserted = self.runtime.block_on(self.agent.insert(group, &claim, timeout));
        let stale_after = inserted.map_err(|error| match error.kind {
            ErrorKind::Taken => InsertError::Duplicate,
            _ => InsertError::Refused(error.message),
        })?;
        let trouble = Arc::new(Mutex::new(None));
        let kept = Kept {
            agent: self.agent.clone(),
            group: group.clone(),
            claim,
            stale_after,
            trouble: Arc::clone(&trouble),
        };
        let (agent, claim) = (kept.agent.clone(), kept.claim.clone());
        let keeping = self.runtime.spawn(kept.keep());
        Ok(Box::new(Entered { agent, claim, trouble, keeping, runtime: Arc::clone(&self.runtime) }))
    }
}

/// A group that is kept alive.
struct Kept {
    agent: Agent,
    group: Group,
    claim: Claim,
    stale_after: Duration,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Kept {
    async fn keep(self) {
        let every = KEEP_EVERY.min(self.stale_after / 3);
        let mut heard = Instant::now();
        loop {
            sleep(every).await;
            let trouble = match self.ask(every).await {
                Ok(trouble) => {
                    heard = Instant::now();
                    trouble
                }
                // Switches go on without their agents, for a time.
                Err(_) if heard.elapsed() < self.stale_after => continue,
                Err(error) => Some(error.message),
            };
            *lock(&self.trouble) = trouble;
        }
    }

    async fn ask(&self, every: Duration) -> Result<Option<String>, ControlError> {
        match self.agent.keep(&self.claim).await {
            Ok(kept) => Ok(kept.trouble),
            // Its agent has started again.
            Err(error) if error.kind == ErrorKind::Unknown => {
                let wait = self.stale_after.max(every);
                self.agent.insert(&self.group, &self.claim, wait).await.map(|_| None)
            }
            Err(error) => Err(error),
        }
    }
}

/// A group in the switches.
struct Entered {
    agent: Agent,
    claim: Claim,
    trouble: Arc<Mutex<Option<String>>>,
    keeping: JoinHandle<()>,
    runtime: Arc<Runtime>,
}

impl Inserted for Entered {
    fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.keeping.abort();
        // Who does not hear it forgets the group when it is stale.
        let _ = self
            .runtime
            .block_on(async { timeout(REMOVE_TIMEOUT, self.agent.remove(&self.claim)).await });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
