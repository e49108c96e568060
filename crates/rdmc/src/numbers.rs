//! The numbers of a context's groups, each of which is used by one group at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use session::Deadline;

use crate::{Error, shared::Shared};

/// The groups that have not ended, by number.
#[derive(Default)]
pub(crate) struct Numbers {
    /// Weak: what a group of the past still holds, such as memory posted for messages that never came, is freed with its
    /// last handle.
    groups: Mutex<HashMap<u64, Weak<Shared>>>,
}

impl Numbers {
    /// Reserves the number of a group. Blocks as [`Numbers::await_unused`].
    ///
    /// Errors: a group that has not ended uses it.
    pub(crate) fn reserve(&self, shared: &Arc<Shared>, deadline: Deadline) -> Result<(), Error> {
        let number = shared.settings.number;
        self.unused(number, deadline)?.insert(number, Arc::downgrade(shared));
        Ok(())
    }

    /// Gives back the number of a group that was not created after all.
    pub(crate) fn give_back(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Returns once no group uses this number: one that was dropped ends soon, and is waited for until the deadline at most.
    ///
    /// Errors: a group that has not ended uses it.
    pub(crate) fn await_unused(&self, number: u64, deadline: Deadline) -> Result<(), Error> {
        self.unused(number, deadline).map(drop)
    }

    /// Returns the numbers of groups whose last callback has not returned.
    pub(crate) fn unfinished(&self) -> Vec<u64> {
        let groups = self.lock();
        let is_open =
            |shared: &Weak<Shared>| shared.upgrade().is_some_and(|shared| !shared.is_finished());
        groups.iter().filter(|(_, shared)| is_open(shared)).map(|(&number, _)| number).collect()
    }

    fn unused(
        &self,
        number: u64,
        deadline: Deadline,
    ) -> Result<MutexGuard<'_, HashMap<u64, Weak<Shared>>>, Error> {
        loop {
            let mut groups = self.lock();
            groups.retain(|_, other| other.upgrade().is_some_and(|other| !other.is_finished()));
            let other = groups.get(&number).and_then(Weak::upgrade);
            let Some(other) = other.filter(|other| !other.has_ended()) else { return Ok(groups) };
            drop(groups);
            if !other.await_abort(deadline) {
                return Err(Error::NumberInUse(number));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<Shared>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
