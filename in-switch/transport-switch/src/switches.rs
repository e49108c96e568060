//! A group in the switches, watched on one thread and taken out on another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcrdma::Inserted;

/// Keeps a group in the switches; dropping this takes it out, on the thread that does so.
pub struct Registration(Arc<Mutex<Option<Box<dyn Inserted>>>>);

/// Reads the state of a group while its [`Registration`] exists, and never takes the group out itself.
pub struct Watch(Arc<Mutex<Option<Box<dyn Inserted>>>>);

impl Registration {
    /// Of a group that is in the switches now.
    #[must_use]
    pub fn new(inserted: Box<dyn Inserted>) -> Self {
        Self(Arc::new(Mutex::new(Some(inserted))))
    }

    /// Reports failures of the group.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.0))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Outside of the lock: a watch does not wait while switches remove the group.
        let inserted = lock(&self.0).take();
        drop(inserted);
    }
}

impl Watch {
    /// Why the group no longer works, if switches have reported it.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        lock(&self.0).as_ref().and_then(|inserted| inserted.trouble())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Told(Arc<AtomicBool>);

    impl Inserted for Told {
        fn trouble(&self) -> Option<String> {
            Some("a switch is gone".into())
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_watch_does_not_keep_a_group() {
        let taken_out = Arc::new(AtomicBool::new(false));
        let registration = Registration::new(Box::new(Told(Arc::clone(&taken_out))));
        let watch = registration.watch();
        assert_eq!(watch.trouble().as_deref(), Some("a switch is gone"));
        assert!(!taken_out.load(Ordering::Relaxed));
        drop(registration);
        assert!(taken_out.load(Ordering::Relaxed));
        assert_eq!(watch.trouble(), None);
    }
}
