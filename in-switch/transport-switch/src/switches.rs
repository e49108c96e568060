//! What puts groups into switches: the seam to whoever controls them.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcrdma::plan;

/// Puts groups into the switches between a sender and its members. Used from many threads at a time.
pub trait Switches: Send + Sync + fmt::Debug {
    /// Blocks until all switches on the way know the group, or `timeout` is over.
    ///
    /// The virtual address is that of the first member, with its Ethernet address, so that what a
    /// switch says of it by ARP is true.
    ///
    /// Errors: the identifier is in use, a switch refuses, or does not answer in time. No switch
    /// knows the group then.
    fn insert(
        &self,
        group: &plan::Group,
        timeout: Duration,
    ) -> Result<Box<dyn Inserted>, InsertError>;
}

/// A group that switches know, until this is dropped: that takes it out of them, and may block for a
/// bounded time.
pub trait Inserted: Send {
    /// Why it no longer works, if switches have said so. Does not block.
    fn trouble(&self) -> Option<String>;
}

/// Why switches do not take a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// Another group of the sender's has this identifier: draw another.
    #[error("the identifier is in use")]
    Duplicate,
    /// In words: which switch, and what limit or step.
    #[error("{0}")]
    Refused(String),
}

/// Keeps a group in the switches; dropping this takes it out, on the thread that does so.
pub struct Registration(Arc<Mutex<Option<Box<dyn Inserted>>>>);

/// Looks after a group for as long as its [`Registration`] lives, and never takes it out itself.
pub struct Watch(Arc<Mutex<Option<Box<dyn Inserted>>>>);

impl Registration {
    /// Of a group that is in the switches now.
    #[must_use]
    pub fn new(inserted: Box<dyn Inserted>) -> Self {
        Self(Arc::new(Mutex::new(Some(inserted))))
    }

    /// What tells of trouble.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.0))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Taken out first: who watches does not wait while the switches are told.
        let inserted = lock(&self.0).take();
        drop(inserted);
    }
}

impl Watch {
    /// Why the group no longer works, if switches have said so.
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
