//! The endpoints of a link, and how posts on them address the peer.

use std::sync::Arc;

use crate::native::sys::{self, Object, Way};

/// Matches any peer that has the endpoint's address and the link's number.
pub const ANYBODY: u64 = u64::MAX;

/// One libfabric endpoint.
struct Path {
    endpoint: Arc<Object>,
    /// At a datagram endpoint, the peer's index in its address vector.
    peer: Option<u64>,
    is_connected: bool,
}

/// The control path first, then the rails; `None` until connected or accepted.
pub struct Paths {
    paths: Vec<Option<Path>>,
    /// The link's number at this end and at the peer.
    ours: u32,
    theirs: u32,
}

/// Returns the device of a path: the control path shares the first rail's.
pub fn device_of(path: usize) -> usize {
    path.saturating_sub(1)
}

impl Paths {
    pub fn new(rails: usize, ours: u32, theirs: u32) -> Self {
        Self { paths: (0..=rails).map(|_| None).collect(), ours, theirs }
    }

    /// Returns the number by which the peer identifies its end of the link.
    pub fn their_number(&self) -> u32 {
        self.theirs
    }

    pub fn count(&self) -> usize {
        self.paths.len()
    }

    pub fn rails(&self) -> usize {
        self.paths.len() - 1
    }

    /// Adds an endpoint. A datagram endpoint has a peer, and is connected from the start.
    pub fn adopt(&mut self, path: usize, endpoint: Arc<Object>, peer: Option<u64>) {
        self.paths[path] = Some(Path { endpoint, peer, is_connected: peer.is_some() });
    }

    /// Returns whether there is such a path and its endpoint was not made yet.
    pub fn is_to_be_made(&self, path: usize) -> bool {
        matches!(self.paths.get(path), Some(None))
    }

    pub fn are_made(&self) -> bool {
        self.paths.iter().all(Option::is_some)
    }

    /// Records that an endpoint is connected.
    pub fn connected(&mut self, endpoint: usize) {
        let mut paths = self.paths.iter_mut().flatten();
        if let Some(path) = paths.find(|path| path.endpoint.address() == endpoint) {
            path.is_connected = true;
        }
    }

    pub fn are_connected(&self) -> bool {
        self.paths.iter().all(|path| path.as_ref().is_some_and(|path| path.is_connected))
    }

    /// Returns how a post with this tag addresses its peer.
    pub fn way(&self, path: usize, tag: u64, receiving: bool) -> Way {
        match self.paths[path].as_ref().and_then(|path| path.peer) {
            None => Way::Connected,
            Some(_) if receiving => {
                Way::Tagged { peer: ANYBODY, tag: u64::from(self.ours) << 8 | tag }
            }
            Some(peer) => Way::Tagged { peer, tag: u64::from(self.theirs) << 8 | tag },
        }
    }

    pub fn endpoint(&self, path: usize) -> Option<Arc<Object>> {
        self.paths[path].as_ref().map(|path| Arc::clone(&path.endpoint))
    }

    /// Returns the first rail and its peer.
    pub fn first_rail(&self) -> Option<(Arc<Object>, u64)> {
        let path = self.paths[1].as_ref()?;
        Some((Arc::clone(&path.endpoint), path.peer.unwrap_or(ANYBODY)))
    }

    /// Returns the endpoints' addresses, by which events identify them.
    pub fn addresses(&self) -> impl Iterator<Item = usize> + '_ {
        self.paths.iter().flatten().map(|path| path.endpoint.address())
    }

    /// Closes all endpoints; with `shuts_down`, connected ones are shut down first.
    pub fn close(&mut self, shuts_down: bool) {
        for path in self.paths.iter().flatten().filter(|path| path.peer.is_none() && shuts_down) {
            sys::shut_down(&path.endpoint);
        }
        self.paths.clear();
    }
}
