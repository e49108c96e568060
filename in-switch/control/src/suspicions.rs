//! At a sender: what the agent of its first switch reports of members that seem to have failed.

use std::time::Duration;

use tokio::{sync::mpsc, task::JoinHandle, time::sleep};

use crate::{Agent, Claim, proto::Suspicion};

/// Until a stream that has broken is opened again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Reports that were not taken yet. More are dropped: the agent repeats them.
const REPORTS_MAX: usize = 256;

/// Reports of a group, until this is dropped.
pub(crate) struct Suspicions {
    /// Each is repeated while its cause lasts.
    pub(crate) reports: mpsc::Receiver<Suspicion>,
    task: JoinHandle<()>,
}

impl Drop for Suspicions {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Suspicions {
    /// Starts watching a group that has been inserted.
    ///
    /// Panics: this is no thread of a tokio runtime.
    pub(crate) fn start(agent: Agent, claim: Claim) -> Self {
        let (reported, reports) = mpsc::channel(REPORTS_MAX);
        Self { reports, task: tokio::spawn(watch(agent, claim, reported)) }
    }
}

async fn watch(agent: Agent, claim: Claim, reported: mpsc::Sender<Suspicion>) {
    loop {
        match agent.watch(&claim).await {
            Ok(mut stream) => {
                while let Ok(Some(suspicion)) = stream.message().await {
                    let _ = reported.try_send(suspicion);
                }
            }
            Err(error) => tracing::debug!(group = %claim.key, %error, "is not watched"),
        }
        sleep(AGAIN_AFTER).await;
    }
}
