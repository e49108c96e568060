//! The groups that applications of this host send to.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use control::{ControlError, ErrorKind, proto::HostGroup};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Range of groups' identifiers: devices usually assign smaller queue pair numbers.
const ID_FIRST: u32 = 0x80_0000;
const ID_LAST: u32 = 0xff_ffff;

/// A limit: of groups that are sent to, or of memberships.
pub(crate) struct Quota {
    free: Arc<Semaphore>,
    most: u32,
    what: &'static str,
}

impl Quota {
    pub(crate) fn new(most: u32, what: &'static str) -> Self {
        Self { free: Arc::new(Semaphore::new(most as usize)), most, what }
    }

    /// A permit, which counts until it is dropped.
    pub(crate) fn acquire(&self) -> Result<OwnedSemaphorePermit, ControlError> {
        Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            let why = format!("this host's daemon has {} {} already", self.most, self.what);
            ControlError::new(ErrorKind::Limit, why)
        })
    }

    /// Waits until no permit is held, or `limit` is over.
    pub(crate) async fn wait_until_unused(&self, limit: Duration) {
        let _ = timeout(limit, self.free.acquire_many(self.most)).await;
    }
}

/// Reports of groups, by identifier.
#[derive(Default)]
pub(crate) struct Groups(Mutex<BTreeMap<u32, HostGroup>>);

/// An identifier that no other group of this host has, until it is dropped.
pub(crate) struct Reserved {
    groups: Arc<Groups>,
    pub(crate) id: u32,
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, HostGroup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws an identifier.
    pub(crate) fn reserve(self: &Arc<Self>) -> Reserved {
        let mut groups = self.lock();
        // There are far more than the limit of groups.
        let mut draw = std::iter::repeat_with(|| rand::random_range(ID_FIRST..=ID_LAST));
        let id = draw.find(|id| !groups.contains_key(id)).unwrap_or(ID_FIRST);
        groups.insert(id, HostGroup::default());
        Reserved { groups: Arc::clone(self), id }
    }

    /// Groups that have been created.
    pub(crate) fn report(&self) -> Vec<HostGroup> {
        self.lock().values().filter(|group| group.key.is_some()).cloned().collect()
    }
}

impl Reserved {
    /// Changes its report.
    pub(crate) fn update(&self, change: impl FnOnce(&mut HostGroup)) {
        if let Some(group) = self.groups.lock().get_mut(&self.id) {
            change(group);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.groups.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_drawn_once() {
        let groups = Arc::new(Groups::default());
        let all: Vec<Reserved> = (0..5000).map(|_| groups.reserve()).collect();
        assert!(all.iter().all(|reserved| (ID_FIRST..=ID_LAST).contains(&reserved.id)));
        assert_eq!(groups.lock().len(), all.len());
        assert!(groups.report().is_empty(), "none has been created");
        drop(all);
        assert!(groups.lock().is_empty());
    }

    #[test]
    fn quotas_are_enforced() {
        let quota = Quota::new(1, "groups");
        let one = quota.acquire().unwrap();
        assert_eq!(quota.acquire().unwrap_err().kind, ErrorKind::Limit);
        drop(one);
        assert!(quota.acquire().is_ok());
    }
}
