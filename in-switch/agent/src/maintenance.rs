//! Periodic tasks: follow changes of routes, remove groups whose leases have expired, and renew leases at
//! downstream agents.

use std::{collections::BTreeMap, sync::Arc};

use control::{Claim, ControlError};
use tokio::task::JoinSet;

use crate::{registry::Registry, state::Entry};

/// Concurrent renewals at a downstream agent: one at a time, those of a full switch would take longer than
/// a lease lasts.
const RENEWALS_MAX: usize = 32;

/// The periodic tasks of a registry.
pub(crate) struct Maintenance(pub(crate) Arc<Registry>);

impl Maintenance {
    /// Removes expired leases, and groups without leases.
    pub(crate) async fn sweep(&self) {
        let registry = &self.0;
        for (key, entry) in registry.all() {
            registry.sweep_group(key, &mut *entry.lock().await).await;
        }
        for (key, since) in registry.orphans() {
            if registry.clock.since(since) >= registry.stale_after {
                registry.remove_orphan(key);
            }
        }
    }

    /// Renews all groups at downstream agents. One that does not answer does not delay the others.
    pub(crate) async fn renew_downstream(&self) {
        let mut wanted = BTreeMap::<String, Vec<(Entry, Claim)>>::new();
        for (key, entry) in self.0.all() {
            // A group that is being changed has just been renewed.
            let Ok(state) = entry.try_lock() else { continue };
            for address in state.downstream.keys() {
                let place = wanted.entry(address.clone()).or_default();
                place.push((Arc::clone(&entry), self.0.claim(&state, key)));
            }
        }
        let mut asked = JoinSet::new();
        for (address, groups) in wanted {
            asked.spawn(renew_at(Arc::clone(&self.0), address, groups));
        }
        asked.join_all().await;
    }

    /// Recomputes all groups if routes may have changed. A group without a path stays as it is installed.
    pub(crate) async fn follow_routes(&self) {
        let has_changed = match self.0.paths.forwarding.has_changed() {
            Ok(has_changed) => has_changed,
            Err(error) => return tracing::warn!(%error, "routes cannot be read"),
        };
        if !has_changed {
            return;
        }
        for (key, entry) in self.0.all() {
            let mut state = entry.lock().await;
            self.0.follow_routes_of(key, &mut state).await;
        }
    }
}

/// Renews all groups at one agent.
async fn renew_at(registry: Arc<Registry>, address: String, groups: Vec<(Entry, Claim)>) {
    let Some(agent) = registry.agent(&address) else { return };
    let mut no_answer: Option<ControlError> = None;
    for some in groups.chunks(RENEWALS_MAX) {
        let mut asked = JoinSet::new();
        for (entry, claim) in some {
            let (entry, claim) = (Arc::clone(entry), claim.clone());
            let (registry, agent) = (Arc::clone(&registry), agent.clone());
            let (address, no_answer) = (address.clone(), no_answer.clone());
            asked.spawn(async move {
                let answer = match no_answer {
                    Some(no_answer) => Err(no_answer),
                    None => agent.keep(&claim).await,
                };
                let no_answer = answer.as_ref().err().filter(|error| error.is_no_answer()).cloned();
                let mut state = entry.lock().await;
                if state.downstream.contains_key(&address) {
                    registry.on_renewal(&mut state, address, answer).await;
                }
                no_answer
            });
        }
        no_answer = no_answer.or(asked.join_all().await.into_iter().flatten().next());
    }
}
