//! One group at one member: its queue pair, and the posts on its endpoints.

use std::{
    collections::{BTreeSet, VecDeque},
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use transport::{Cause, Completion, EndpointId, PostError, ReadLease, Token, WriteLease};

use crate::{
    GroupEnd, QueuePair, Watch,
    completion::Ended,
    fanout::{Fanout, Send},
    link::Role,
};

/// How often switches are checked for reported failures.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Group {
    end: GroupEnd,
    /// `None` once no more blocks can be transferred.
    queue_pair: Option<QueuePair>,
    side: Side,
    pub(crate) endpoints: BTreeSet<EndpointId>,
}

enum Side {
    Root {
        fanout: Fanout,
        watch: Watch,
        next_look: Instant,
    },
    /// Posts, whose leases the queue pair has, in order.
    Receiver {
        receives: VecDeque<Token>,
    },
}

impl Group {
    /// Makes the group for the first of its links that is opened; `None` for another one.
    pub(crate) fn new(end: &GroupEnd, now: Instant) -> Option<Self> {
        let parts = end.take()?;
        let side = match parts.role {
            Role::Root { links, watch } => {
                Side::Root { fanout: Fanout::new(links), watch, next_look: now + WATCH_INTERVAL }
            }
            Role::Receiver => Side::Receiver { receives: VecDeque::new() },
        };
        let (end, queue_pair) = (end.clone(), Some(parts.queue_pair));
        Some(Self { end, queue_pair, side, endpoints: BTreeSet::new() })
    }

    pub(crate) fn is_of(&self, end: &GroupEnd) -> bool {
        self.end.is_same(end)
    }

    pub(crate) fn open(&mut self, endpoint: EndpointId) {
        self.endpoints.insert(endpoint);
        if let Side::Root { fanout, .. } = &mut self.side {
            fanout.open(endpoint);
        }
    }

    pub(crate) fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
        completed: &mut Vec<Completion>,
    ) -> Result<(), PostError> {
        let Side::Root { fanout, .. } = &mut self.side else {
            return Err(PostError::Unsupported("way for blocks from receivers through switches"));
        };
        let posted = fanout.post(endpoint, Send { from: Arc::new(from), immediate, token });
        let outcome = posted.map_err(Cause::Protocol).and_then(|id| {
            // Without a queue pair the send stays in flight until its endpoints are closed.
            if let (Some(id), Some(queue_pair)) = (id, &mut self.queue_pair)
                && let Some(Send { from, immediate, .. }) = fanout.message(id)
            {
                queue_pair.send(id, *immediate, from)?;
            }
            Ok(())
        });
        if let Err(cause) = outcome {
            self.halt(cause, completed);
        }
        Ok(())
    }

    pub(crate) fn post_receive(
        &mut self,
        into: WriteLease,
        token: Token,
        completed: &mut Vec<Completion>,
    ) -> Result<(), PostError> {
        let Side::Receiver { receives } = &mut self.side else {
            return Err(PostError::Unsupported("way for blocks to the root through switches"));
        };
        receives.push_back(token);
        let posted = self.queue_pair.as_mut().map_or(Ok(()), |pair| pair.receive(into));
        if let Err(why) = posted {
            self.halt(Cause::Lost(why), completed);
        }
        Ok(())
    }

    /// Sends and receives packets, and checks the switches.
    pub(crate) fn progress(&mut self, now: Instant, completed: &mut Vec<Completion>) {
        let Some(queue_pair) = &mut self.queue_pair else { return };
        let endpoint = self.endpoints.first().copied();
        let side = &mut self.side;
        let moved = queue_pair.progress(|ended| match (ended, &mut *side) {
            (Ended::Sent { id }, Side::Root { fanout, .. }) => fanout.sent(id, completed),
            (Ended::Received { into, bytes, immediate }, Side::Receiver { receives }) => {
                let (Some(token), Some(endpoint)) = (receives.pop_front(), endpoint) else {
                    return;
                };
                drop(into);
                let bytes = bytes as u64;
                completed.push(Completion::Received { endpoint, token, bytes, immediate });
            }
            // Impossible: the root's queue pair only sends, and the others only receive.
            _ => {}
        });
        if let Err(why) = moved.and_then(|()| self.look(now)) {
            self.halt(Cause::Lost(why), completed);
        }
    }

    /// Checks the switches if that is due. Errors: switches report a failure.
    fn look(&mut self, now: Instant) -> Result<(), String> {
        let Side::Root { watch, next_look, .. } = &mut self.side else { return Ok(()) };
        if now < *next_look {
            return Ok(());
        }
        *next_look = now + WATCH_INTERVAL;
        watch.trouble().map_or(Ok(()), Err)
    }

    /// Stops transferring blocks; the engine notifies the other members by control words.
    fn halt(&mut self, cause: Cause, completed: &mut Vec<Completion>) {
        if self.queue_pair.take().is_none() {
            return;
        }
        tracing::debug!(%cause, "a group's queue pair has ended");
        if let Some(&endpoint) = self.endpoints.first() {
            completed.push(Completion::Halted { endpoint, cause });
        }
    }

    /// Cancels the posts of an endpoint that ends, and with it the group. The queue pair goes first, and with it its leases.
    pub(crate) fn cancel(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        self.queue_pair = None;
        match &mut self.side {
            Side::Root { fanout, .. } => fanout.cancel(endpoint, completed),
            Side::Receiver { receives } => {
                let cancelled = |token| Completion::Cancelled { endpoint, token };
                completed.extend(receives.drain(..).map(cancelled));
            }
        }
    }

    /// Returns the time until there is something to do without a packet.
    pub(crate) fn wakes_in(&self, now: Instant) -> Option<Duration> {
        let packets = self.queue_pair.as_ref()?.wakes_in();
        let look = match &self.side {
            Side::Root { next_look, .. } => Some(next_look.saturating_duration_since(now)),
            Side::Receiver { .. } => None,
        };
        packets.into_iter().chain(look).min()
    }

    /// Returns a descriptor that is readable when a packet has arrived.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue_pair.as_ref().and_then(QueuePair::as_fd)
    }
}
