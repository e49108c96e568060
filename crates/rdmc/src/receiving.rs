//! The events of a group without callbacks: they fill its inbox on the thread that makes progress.
//!
//! What may run the application's code or block is a job for another thread: freeing memory, of which the application may be the
//! owner, and removing the group from switches. Memory is allocated here, since that populates no pages.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use engine::Event;
use transport::Region;

use crate::{
    dispatcher::Registration,
    inbox::Given,
    outlet::{Due, Outlet},
    panics::panic_text,
    shared::Shared,
};

/// Fills the inbox of a group, and keeps the memory of messages that it has sent.
pub(crate) struct Receiving {
    shared: Arc<Shared>,
    registration: Option<Registration>,
    /// Memory was released by jobs: the group is finished after them.
    has_jobs: bool,
}

impl Receiving {
    pub(crate) fn new(shared: Arc<Shared>, registration: Option<Registration>) -> Self {
        Self { shared, registration, has_jobs: false }
    }

    /// Updates the group's status. Returns memory for messages that have none, and memory to free.
    fn note(&self, event: Event) -> (Given, Vec<Region>) {
        let (mut given, mut free) = (Given::new(), Vec::new());
        let mut status = self.shared.status();
        status.note(&event);
        if let Some(inbox) = &mut status.inbox {
            match event {
                Event::Incoming { message, bytes, .. } => given = inbox.announced(message, bytes),
                Event::Block { message, offset, bytes, .. } => {
                    inbox.arrived(message, offset..offset + bytes);
                }
                Event::Received { message, .. } => inbox.whole(message),
                Event::Complete { message, region, .. } => {
                    free.extend(status.complete(message, region));
                }
                Event::Failed { regions, .. } => {
                    free.extend(regions.into_iter().map(|(_, region)| region));
                }
                _ => {}
            }
        }
        self.shared.changed(status);
        (given, free)
    }

    fn finish(&mut self, due: &mut Due) {
        let (shared, registration) = (Arc::clone(&self.shared), self.registration.take());
        if registration.is_none() && !self.has_jobs {
            return shared.set_finished();
        }
        due.push(Box::new(move || {
            release(&shared, registration);
            shared.set_finished();
        }));
    }
}

impl Outlet for Receiving {
    fn take(&mut self, event: Event, due: &mut Due) -> Given {
        let is_last = event.is_last();
        let (given, free) = self.note(event);
        if !free.is_empty() {
            self.has_jobs = true;
            let shared = Arc::clone(&self.shared);
            due.push(Box::new(move || release(&shared, free)));
        }
        if is_last {
            self.finish(due);
        }
        given
    }
}

/// Drops what a group has held, on a thread that may block.
fn release(shared: &Shared, held: impl Any) {
    shared.set_callback_thread();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(held))) {
        shared.abort(&format!("releasing memory panicked: {}", panic_text(&*panic)));
    }
}
