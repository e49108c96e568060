//! What the suite is given to test a transport with.

use std::time::Duration;

use transport::{EndpointId, Transport};

/// What a transport gives the suite to be tested with.
pub trait Harness {
    /// The transport under test.
    type Transport: Transport;

    /// A fresh network of `members` transports, every pair connected once. `endpoints[i][j]` is
    /// member i's endpoint to member j (`None` for i = j).
    fn network(&mut self, members: usize) -> Network<Self::Transport>;

    /// Kills member `index` the way a crashed process dies: connections are lost without a close.
    /// Leaves `None` in its place. By default, drops the transport.
    fn kill(&mut self, network: &mut Network<Self::Transport>, index: usize) {
        network.members[index] = None;
    }

    /// Makes member `index` stop answering while its connections stay, and returns within which time
    /// its peers must report [`transport::Cause::Silent`]. The suite does not poll it from then on;
    /// where that is enough, there is nothing left to do here but to return the time.
    ///
    /// `None` (the default) skips the clause, for networks that cannot do this to a member.
    fn silence(
        &mut self,
        _network: &mut Network<Self::Transport>,
        _index: usize,
    ) -> Option<Duration> {
        None
    }

    /// Whether [`Transport::now`] passes by itself. Where it does not (virtual time), a wait takes
    /// no time, and no other thread can end it: clauses about that are skipped.
    fn has_real_time(&self) -> bool {
        true
    }

    /// What to print below the trace of a clause that fails: a seed, the network's own trace.
    fn describe(&self) -> String {
        String::new()
    }

    /// Why this clause cannot be kept here, for no fault of the transport's: it is skipped, loudly.
    fn excuse(&self, clause: &str) -> Option<&'static str> {
        let _ = clause;
        None
    }
}

/// Connected members, made by [`Harness::network`].
pub struct Network<T> {
    /// Each member's transport; `None` once killed.
    pub members: Vec<Option<T>>,
    /// `endpoints[i][j]`: member i's endpoint to member j.
    pub endpoints: Vec<Vec<Option<EndpointId>>>,
}

impl<T: Transport> Network<T> {
    /// Connects each pair of members once, by the two links that `links` makes for them.
    pub fn connected(
        mut transports: Vec<T>,
        mut links: impl FnMut((usize, &T), (usize, &T)) -> (T::Link, T::Link),
    ) -> Self {
        let members = transports.len();
        let mut endpoints = vec![vec![None; members]; members];
        for left in 0..members {
            for right in left + 1..members {
                let (one, other) = links((left, &transports[left]), (right, &transports[right]));
                endpoints[left][right] = Some(transports[left].open(one).expect("a link"));
                endpoints[right][left] = Some(transports[right].open(other).expect("a link"));
            }
        }
        Self { members: transports.into_iter().map(Some).collect(), endpoints }
    }
}
