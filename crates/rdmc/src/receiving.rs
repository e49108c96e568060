//! The callbacks of a group whose application has none: they fill its inbox.

use std::sync::Arc;

use transport::Region;

use crate::{Application, Incoming, inbox::Given, shared::Shared};

/// Fills the inbox of a group, and keeps the memory of messages that it has sent.
pub(crate) struct Receiving(pub(crate) Arc<Shared>);

impl Application for Receiving {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        let mut own = None;
        self.0.with_inbox(|inbox| {
            let (this, others): (Given, Given) = inbox
                .announced(message, bytes)
                .into_iter()
                .partition(|&(number, _)| number == message);
            own = this.into_iter().next();
            others
        });
        own.map_or(Incoming::Later, |(_, region)| Incoming::Into(region))
    }

    fn block(&mut self, message: u64, offset: u64, bytes: u64) {
        self.0.with_inbox(|inbox| {
            inbox.arrived(message, offset..offset + bytes);
            Given::new()
        });
    }

    fn received(&mut self, message: u64) {
        self.0.with_inbox(|inbox| {
            inbox.whole(message);
            Given::new()
        });
    }

    fn complete(&mut self, message: u64, region: Region) {
        let mut status = self.0.status();
        if let Some(place) = status.sent_memory.get_mut(&message) {
            *place = Some(region);
        } else if let Some(inbox) = &mut status.inbox {
            inbox.complete(message, region);
        }
        self.0.changed(status);
    }
}
