//! A group in the switches, checked on one thread and removed on another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcrdma::{Inserted, Suspicion};

/// Keeps a group in the switches; dropping this removes it, on the thread that drops it.
pub struct Registration(Arc<Mutex<Option<Box<dyn Inserted>>>>);

/// Reads the state of a group while its [`Registration`] exists, and never removes the group
/// itself.
pub struct Watch(Arc<Mutex<Option<Box<dyn Inserted>>>>);

impl Registration {
    /// Takes over a group that was added to the switches.
    #[must_use]
    pub fn new(inserted: Box<dyn Inserted>) -> Self {
        Self(Arc::new(Mutex::new(Some(inserted))))
    }

    /// Returns a handle that reports failures of the group.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.0))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Outside of the lock: a watch must not wait while switches remove the group.
        let inserted = lock(&self.0).take();
        drop(inserted);
    }
}

impl Watch {
    /// Returns why the group no longer works, if switches have reported a failure.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        lock(&self.0).as_ref().and_then(|inserted| inserted.trouble())
    }

    /// Returns the members that switches have suspected since the last call.
    #[must_use]
    pub fn suspicions(&self) -> Vec<Suspicion> {
        lock(&self.0).as_ref().map_or_else(Vec::new, |inserted| inserted.suspicions())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Reporting(Arc<AtomicBool>);

    impl Inserted for Reporting {
        fn trouble(&self) -> Option<String> {
            Some("a switch is gone".into())
        }

        fn suspicions(&self) -> Vec<Suspicion> {
            vec![Suspicion { member: [10, 0, 0, 1].into(), reason: "it is silent".into() }]
        }
    }

    impl Drop for Reporting {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_watch_does_not_keep_a_registration_alive() {
        let taken_out = Arc::new(AtomicBool::new(false));
        let registration = Registration::new(Box::new(Reporting(Arc::clone(&taken_out))));
        let watch = registration.watch();
        assert_eq!(watch.trouble().as_deref(), Some("a switch is gone"));
        assert_eq!(watch.suspicions()[0].reason, "it is silent");
        assert!(!taken_out.load(Ordering::Relaxed));
        drop(registration);
        assert!(taken_out.load(Ordering::Relaxed));
        assert_eq!((watch.trouble(), watch.suspicions()), (None, vec![]));
    }
}
