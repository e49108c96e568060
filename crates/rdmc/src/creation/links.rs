//! The links that a creation has made, over the network of a context.

use super::effects::{self, Medium};
use crate::{network::ReservedLink, own_link::OwnLink};

/// Links of a [`crate::network::Network`].
pub(crate) enum Sockets {}

impl Medium for Sockets {
    type Channel = ReservedLink;
    type Own = Box<OwnLink>;
}

/// A link to a neighbour.
pub(crate) type Wire = effects::Wire<Sockets>;

/// The link to each neighbour, by rank.
pub(crate) type Links = Vec<(u32, Wire)>;
