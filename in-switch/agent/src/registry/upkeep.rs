//! What is done from time to time: groups follow their routes, those that nobody wants are forgotten, and
//! the switches behind hear that the others are still wanted.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use mcrdma::GroupKey;
use tokio::task::JoinSet;

use super::{Entry, Held, Lost, Registry, lock};
use control::{Claim, ControlError, ErrorKind, Kept};

/// Groups that an agent behind hears of at a time: one after another, a full switch's would take longer
/// than it remembers them.
const KEPT_AT_A_TIME: usize = 32;
/// What causes trouble when routes have changed and a group cannot follow.
const ROUTES: &str = "routes";

impl Registry {
    /// Forgets callers of whom nothing was heard, and groups that nobody wants.
    pub(crate) async fn sweep(&self) {
        for (key, entry) in self.all() {
            let mut held = entry.lock().await;
            held.callers.retain(|_, wanted| wanted.heard.elapsed() < self.stale_after);
            if held.callers.is_empty() {
                tracing::warn!(%key, "nobody has asked for it for {} s", self.stale_after.as_secs());
            }
            self.forget_if_unwanted(key, &mut held).await;
            let _ = self.follow(&mut held).await;
            // What could not be done then may be possible now.
            if held.troubles.contains_key(ROUTES) {
                self.follow_ways(key, &mut held).await;
            }
        }
        for (key, since) in self.orphans() {
            if since.elapsed() >= self.stale_after && lock(&self.orphans).remove(&key).is_some() {
                tracing::warn!(%key, "nobody has asked for it since this agent has started");
                let removed = self.plane().remove(key);
                removed.inspect_err(|error| tracing::warn!(%key, %error, "not removed")).ok();
            }
        }
    }

    /// Says to the agents behind that groups are still wanted, and hears how they are. One that does not
    /// answer holds up none of the others.
    pub(crate) async fn keep_behind(self: &Arc<Self>) {
        let mut wanted = BTreeMap::<String, Vec<(Entry, Claim)>>::new();
        for (key, entry) in self.all() {
            // Those that change at present have just been told of.
            let Ok(held) = entry.try_lock() else { continue };
            for address in held.behind.keys() {
                let place = wanted.entry(address.clone()).or_default();
                place.push((Arc::clone(&entry), self.claim(&held, key)));
            }
        }
        let mut asked = JoinSet::new();
        for (address, groups) in wanted {
            asked.spawn(Arc::clone(self).keep_at(address, groups));
        }
        asked.join_all().await;
    }

    async fn keep_at(self: Arc<Self>, address: String, groups: Vec<(Entry, Claim)>) {
        let Some(agent) = self.agents.get(&address) else { return };
        let mut silence: Option<ControlError> = None;
        for some in groups.chunks(KEPT_AT_A_TIME) {
            let mut asked = JoinSet::new();
            for (entry, claim) in some {
                let (entry, claim) = (Arc::clone(entry), claim.clone());
                let (registry, agent) = (Arc::clone(&self), agent.clone());
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

    /// What an agent behind has said of a group. Its switch goes on without it, until it would have
    /// forgotten the group.
    async fn hear(&self, held: &mut Held, agent: String, answer: Result<Kept, ControlError>) {
        let trouble = match answer {
            Ok(kept) => kept.trouble,
            Err(error) if error.kind == ErrorKind::Unknown => {
                self.again(held, &agent).await.err().map(|error| error.message)
            }
            Err(error) => {
                let since = *held.unheard.entry(agent.clone()).or_insert_with(Instant::now);
                if since.elapsed() >= self.stale_after {
                    held.troubles.insert(agent, error.message);
                } else {
                    tracing::warn!(agent, %error, "nothing is heard of it");
                }
                return;
            }
        };
        held.unheard.remove(&agent);
        match trouble {
            Some(trouble) => held.troubles.insert(agent, trouble),
            None => held.troubles.remove(&agent),
        };
    }

    /// An agent behind has forgotten what it was asked to do, as after a restart.
    async fn again(&self, held: &mut Held, address: &str) -> Result<(), ControlError> {
        let wanted = held.behind.clone();
        held.behind.remove(address);
        let told = self.tell_behind(held, &wanted).await;
        // It is asked for it the next time, too.
        held.behind = wanted;
        told
    }

    /// Works out all groups again, if what this switch forwards by may have changed. What was in force
    /// stays so where there is no other way.
    pub(crate) async fn follow_routes(&self) {
        let has_changed = match self.sight.has_changed() {
            Ok(has_changed) => has_changed,
            Err(error) => return tracing::warn!(%error, "routes cannot be read"),
        };
        if !has_changed {
            return;
        }
        for (key, entry) in self.all() {
            let mut held = entry.lock().await;
            self.follow_ways(key, &mut held).await;
        }
    }

    /// Works out a group again.
    async fn follow_ways(&self, key: GroupKey, held: &mut Held) {
        let Some(group) = held.group.clone() else { return };
        let split = match self.split_group(&group, 1).await {
            // Somebody's Ethernet address has become old: what is in force still holds.
            Err(Lost::Unseen(unseen)) if !unseen.is_lasting() => return,
            split => split.map_err(|lost| self.no_tree(lost)),
        };
        let trouble = match split {
            Ok(split) if split == held.split => None,
            Ok(_) => {
                tracing::info!(%key, "routes have changed");
                self.apply(held, group).await.err()
            }
            Err(error) => Some(error),
        };
        match trouble {
            Some(error) => held.troubles.insert(ROUTES.to_owned(), error.message),
            None => held.troubles.remove(ROUTES),
        };
    }
}
