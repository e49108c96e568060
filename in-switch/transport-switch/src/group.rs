//! One group at one member: its queue pair, and the posts on its endpoints.

use std::{
    collections::{BTreeSet, VecDeque},
    net::IpAddr,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use mcrdma::Suspicion;
use packet_socket::Heard;
use transport::{Cause, Completion, EndpointId, PostError, ReadLease, Token, WriteLease};
use transport_tcp::TcpTransport;

use crate::{
    GroupEnd, QueuePair, Watch,
    completion::Ended,
    fanout::{Fanout, Send},
    link::Role,
    suspects::{ASK_INTERVAL, Suspects},
};

/// All receivers are suspected if blocks are posted and none is acknowledged by all for this long. Switches compare a receiver
/// with others; this also notices an only one, and all at once.
const SILENT_AFTER: Duration = Duration::from_millis(300);
/// As often all are suspected while no block is posted: one that has died grants no credit for the next.
const IDLE_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Group {
    end: GroupEnd,
    /// `None` once no more blocks can be transferred.
    queue_pair: Option<QueuePair>,
    /// Why the queue pair has ended, until receivers' hosts have answered: one that has failed is the cause.
    unexplained: Option<Cause>,
    side: Side,
    pub(crate) endpoints: BTreeSet<EndpointId>,
}

enum Side {
    Root(Box<Root>),
    /// Posts, whose leases the queue pair has, in order.
    Receiver {
        receives: VecDeque<Token>,
    },
}

struct Root {
    fanout: Fanout,
    watch: Watch,
    next_look: Instant,
    suspects: Suspects,
    /// Since when nothing has completed, or since all receivers were suspected for that; `None` without a queue pair.
    quiet_since: Option<Instant>,
}

impl Group {
    /// Makes the group for the first of its links that is opened; `None` for another one.
    pub(crate) fn new(end: &GroupEnd, now: Instant) -> Option<Self> {
        let parts = end.take()?;
        let side = match parts.role {
            Role::Root { links, watch } => Side::Root(Box::new(Root {
                fanout: Fanout::new(links),
                watch,
                next_look: now + ASK_INTERVAL,
                suspects: Suspects::new(parts.queue_pair.answer_within()),
                quiet_since: Some(now),
            })),
            Role::Receiver => Side::Receiver { receives: VecDeque::new() },
        };
        let (end, queue_pair) = (end.clone(), Some(parts.queue_pair));
        Some(Self { end, queue_pair, unexplained: None, side, endpoints: BTreeSet::new() })
    }

    pub(crate) fn is_of(&self, end: &GroupEnd) -> bool {
        self.end.is_same(end)
    }

    /// Adds an endpoint, with the address of its peer.
    pub(crate) fn open(&mut self, endpoint: EndpointId, peer: Option<IpAddr>) {
        self.endpoints.insert(endpoint);
        if let Side::Root(root) = &mut self.side {
            root.fanout.open(endpoint);
            root.suspects.add(endpoint, peer);
        }
    }

    /// Removes an endpoint that has ended.
    pub(crate) fn leave(&mut self, endpoint: EndpointId) {
        self.endpoints.remove(&endpoint);
        if let Side::Root(root) = &mut self.side {
            root.suspects.remove(endpoint);
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
        let Side::Root(root) = &mut self.side else {
            return Err(PostError::Unsupported("way for blocks from receivers through switches"));
        };
        let Root { fanout, quiet_since, .. } = &mut **root;
        if !fanout.is_busy()
            && let Some(quiet_since) = quiet_since
        {
            *quiet_since = Instant::now();
        }
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

    /// Sends and receives packets, checks the switches, and ends endpoints whose hosts have failed.
    pub(crate) fn progress(
        &mut self,
        now: Instant,
        tcp: &mut TcpTransport,
        completed: &mut Vec<Completion>,
    ) {
        let moved = self.transfer(now, completed);
        let looked = self.look(now, tcp).map_err(Cause::Lost);
        if let Err(cause) = moved.and(looked) {
            self.halt(cause, completed);
        }
        self.report_unexplained(completed);
    }

    /// Sends and receives packets.
    fn transfer(&mut self, now: Instant, completed: &mut Vec<Completion>) -> Result<(), Cause> {
        let Some(queue_pair) = &mut self.queue_pair else { return Ok(()) };
        let endpoint = self.endpoints.first().copied();
        let side = &mut self.side;
        let moved = queue_pair.progress(|ended| match (ended, &mut *side) {
            (Ended::Sent { id }, Side::Root(root)) => {
                root.fanout.sent(id, completed);
                root.quiet_since = Some(now);
            }
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
        moved.map_err(Cause::Lost)
    }

    /// Checks the switches and the hosts of suspected receivers, if that is due. Errors: switches report a failure.
    fn look(&mut self, now: Instant, tcp: &mut TcpTransport) -> Result<(), String> {
        let Side::Root(root) = &mut self.side else { return Ok(()) };
        let is_over = self.queue_pair.is_none() && self.unexplained.is_none();
        if is_over || now < root.next_look {
            return Ok(());
        }
        root.next_look = now + ASK_INTERVAL;
        root.suspect(now);
        for (endpoint, why) in root.suspects.judge(now, |endpoint| ask(tcp, endpoint)) {
            tracing::debug!(endpoint = endpoint.0, why, "a receiver's host has failed");
            self.unexplained = None;
            tcp.break_off(endpoint, Cause::Lost(why));
        }
        root.watch.trouble().map_or(Ok(()), Err)
    }

    /// Stops transferring blocks. A root first asks its receivers' hosts if there are no answers.
    fn halt(&mut self, cause: Cause, completed: &mut Vec<Completion>) {
        if self.queue_pair.take().is_none() {
            return;
        }
        tracing::debug!(%cause, "a group's queue pair has ended");
        if let (Side::Root(root), Cause::Lost(why)) = (&mut self.side, &cause) {
            root.suspects.suspect_all(why, Instant::now());
            root.quiet_since = None;
        }
        self.unexplained = Some(cause);
        self.report_unexplained(completed);
    }

    /// Reports why the queue pair has ended, unless hosts are being asked; the engine notifies the other members by
    /// control words.
    fn report_unexplained(&mut self, completed: &mut Vec<Completion>) {
        let is_lost = matches!(self.unexplained, Some(Cause::Lost(_)));
        if is_lost && matches!(&self.side, Side::Root(root) if !root.suspects.is_empty()) {
            return;
        }
        if let (Some(cause), Some(&endpoint)) = (self.unexplained.take(), self.endpoints.first()) {
            completed.push(Completion::Halted { endpoint, cause });
        }
    }

    /// Cancels the posts of an endpoint that ends, and with it the group. The queue pair goes first, and with it its leases.
    pub(crate) fn cancel(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        self.queue_pair = None;
        self.unexplained = None;
        match &mut self.side {
            Side::Root(root) => root.fanout.cancel(endpoint, completed),
            Side::Receiver { receives } => {
                let cancelled = |token| Completion::Cancelled { endpoint, token };
                completed.extend(receives.drain(..).map(cancelled));
            }
        }
    }

    /// Returns the time until there is something to do without a packet.
    pub(crate) fn wakes_in(&self, now: Instant) -> Option<Duration> {
        if self.queue_pair.is_none() && self.unexplained.is_none() {
            return None;
        }
        let packets = self.queue_pair.as_ref().and_then(QueuePair::wakes_in);
        let look = match &self.side {
            Side::Root(root) => Some(root.next_look.saturating_duration_since(now)),
            Side::Receiver { .. } => None,
        };
        packets.into_iter().chain(look).min()
    }

    /// Returns a descriptor that is readable when a packet has arrived.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue_pair.as_ref().and_then(QueuePair::as_fd)
    }
}

impl Root {
    /// Takes what speaks against receivers: reports of switches, and messages that do not complete.
    fn suspect(&mut self, now: Instant) {
        for Suspicion { member, reason } in self.watch.suspicions() {
            self.suspects.suspect(member, &reason, now);
        }
        let Some(since) = &mut self.quiet_since else { return };
        let quiet = now.saturating_duration_since(*since);
        let (limit, what) = match self.fanout.is_busy() {
            true => (SILENT_AFTER, "no block was acknowledged by all"),
            false => (IDLE_FOR, "no block was under way"),
        };
        if quiet >= limit {
            *since = now;
            self.suspects.suspect_all(&format!("{what} for {} ms", quiet.as_millis()), now);
        }
    }
}

/// Asks an endpoint's host. `None`: the endpoint has ended.
fn ask(tcp: &mut TcpTransport, endpoint: EndpointId) -> Option<Heard> {
    Heard::of(tcp.probe(endpoint)?).inspect_err(|error| tracing::debug!(%error, "TCP_INFO")).ok()
}
