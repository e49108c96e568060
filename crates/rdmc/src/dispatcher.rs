//! Converts a group's events into calls of its application.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use engine::Event;
use transport::Region;

use crate::{
    Application, Error, Failure, FailureKind, Incoming, outlet::Deliver, shared::Shared,
    worker::panic_text,
};

/// Keeps a group registered in switches until it is dropped. Dropping it may block.
pub(crate) type Registration = Box<dyn Any + Send>;

/// Converts a group's events into calls of its application.
pub(crate) struct Dispatcher {
    /// `None` once the last call has returned.
    application: Option<Box<dyn Application>>,
    shared: Arc<Shared>,
    /// The text of the application's panic.
    panicked: Option<String>,
    /// Memory of messages that completed after the panic; returned by `failed`.
    held_back: Vec<(u64, Region)>,
    /// Dropped on the thread that runs callbacks, since removing a group from switches may block.
    registration: Option<Registration>,
}

impl Dispatcher {
    pub(crate) fn new(
        application: Box<dyn Application>,
        shared: Arc<Shared>,
        registration: Option<Registration>,
    ) -> Self {
        let (application, held_back) = (Some(application), Vec::new());
        Self { application, shared, panicked: None, held_back, registration }
    }

    pub(crate) fn deliver(&mut self, event: Event) {
        let Some(event) = self.due(event) else { return };
        self.shared.note(&event);
        let Some(application) = self.application.as_mut().filter(|_| !self.shared.is_abandoned())
        else {
            return;
        };
        // After a panic only `failed` is called, and the application must be able to handle that
        // call.
        let call = AssertUnwindSafe(|| call(application.as_mut(), &self.shared, event));
        if let Err(panic) = catch_unwind(call) {
            let cause = format!("callback panicked: {}", panic_text(&*panic));
            self.shared.abort(&cause);
            self.panicked.get_or_insert(cause);
        }
    }

    /// Drops the application after the last callback, before the group is reported as finished.
    pub(crate) fn finish(&mut self) {
        let gone = (self.application.take(), self.registration.take());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(gone))) {
            tracing::warn!(
                panic = panic_text(&*panic),
                "an application panicked as it was dropped"
            );
        }
        self.shared.set_finished();
    }

    /// Returns the event to deliver. After a panic that is only the group's failure, which returns
    /// all memory to the application.
    fn due(&mut self, event: Event) -> Option<Event> {
        let Some(cause) = &self.panicked else { return Some(event) };
        match event {
            Event::Complete { message, region, .. } => {
                self.held_back.push((message, region));
                None
            }
            Event::Failed { failure, regions } => {
                let mut all = std::mem::take(&mut self.held_back);
                all.extend(regions);
                Some(Event::Failed { failure, regions: all })
            }
            // All members have all messages, but this member's application has missed callbacks.
            Event::Closed { group } => {
                let (rank, detail) = (self.shared.settings.rank, cause.clone());
                let (member, kind) = (Some(rank), FailureKind::Application);
                let failure = Failure { group, member, reporter: rank, kind, detail, delivered: 0 };
                Some(Event::Failed { failure, regions: std::mem::take(&mut self.held_back) })
            }
            _ => None,
        }
    }
}

impl Deliver for Dispatcher {
    fn deliver_here(&mut self, event: Event) {
        let last = event.is_last();
        self.deliver(event);
        if last {
            self.finish();
        }
    }
}

fn call(application: &mut dyn Application, shared: &Shared, event: Event) {
    match event {
        Event::Incoming { message, bytes, .. } => {
            let outcome = match application.incoming(message, bytes) {
                Incoming::Into(region) => shared.accept(message, region),
                Incoming::Later => Ok(()),
                Incoming::Refuse(reason) => {
                    shared.abort(&format!("message {message} refused: {reason}"));
                    Ok(())
                }
            };
            match outcome {
                // A group that has failed or closed in the meantime does not fail again.
                Ok(()) | Err(Error::Failed(_) | Error::Closed(_) | Error::ContextClosed) => {}
                Err(error) => shared.abort(&error.to_string()),
            }
        }
        Event::Block { message, offset, bytes, .. } => application.block(message, offset, bytes),
        Event::Received { message, .. } => application.received(message),
        Event::Complete { message, region, .. } => application.complete(message, region),
        Event::Failed { failure, regions } => application.failed(&failure, regions),
        Event::Closed { .. } => application.closed(),
        _ => {}
    }
}
