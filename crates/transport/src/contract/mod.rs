//! The one contract test suite that every transport passes.

use crate::{EndpointId, Transport};

/// What a transport gives the suite to be tested with.
pub trait Harness {
    /// The transport under test.
    type Transport: Transport;

    /// A fresh network of `members` transports, every pair connected once. `endpoints[i][j]` is
    /// member i's endpoint to member j (`None` for i = j).
    fn network(&mut self, members: usize) -> Network<Self::Transport>;

    /// Kills member `index` the way a crashed process dies: connections are lost without a word.
    fn kill(&mut self, network: &mut Network<Self::Transport>, index: usize);
}

/// Connected members, made by [`Harness::network`].
pub struct Network<T> {
    /// Each member's transport; `None` once killed.
    pub members: Vec<Option<T>>,
    /// `endpoints[i][j]`: member i's endpoint to member j.
    pub endpoints: Vec<Vec<Option<EndpointId>>>,
}
