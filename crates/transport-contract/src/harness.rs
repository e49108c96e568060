//! The interface between the suite and the transport under test.

use std::time::Duration;

use transport::{EndpointId, Transport};

/// Makes networks of the transport under test.
pub trait Harness {
    /// The transport under test.
    type Transport: Transport;

    /// Makes a new network of `members` transports, every pair connected once. `endpoints[i][j]` is
    /// member i's endpoint to member j (`None` for i = j).
    fn network(&mut self, members: usize) -> Network<Self::Transport>;

    /// Ends member `index` as a crash of its process would: connections are lost without a close.
    /// Leaves `None` in its place. By default, drops the transport.
    fn kill(&mut self, network: &mut Network<Self::Transport>, index: usize) {
        network.members[index] = None;
    }

    /// Makes member `index` stop answering while its connections stay open, and returns the time
    /// within which its peers must report [`transport::Cause::Silent`]. The suite does not poll it
    /// from then on; if that is enough, an implementation only has to return the time.
    ///
    /// `None` (the default) skips the clause, for networks where this is not possible.
    fn silence(
        &mut self,
        _network: &mut Network<Self::Transport>,
        _index: usize,
    ) -> Option<Duration> {
        None
    }

    /// Returns whether [`Transport::now`] advances by itself. If it does not (virtual time), a wait
    /// takes no time, and no other thread can end it: clauses about that are skipped.
    fn has_real_time(&self) -> bool {
        true
    }

    /// Returns whether a flushed write is reported to peers even if its sender no longer polls.
    fn flushes_writes(&self) -> bool {
        true
    }

    /// Returns what to print below the trace of a failed clause, such as a seed and the network's
    /// own trace.
    fn describe(&self) -> String {
        String::new()
    }

    /// Returns the reason if this clause cannot be tested in this environment: it is skipped, with
    /// a message.
    fn skip_reason(&self, clause: &str) -> Option<&'static str> {
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
