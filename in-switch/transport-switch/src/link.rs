//! Links that endpoints are made of.

use std::sync::{Arc, Mutex, PoisonError};

use transport_tcp::TcpLink;

use crate::{QueuePair, Watch};

/// A connected link to one peer: TCP, and the group that it belongs to, if switches copy its blocks.
pub struct SwitchLink {
    pub(crate) lifeline: TcpLink,
    pub(crate) end: Option<GroupEnd>,
}

impl SwitchLink {
    /// Makes a link that uses TCP for everything.
    #[must_use]
    pub const fn plain(lifeline: TcpLink) -> Self {
        Self { lifeline, end: None }
    }

    /// Makes a link to a member of a group: at the root to each receiver, at a receiver to the
    /// root.
    #[must_use]
    pub const fn of_group(lifeline: TcpLink, end: GroupEnd) -> Self {
        Self { lifeline, end: Some(end) }
    }
}

/// One member's end of a group; each of its links has a clone.
#[derive(Clone)]
pub struct GroupEnd(Arc<Shared>);

struct Shared {
    parts: Mutex<Option<Parts>>,
}

/// What the first opened link of a group takes.
pub(crate) struct Parts {
    pub(crate) queue_pair: QueuePair,
    pub(crate) role: Role,
}

/// The role of an end.
pub(crate) enum Role {
    /// The root, with this many links.
    Root {
        links: usize,
        watch: Watch,
    },
    Receiver,
}

impl GroupEnd {
    /// Makes the root's end of a group with this many links, which was added to the switches.
    #[must_use]
    pub fn root(queue_pair: QueuePair, links: usize, watch: Watch) -> Self {
        Self::new(queue_pair, Role::Root { links, watch })
    }

    /// Makes a receiver's end.
    #[must_use]
    pub fn receiver(queue_pair: QueuePair) -> Self {
        Self::new(queue_pair, Role::Receiver)
    }

    fn new(queue_pair: QueuePair, role: Role) -> Self {
        let parts = Mutex::new(Some(Parts { queue_pair, role }));
        Self(Arc::new(Shared { parts }))
    }

    /// Takes the parts; `None` if they were taken already.
    pub(crate) fn take(&self) -> Option<Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
