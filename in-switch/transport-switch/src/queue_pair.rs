//! One end of a group's queue pair: of an RDMA device, or in userspace.

use std::{net::IpAddr, os::fd::BorrowedFd, sync::Arc, time::Duration};

use roce::Mac;
use transport::{Cause, ReadLease, WriteLease};

use crate::{Member, OpenError, Root, completion::Ended, device, userspace, way};

/// A queue pair with a number and without a peer.
pub struct Unconnected {
    kind: Kind<device::Unconnected, userspace::Unconnected>,
    /// The router on the path to the first of the peers.
    next_hop: Option<IpAddr>,
}

enum Kind<D, U> {
    Device(D),
    Userspace(U),
}

impl Unconnected {
    /// Opens a queue pair of the RDMA device that has the address `local`; without one, or if it
    /// cannot be used, one in userspace on the interface that has it, which requires CAP_NET_RAW.
    /// `peers` must be reached through that interface.
    pub fn open(local: IpAddr, peers: &[IpAddr]) -> Result<Self, OpenError> {
        let (interface, next_hop) = way::to_peers(local, peers)?;
        let name = &interface.name;
        let why = match device::Unconnected::open(&interface) {
            Ok(Some(open)) => {
                tracing::info!(device = open.name(), "blocks go through a queue pair of a device");
                return Ok(Self { kind: Kind::Device(open), next_hop });
            }
            Ok(None) => "there is no device".to_owned(),
            Err(why) => why,
        };
        let open = userspace::Unconnected::open(name, local)?;
        tracing::info!(interface = name, why, "blocks go through a queue pair in userspace");
        Ok(Self { kind: Kind::Userspace(open), next_hop })
    }

    /// Returns the name of the RDMA device; `None` in userspace.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match &self.kind {
            Kind::Device(open) => Some(open.name()),
            Kind::Userspace(_) => None,
        }
    }

    /// Returns the number of the queue pair.
    #[must_use]
    pub fn number(&self) -> u32 {
        match &self.kind {
            Kind::Device(open) => open.number(),
            Kind::Userspace(open) => open.number(),
        }
    }

    /// Returns the interface's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> Mac {
        match &self.kind {
            Kind::Device(open) => open.mac,
            Kind::Userspace(open) => open.mac(),
        }
    }

    /// Returns the largest of [`crate::MTUS_BYTES`] that fits the interface's MTU.
    #[must_use]
    pub fn mtu_bytes(&self) -> u32 {
        match &self.kind {
            Kind::Device(open) => open.mtu_bytes(),
            Kind::Userspace(open) => open.mtu_bytes,
        }
    }

    /// Returns the size of the receive buffer for packets that were not read yet, including the
    /// kernel's overhead. Devices need none.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        match &self.kind {
            Kind::Device(_) => usize::MAX,
            Kind::Userspace(open) => open.buffer_bytes,
        }
    }

    /// Connects the root's end, which sends. Errors: as text.
    pub fn connect_root(self, root: &Root) -> Result<QueuePair, String> {
        Ok(QueuePair(match self.kind {
            Kind::Device(open) => Kind::Device(open.connect_root(root)?),
            Kind::Userspace(open) => Kind::Userspace(open.connect_root(root, self.next_hop)),
        }))
    }

    /// Connects a receiver's end. Errors: as text.
    pub fn connect_member(self, member: &Member) -> Result<QueuePair, String> {
        Ok(QueuePair(match self.kind {
            Kind::Device(open) => Kind::Device(open.connect_member(member)?),
            Kind::Userspace(open) => Kind::Userspace(open.connect_member(member, self.next_hop)),
        }))
    }
}

/// One end of a group's connection.
pub struct QueuePair(Kind<device::QueuePair, userspace::QueuePair>);

impl QueuePair {
    /// Sends a block from where it is, until it is reported as sent or this is dropped.
    ///
    /// Errors: the connection has ended, or the block is in a file that cannot be read.
    pub(crate) fn send(
        &mut self,
        id: u64,
        immediate: u32,
        from: &Arc<ReadLease>,
    ) -> Result<(), Cause> {
        match &mut self.0 {
            Kind::Device(pair) => pair.send(id, immediate, from),
            Kind::Userspace(pair) => pair.send(id, immediate, from),
        }
    }

    /// Posts memory for a block of at most its length. Errors: the queue pair has ended.
    pub(crate) fn receive(&mut self, into: WriteLease) -> Result<(), String> {
        match &mut self.0 {
            Kind::Device(pair) => pair.receive(into),
            Kind::Userspace(pair) => pair.receive(into),
        }
    }

    /// Sends and receives packets, without waiting. Errors: the connection has ended, or the
    /// interface failed.
    pub(crate) fn progress(&mut self, ended: impl FnMut(Ended)) -> Result<(), String> {
        match &mut self.0 {
            Kind::Device(pair) => pair.progress(ended),
            Kind::Userspace(pair) => pair.progress(ended),
        }
    }

    /// How long a host that is asked may take to answer before it counts as failed.
    pub(crate) const fn answer_within(&self) -> Duration {
        match &self.0 {
            Kind::Device(_) => device::ANSWER_WITHIN,
            Kind::Userspace(_) => userspace::ANSWER_WITHIN,
        }
    }

    /// Returns the time until there is something to do without a packet.
    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Device(pair) => pair.wakes_in(),
            Kind::Userspace(pair) => pair.wakes_in(),
        }
    }

    /// Returns a descriptor that is readable when there is something to do; `None` if only time has
    /// to pass.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Kind::Device(pair) => Some(pair.as_fd()),
            Kind::Userspace(pair) => (!pair.gathers()).then(|| pair.as_fd()),
        }
    }
}
