//! Threads that are joined by a deadline, and named if they do not end by then.

use std::{
    io,
    sync::{Mutex, MutexGuard},
    thread::{self, JoinHandle},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use crate::deadline::Deadline;

/// The threads of one owner, which joins them when it closes.
#[derive(Debug, Default)]
pub struct Threads(Mutex<Vec<Running>>);

#[derive(Debug)]
struct Running {
    /// Description for the case that it does not end in time.
    what: String,
    handle: JoinHandle<()>,
    /// Disconnected once the thread's body has returned: nothing is ever sent.
    over: Receiver<()>,
}

impl Threads {
    /// Starts a thread of this name; `what` describes it in the result of [`Threads::join`].
    ///
    /// Errors: the system cannot start a thread.
    pub fn spawn(
        &self,
        name: &str,
        what: String,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let (alive, over) = bounded(0);
        let body = move || {
            let _alive = alive;
            body();
        };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        let mut threads = self.lock();
        threads.retain(|running| !running.handle.is_finished());
        threads.push(Running { what, handle, over });
        Ok(())
    }

    /// Waits until all threads but the calling one have ended. Returns the descriptions of those
    /// that have not by the deadline: they are detached, and end when what they wait for happens.
    pub fn join(&self, deadline: Deadline) -> Vec<String> {
        let own = thread::current().id();
        let threads = std::mem::take(&mut *self.lock());
        let others = threads.into_iter().filter(|running| running.handle.thread().id() != own);
        others.filter_map(|running| running.join(deadline)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Running>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Running {
    fn join(self, deadline: Deadline) -> Option<String> {
        if self.over.recv_timeout(deadline.left()) == Err(RecvTimeoutError::Timeout) {
            return Some(self.what);
        }
        // The body has returned, so this does not wait.
        let _ = self.handle.join();
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn a_thread_that_does_not_end_is_named_and_left() {
        let threads = Threads::default();
        let (go_on, stuck) = mpsc::channel::<()>();
        let body = move || assert!(stuck.recv().is_err(), "released at the end of the test");
        threads.spawn("stuck", "a stuck thread".into(), body).unwrap();
        threads.spawn("quick", "a quick thread".into(), || {}).unwrap();
        threads.spawn("broken", "a thread that panics".into(), || panic!("on purpose")).unwrap();
        let timeout = Deadline::after(Duration::from_millis(500));
        assert_eq!(threads.join(timeout), ["a stuck thread"]);
        assert!(threads.join(Deadline::after(Duration::ZERO)).is_empty(), "named once");
        drop(go_on);
    }
}
