//! What is done from time to time: groups follow their routes, those that nobody wants are forgotten, and
//! the switches behind hear that the others are still wanted.

use std::{collections::BTreeMap, sync::Arc};

use control::{Claim, ControlError};
use tokio::task::JoinSet;

use crate::{held::Entry, registry::Registry};

/// Groups that an agent behind hears of at a time: one after another, a full switch's would take longer
/// than it remembers them.
const KEPT_AT_A_TIME: usize = 32;

/// Keeps a registry in accord with its routes, its callers and the agents behind.
pub(crate) struct Upkeep(pub(crate) Arc<Registry>);

impl Upkeep {
    /// Forgets callers of whom nothing was heard, and groups that nobody wants.
    pub(crate) async fn sweep(&self) {
        let registry = &self.0;
        for (key, entry) in registry.all() {
            registry.sweep_group(key, &mut *entry.lock().await).await;
        }
        for (key, since) in registry.orphans() {
            if since.elapsed() >= registry.stale_after {
                registry.forget_orphan(key);
            }
        }
    }

    /// Says to the agents behind that groups are still wanted, and hears how they are. One that does not
    /// answer holds up none of the others.
    pub(crate) async fn keep_behind(&self) {
        let mut wanted = BTreeMap::<String, Vec<(Entry, Claim)>>::new();
        for (key, entry) in self.0.all() {
            // Those that change at present have just been told of.
            let Ok(held) = entry.try_lock() else { continue };
            for address in held.behind.keys() {
                let place = wanted.entry(address.clone()).or_default();
                place.push((Arc::clone(&entry), self.0.claim(&held, key)));
            }
        }
        let mut asked = JoinSet::new();
        for (address, groups) in wanted {
            asked.spawn(keep_at(Arc::clone(&self.0), address, groups));
        }
        asked.join_all().await;
    }

    /// Works out all groups again, if what this switch forwards by may have changed. What was in force
    /// stays so where there is no other way.
    pub(crate) async fn follow_routes(&self) {
        let has_changed = match self.0.paths.sight.has_changed() {
            Ok(has_changed) => has_changed,
            Err(error) => return tracing::warn!(%error, "routes cannot be read"),
        };
        if !has_changed {
            return;
        }
        for (key, entry) in self.0.all() {
            let mut held = entry.lock().await;
            self.0.follow_ways(key, &mut held).await;
        }
    }
}

/// Asks one agent of all groups that it has a part of.
async fn keep_at(registry: Arc<Registry>, address: String, groups: Vec<(Entry, Claim)>) {
    let Some(agent) = registry.agent(&address) else { return };
    let mut silence: Option<ControlError> = None;
    for some in groups.chunks(KEPT_AT_A_TIME) {
        let mut asked = JoinSet::new();
        for (entry, claim) in some {
            let (entry, claim) = (Arc::clone(entry), claim.clone());
            let (registry, agent) = (Arc::clone(&registry), agent.clone());
            let (address, silence) = (address.clone(), silence.clone());
            asked.spawn(async move {
                let answer = match silence {
                    Some(silence) => Err(silence),
                    None => agent.keep(&claim).await,
                };
                let silence = answer.as_ref().err().filter(|error| error.is_silence()).cloned();
                let mut held = entry.lock().await;
                if held.behind.contains_key(&address) {
                    registry.hear(&mut held, address, answer).await;
                }
                silence
            });
        }
        silence = silence.or(asked.join_all().await.into_iter().flatten().next());
    }
}
