//! Links between contexts: who holds which end, and who knows that the other one was given back.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use rdmc::creation::effects::{Medium, Reserve, Wire};
use transport_tcp::ConnectionId;

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    /// A channel of a shared connection.
    Channel { connection: usize, side: usize, channel: u32 },
    /// A link with connections of its own.
    Own { link: u64, side: usize },
}

impl End {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Channel { connection, side, channel } => {
                Self::Channel { connection, side: 1 - side, channel }
            }
            Self::Own { link, side } => Self::Own { link, side: 1 - side },
        }
    }

    /// Returns whether it is a channel of this end of a shared connection.
    pub(super) fn is_on(self, connection: usize, side: usize) -> bool {
        matches!(self, Self::Channel { connection: its, side: end, .. } if (its, end) == (connection, side))
    }
}

/// All links.
#[derive(Default, Debug)]
pub(super) struct Links {
    /// Ends that somebody holds.
    pub(super) held: BTreeSet<End>,
    /// Ends that were given back since the last look.
    pub(super) given_back: Vec<End>,
    /// Ends whose holder can see that the other one was given back.
    pub(super) closed: BTreeSet<End>,
    /// Ends of shared connections that can be used, by connection and side.
    pub(super) usable: BTreeSet<(usize, usize)>,
}

impl Links {
    /// Returns whether the holder of an end can see that the link is no more.
    pub(super) fn is_over(&self, end: End) -> bool {
        let is_unusable = matches!(end, End::Channel { connection, side, .. } if !self.usable.contains(&(connection, side)));
        is_unusable || self.closed.contains(&end)
    }
}

/// A held end of a link, given back when it is dropped.
pub(super) struct Held {
    pub(super) end: End,
    links: Rc<RefCell<Links>>,
}

impl Held {
    /// Takes an end. Errors: it was taken before.
    pub(super) fn take(end: End, links: &Rc<RefCell<Links>>) -> Result<Self, String> {
        let is_new = links.borrow_mut().held.insert(end);
        let held = || Self { end, links: Rc::clone(links) };
        is_new.then(held).ok_or_else(|| "the channel is in use".to_owned())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut links = self.links.borrow_mut();
        links.held.remove(&self.end);
        links.given_back.push(self.end);
    }
}

/// The links of the simulator.
pub(super) enum Simulated {}

impl Medium for Simulated {
    type Channel = Held;
    type Own = Held;
}

/// Reserves channels.
pub(super) struct Channels(pub(super) Rc<RefCell<Links>>);

impl Reserve<Simulated> for Channels {
    fn reserve(&mut self, connection: ConnectionId, channel: u32) -> Result<Held, String> {
        let (connection, side) = place(connection);
        if !self.0.borrow().usable.contains(&(connection, side)) {
            return Err("the connection is no more".into());
        }
        Held::take(End::Channel { connection, side, channel }, &self.0)
    }

    fn is_open(&mut self, link: &Wire<Simulated>) -> bool {
        let (Wire::Shared(held) | Wire::Own(held)) = link;
        !self.0.borrow().closed.contains(&held.end)
    }
}

/// Returns how a context names its end of a connection.
pub(super) fn name(connection: usize, side: usize) -> ConnectionId {
    ConnectionId((2 * connection + side) as u64)
}

/// Returns the connection, and the side, of a name.
pub(super) fn place(name: ConnectionId) -> (usize, usize) {
    ((name.0 / 2) as usize, (name.0 % 2) as usize)
}
