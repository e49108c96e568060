//! Queue pairs of RDMA devices, if the interface has one: the device sends and receives the
//! packets.

use std::{
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use if_addrs::Interface;
use roce::Mac;
use transport::{Cause, ReadLease, WriteLease};
use verbs::{BufferedQueuePair, Connection, Device, Status, VerbsError};

use crate::{
    Member, Root,
    completion::{Ended, NEVER_READY, NO_ANSWER},
};

/// As long as the daemons of `rdmc switch join` wait for an answer: with the time that an agent takes it is below the 8
/// timeouts of 134 ms after which an adapter gives up. A lost packet is sent again meanwhile (after 200 ms), and further ones
/// follow it.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_millis(300);
/// The retransmission timeout, 134 ms (`ibv_modify_qp`).
const TIMEOUT: u8 = 15;
/// The maximum, which some devices treat as infinite, so [`QueuePair::ack_timeout`] bounds the time.
const RETRIES: u8 = 7;
/// Infinite: credits ensure that receivers are ready.
const NOT_READY_RETRIES: u8 = 7;
/// The time until the root retries, 0.64 ms.
const NOT_READY_TIMER: u8 = 12;

/// A queue pair with a number and without a peer.
pub(crate) struct Unconnected {
    queue_pair: BufferedQueuePair,
    pub(crate) mac: Mac,
}

impl Unconnected {
    /// Opens a queue pair of the device that has the interface's address and is up, if there is
    /// one.
    ///
    /// Errors: those of the device or the library, as text.
    pub(crate) fn open(interface: &Interface) -> Result<Option<Self>, String> {
        let index = interface.index.unwrap_or_default();
        let device =
            Device::with_address(interface.ip(), index).map_err(|error| error.to_string())?;
        let Some(device) = device else { return Ok(None) };
        let queue_pair = BufferedQueuePair::new(device).map_err(|error| error.to_string())?;
        let mac = packet_socket::ethernet_address(&interface.name);
        let mac = mac.map(Mac).map_err(|error| error.to_string())?;
        Ok(Some(Self { queue_pair, mac }))
    }

    pub(crate) fn number(&self) -> u32 {
        self.queue_pair.number()
    }

    pub(crate) fn name(&self) -> &str {
        self.queue_pair.device().name()
    }

    pub(crate) fn mtu_bytes(&self) -> u32 {
        self.queue_pair.device().mtu_bytes()
    }

    /// Errors: as text; the virtual peer's Ethernet address cannot be resolved, for example.
    pub(crate) fn connect_root(self, root: &Root) -> Result<QueuePair, String> {
        let peer = root.virtual_address;
        self.connect(peer, root.id, root.mtu_bytes, root.psn_first, 0, root.ack_timeout)
    }

    pub(crate) fn connect_member(self, member: &Member) -> Result<QueuePair, String> {
        // A receiver sends only answers, for which it never waits.
        let (peer, ack_timeout) = (member.root, Duration::MAX);
        self.connect(peer, member.qpn, member.mtu_bytes, 0, member.psn_first, ack_timeout)
    }

    fn connect(
        mut self,
        peer: IpAddr,
        peer_qpn: u32,
        mtu_bytes: u32,
        send_psn: u32,
        receive_psn: u32,
        ack_timeout: Duration,
    ) -> Result<QueuePair, String> {
        let connection = Connection {
            peer,
            peer_qpn,
            send_psn,
            receive_psn,
            mtu_bytes,
            timeout: TIMEOUT,
            retries: RETRIES,
            not_ready_retries: NOT_READY_RETRIES,
            not_ready_timer: NOT_READY_TIMER,
        };
        self.queue_pair.connect(&connection).map_err(|error| error.to_string())?;
        Ok(QueuePair { queue_pair: self.queue_pair, sends: 0, waits_since: None, ack_timeout })
    }
}

/// A connected queue pair.
pub(crate) struct QueuePair {
    queue_pair: BufferedQueuePair,
    /// The number of sends that have not completed.
    sends: usize,
    /// When the oldest open send was posted, or the send before it completed.
    waits_since: Option<Instant>,
    /// The longest time in which no send completes.
    ack_timeout: Duration,
}

impl QueuePair {
    pub(crate) fn send(
        &mut self,
        id: u64,
        immediate: u32,
        from: &Arc<ReadLease>,
    ) -> Result<(), Cause> {
        let sent = self.queue_pair.send(id, Some(immediate), Arc::clone(from));
        sent.map_err(|error| Cause::Lost(error.to_string()))?;
        self.sends += 1;
        self.waits_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    pub(crate) fn receive(&mut self, into: WriteLease) -> Result<(), String> {
        self.queue_pair.receive(into).map_err(|error| error.to_string())
    }

    pub(crate) fn progress(&mut self, mut ended: impl FnMut(Ended)) -> Result<(), String> {
        let (mut sent, mut is_block) = (0, true);
        let moved = self.queue_pair.progress(|one| match one {
            verbs::Ended::Sent { id } => {
                sent += 1;
                ended(Ended::Sent { id });
            }
            verbs::Ended::Received { into, bytes, immediate: Some(immediate) } => {
                ended(Ended::Received { into, bytes, immediate });
            }
            verbs::Ended::Received { immediate: None, .. } => is_block = false,
        });
        moved.map_err(in_words)?;
        if !is_block {
            return Err("the root has sent something that is not a block".into());
        }
        self.sends -= sent;
        if sent > 0 {
            self.waits_since = (self.sends > 0).then(Instant::now);
        }
        match self.wakes_in() {
            Some(Duration::ZERO) => Err(NO_ANSWER.into()),
            _ => Ok(()),
        }
    }

    /// Returns the time until the timeout of acknowledgements.
    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        Some(self.ack_timeout.saturating_sub(self.waits_since?.elapsed()))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue_pair.as_fd()
    }
}

fn in_words(error: VerbsError) -> String {
    match error {
        VerbsError::Ended { status: Status::NoAnswer, .. } => NO_ANSWER.into(),
        VerbsError::Ended { status: Status::NeverReady, .. } => NEVER_READY.into(),
        other => other.to_string(),
    }
}
