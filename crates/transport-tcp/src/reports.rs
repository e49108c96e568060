//! What connections report to their owner: completions, what happened on shared connections, and streams that are used no
//! more.

use rustc_hash::FxHashMap;
use transport::{Cause, Completion, EndpointId};

use crate::{channel::End, link::ConnectionId, shared::SharedEvent};

/// How much may come for a channel before it is opened, in words.
const HELD_WORDS_MAX: usize = 1024;

/// What was not taken yet.
pub(crate) struct Reports<S> {
    /// Also of channels that are not open.
    pub(crate) completed: Vec<Completion>,
    /// Events of shared connections.
    pub(crate) events: Vec<SharedEvent>,
    /// Endpoints whose peer has closed all streams here, and perhaps not those elsewhere.
    pub(crate) closed_by_peer: Vec<EndpointId>,
    /// What has come for channels that are reserved and not open.
    held: FxHashMap<EndpointId, Held>,
    /// Streams of connections that have ended.
    pub(crate) closed: Vec<S>,
}

/// What a part has to report.
#[derive(Default, Debug)]
pub struct Report {
    /// What has completed there.
    pub completions: Vec<Completion>,
    /// What has happened on the shared connections there.
    pub events: Vec<SharedEvent>,
    /// Endpoints whose peer has closed all of their streams there.
    pub closed_by_peer: Vec<EndpointId>,
}

enum Held {
    /// Until the channel is opened.
    Waiting(Vec<Completion>),
    /// The channel was given back: dropped until its end.
    Released,
}

impl<S> Reports<S> {
    pub(crate) fn new() -> Self {
        Self {
            completed: Vec::new(),
            events: Vec::new(),
            closed_by_peer: Vec::new(),
            held: FxHashMap::default(),
            closed: Vec::new(),
        }
    }

    /// Returns whether there is something to report.
    pub(crate) fn has_news(&mut self) -> bool {
        self.hold_back();
        !self.completed.is_empty() || !self.events.is_empty() || !self.closed_by_peer.is_empty()
    }

    /// Appends what has completed to `completions`.
    pub(crate) fn hand_out(&mut self, completions: &mut Vec<Completion>) {
        self.hold_back();
        completions.append(&mut self.completed);
    }

    /// Takes all of it.
    pub(crate) fn take(&mut self) -> Report {
        self.hold_back();
        Report {
            completions: std::mem::take(&mut self.completed),
            events: std::mem::take(&mut self.events),
            closed_by_peer: std::mem::take(&mut self.closed_by_peer),
        }
    }

    pub(crate) fn add_messages(&mut self, connection: ConnectionId, messages: Vec<Vec<u8>>) {
        let events = messages.into_iter();
        self.events.extend(events.map(|message| SharedEvent::Message { connection, message }));
    }

    /// Reports the end of a shared connection.
    pub(crate) fn end_shared(&mut self, connection: ConnectionId, end: &End) {
        let cause = match end {
            End::Broken(cause) => Some(cause.clone()),
            End::Closed => None,
        };
        self.events.push(SharedEvent::Ended { connection, cause });
    }

    /// Reports the end of an endpoint, whose posts were cancelled.
    pub(crate) fn end(&mut self, endpoint: EndpointId, end: End) {
        self.completed.push(match end {
            End::Closed => {
                tracing::debug!(endpoint = endpoint.0, "closed");
                Completion::Closed { endpoint }
            }
            End::Broken(cause) => {
                tracing::debug!(endpoint = endpoint.0, %cause, "broken");
                Completion::Broken { endpoint, cause }
            }
        });
    }

    /// Holds back what comes for an endpoint whose channel is reserved and not open.
    pub(crate) fn reserve(&mut self, endpoint: EndpointId) {
        self.held.insert(endpoint, Held::Waiting(Vec::new()));
    }

    /// Reports what was held back for an endpoint. Returns false if its channel is not reserved.
    pub(crate) fn open(&mut self, endpoint: EndpointId) -> bool {
        self.hold_back();
        let Some(Held::Waiting(held)) = self.held.get_mut(&endpoint) else { return false };
        self.completed.append(held);
        self.held.remove(&endpoint);
        true
    }

    /// Drops what comes for an endpoint whose channel is given back, up to its end.
    pub(crate) fn release(&mut self, endpoint: EndpointId) {
        self.held.insert(endpoint, Held::Released);
    }

    /// Returns whether all that has come for a reserved endpoint is its orderly end.
    pub(crate) fn was_given_back(&mut self, endpoint: EndpointId) -> bool {
        self.hold_back();
        let Some(Held::Waiting(held)) = self.held.get(&endpoint) else { return true };
        matches!(held[..], [Completion::Broken { cause: Cause::ClosedByPeer, .. }])
    }

    /// Forgets an endpoint that has ended while it was reserved.
    pub(crate) fn forget(&mut self, endpoint: EndpointId) {
        self.hold_back();
        self.held.remove(&endpoint);
    }

    /// Returns reserved endpoints for which too many words have come.
    pub(crate) fn crowded(&mut self) -> Vec<EndpointId> {
        self.hold_back();
        let is_crowded =
            |held: &Held| matches!(held, Held::Waiting(held) if held.len() > HELD_WORDS_MAX);
        self.held.iter().filter(|(_, held)| is_crowded(held)).map(|(&id, _)| id).collect()
    }

    /// Takes what is for channels that are not open.
    fn hold_back(&mut self) {
        if self.held.is_empty() {
            return;
        }
        self.completed.retain(|completion| {
            let endpoint = completion.endpoint();
            match self.held.get_mut(&endpoint) {
                None => return true,
                Some(Held::Waiting(held)) => held.push(completion.clone()),
                Some(Held::Released) if is_end(completion) => drop(self.held.remove(&endpoint)),
                Some(Held::Released) => {}
            }
            false
        });
    }
}

fn is_end(completion: &Completion) -> bool {
    matches!(completion, Completion::Broken { .. } | Completion::Closed { .. })
}
