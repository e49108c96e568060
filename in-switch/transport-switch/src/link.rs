//! What endpoints are made of.

use std::sync::{Arc, Mutex, PoisonError};

use transport_tcp::TcpLink;

use crate::{QueuePair, Watch};

/// A connected link to one peer: TCP, and the group that it belongs to, if switches copy its blocks.
pub struct SwitchLink {
    pub(crate) lifeline: TcpLink,
    pub(crate) end: Option<GroupEnd>,
}

impl SwitchLink {
    /// A link over which everything goes by TCP.
    #[must_use]
    pub const fn plain(lifeline: TcpLink) -> Self {
        Self { lifeline, end: None }
    }

    /// A link to a member of a group: at the root to each receiver, at a receiver to the root.
    #[must_use]
    pub const fn of_group(lifeline: TcpLink, end: GroupEnd) -> Self {
        Self { lifeline, end: Some(end) }
    }
}

/// One member's end of a group: a clone for each of its links.
#[derive(Clone)]
pub struct GroupEnd(Arc<Shared>);

struct Shared {
    parts: Mutex<Option<Parts>>,
}

/// What the first link of a group that is opened takes with it.
pub(crate) struct Parts {
    pub(crate) queue_pair: QueuePair,
    pub(crate) role: Role,
}

/// Which end.
pub(crate) enum Role {
    /// Of so many links.
    Root {
        links: usize,
        watch: Watch,
    },
    Receiver,
}

impl GroupEnd {
    /// The root's, of a group with so many links, which is in the switches.
    #[must_use]
    pub fn root(queue_pair: QueuePair, links: usize, watch: Watch) -> Self {
        Self::new(queue_pair, Role::Root { links, watch })
    }

    /// A receiver's.
    #[must_use]
    pub fn receiver(queue_pair: QueuePair) -> Self {
        Self::new(queue_pair, Role::Receiver)
    }

    fn new(queue_pair: QueuePair, role: Role) -> Self {
        let parts = Mutex::new(Some(Parts { queue_pair, role }));
        Self(Arc::new(Shared { parts }))
    }

    /// The first time.
    pub(crate) fn take(&self) -> Option<Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
