//! What a member waits for, for stalls and messages of errors.

use relay::{Obstacle, Relay, Wait};

use crate::{order::Order, outbox::Outbox, settings::GroupSettings, staging::Staging};

/// A view of one group at one member.
#[derive(Clone, Copy)]
pub(crate) struct Waits<'a> {
    pub(crate) settings: &'a GroupSettings,
    pub(crate) relay: &'a Relay,
    pub(crate) order: &'a Order,
}

impl<'a> Waits<'a> {
    /// Returns what this member waits for now. Where switches copy, only the receiver that has not
    /// posted a receive for the next block is known, not the one that has not got the last. While
    /// blocks are being read from or written to files here, no neighbour is waited for.
    pub(crate) fn obstacle(&self, outbox: &Outbox, staging: &Staging) -> Option<Obstacle> {
        let obstacle = self.relay.obstacle();
        let is_local = match obstacle {
            Some(Obstacle::SendBlocked(_)) => outbox.is_waiting(),
            Some(Obstacle::ReceiveBlocked(_)) => staging.jobs.moves_blocks(),
            _ => false,
        };
        if is_local {
            return Some(Obstacle::Local);
        }
        if !self.settings.is_in_switch() || !matches!(obstacle, Some(Obstacle::SendBlocked(_))) {
            return obstacle;
        }
        self.relay.waits().find_map(|wait| match wait {
            Wait::Credit(part) => Some(Obstacle::SendBlocked(part.transfer.target)),
            _ => None,
        })
    }

    /// Returns the neighbours that this member waits for to continue with a message, nearest first.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = u32> + 'a {
        let is_relaying = self.relay.has_messages();
        let relayed = self.relay.waits().filter_map(|wait| match wait {
            Wait::Block { source, .. } => Some(source),
            Wait::Credit(part) | Wait::Send(part) => Some(part.transfer.target),
            Wait::Memory { .. } => None,
        });
        // A message before those that are known here has not arrived. Messages of one kind arrive in
        // order, so it is of the other kind: written by the root, or announced.
        let schedule = &self.settings.schedule;
        let missing = self.order.first_early().and_then(|early| match self.relay.knows(early) {
            true => Some(schedule.root()),
            false => schedule.announcer(self.settings.rank),
        });
        relayed.filter(move |_| is_relaying).chain(missing)
    }

    /// Returns whether the application has not provided memory for this message, which is next.
    pub(crate) fn owes_memory(&self, next: u64) -> bool {
        self.relay.awaits_memory(next).is_ok() && self.order.is_reported(next)
    }

    /// Describes what this member is doing, for error messages. It comes first in them, since other
    /// members receive the text cut. `is_closing`: the number of messages is final.
    pub(crate) fn occupation(&self, is_closing: bool) -> String {
        let message = self.order.completed();
        let step = self.relay.waits().find_map(|wait| wait.part()).map(|part| part.transfer.step);
        match (self.relay.has_messages(), step) {
            (true, Some(step)) => format!("relaying message {message} at step {step}"),
            (true, None) => format!("relaying message {message}"),
            (false, _) if is_closing => "closing".to_owned(),
            (false, _) => format!("waiting for message {message}"),
        }
    }
}
