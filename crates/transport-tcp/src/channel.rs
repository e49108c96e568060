//! One endpoint on its connection: the whole of it, or a channel of a shared one.

use std::time::Duration;

use transport::{Cause, EndpointId};

/// How an endpoint ended.
#[derive(Clone)]
pub(crate) enum End {
    Broken(Cause),
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// After `close`; the endpoint ends at this time at the latest, by the transport's clock.
    Closing(Duration),
}

pub(crate) struct Channel {
    pub(crate) endpoint: EndpointId,
    /// Blocks posted so far in each direction; block i travels on stream i mod S.
    receives_posted: u64,
    sends_posted: u64,
    pub(crate) phase: Phase,
}

impl Channel {
    pub(crate) fn new(endpoint: EndpointId) -> Self {
        Self { endpoint, receives_posted: 0, sends_posted: 0, phase: Phase::Open }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns how the endpoint ended, given how its channel or connection did.
    pub(crate) fn ended(&self, end: End) -> End {
        // Once it is closing, no end is a failure.
        if self.is_open() { end } else { End::Closed }
    }

    /// Returns the number of the next block that is received.
    pub(crate) fn next_receive(&mut self) -> u64 {
        self.receives_posted += 1;
        self.receives_posted - 1
    }

    /// Returns the number of the next block that is sent.
    pub(crate) fn next_send(&mut self) -> u64 {
        self.sends_posted += 1;
        self.sends_posted - 1
    }
}
