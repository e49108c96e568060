//! A value that one thread changes and others wait for.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How often a wait looks whether it still has a reason.
const TICK: Duration = Duration::from_millis(100);

/// A value that threads wait for.
#[derive(Default, Debug)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    /// Changes the value, and wakes those that wait.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let outcome = change(&mut self.lock());
        self.changed.notify_all();
        outcome
    }

    /// Waits until `find` gives something of the value, or `has_ended`, which is called several times a second; then what it gives
    /// is the last word.
    pub(crate) fn wait<R>(
        &self,
        mut find: impl FnMut(&T) -> Option<R>,
        has_ended: impl Fn() -> bool,
    ) -> Option<R> {
        let mut value = self.lock();
        loop {
            match find(&value) {
                None if !has_ended() => {}
                found => return found,
            }
            let waited = self.changed.wait_timeout(value, TICK);
            value = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
