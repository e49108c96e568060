//! Turns a group's events into calls of its application.

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

/// Keeps a group in switches until it is dropped, which may block.
pub(crate) type Registration = Box<dyn Any + Send>;

/// Turns a group's events into calls of its application.
pub(crate) struct Dispatcher {
    /// Until the last call has returned.
    application: Option<Box<dyn Application>>,
    shared: Arc<Shared>,
    /// What the application has said when it panicked.
    panicked: Option<String>,
    /// Memory of messages whose completion it was not told of since.
    held_back: Vec<(u64, Region)>,
    /// Goes with the dispatcher, where callbacks run: taking a group out of switches may block.
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
        // After a panic the application gets nothing but `failed`, which is its own to survive.
        let call = AssertUnwindSafe(|| call(application.as_mut(), &self.shared, event));
        if let Err(panic) = catch_unwind(call) {
            let cause = format!("callback panicked: {}", panic_text(&*panic));
            self.shared.abort(&cause);
            self.panicked.get_or_insert(cause);
        }
    }

    /// No callback follows: the application goes before anybody is told that it has.
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

    /// What the application is told of an event: after a panic nothing but that its group has failed,
    /// by which it gets all its memory back.
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
            // All members have everything, but this one's application was not told.
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
                // A group that has failed meanwhile needs no second failure.
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
