//! The lifelines of all links: TCP endpoints, their links, and messages to be written to them.

use std::{collections::HashMap, io, time::Duration};

use transport::{Cause, Completion, EndpointId, PostError, Transport};
use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

use crate::native::lifeline::Lifeline;

/// The lifelines of a transport; each belongs to a link.
pub struct Lifelines {
    pub tcp: TcpTransport,
    links: HashMap<EndpointId, EndpointId>,
    /// Messages to be written, with their lifelines, in order.
    pub words: Vec<(EndpointId, Lifeline)>,
}

/// An event of a lifeline.
pub enum LifelineEvent {
    /// A message; `None` if it is invalid.
    Word(Option<Lifeline>),
    /// The lifeline has ended, which ends its link.
    Ended(Cause),
}

impl Lifelines {
    /// Errors: those of [`TcpTransport::new`].
    pub fn new(settings: TcpSettings) -> io::Result<Self> {
        // Words only: nothing is worth a copy.
        let settings = settings.direct_copies(false).threads(None);
        Ok(Self { tcp: TcpTransport::new(settings)?, links: HashMap::new(), words: Vec::new() })
    }

    /// Opens an endpoint for a connection. It belongs to a link from [`Lifelines::assign`] on.
    pub fn open(&mut self, lifeline: TcpLink) -> Result<EndpointId, PostError> {
        self.tcp.open(lifeline)
    }

    pub fn assign(&mut self, lifeline: EndpointId, link: EndpointId) {
        self.links.insert(lifeline, link);
    }

    /// Closes a lifeline, if it has not ended by itself.
    pub fn remove(&mut self, lifeline: EndpointId) {
        if self.links.remove(&lifeline).is_some() {
            self.tcp.close(lifeline);
        }
    }

    /// Polls all lifelines; returns their events, with the links that they belong to.
    pub fn poll(&mut self) -> Vec<(EndpointId, LifelineEvent)> {
        let mut completions = Vec::new();
        self.tcp.poll(&mut completions, Duration::ZERO);
        completions.into_iter().filter_map(|completion| self.event(completion)).collect()
    }

    fn event(&mut self, completion: Completion) -> Option<(EndpointId, LifelineEvent)> {
        match completion {
            Completion::Control { endpoint, word } => {
                let &link = self.links.get(&endpoint)?;
                Some((link, LifelineEvent::Word(Lifeline::decode(&word))))
            }
            Completion::Broken { endpoint, cause } => {
                let link = self.links.remove(&endpoint)?;
                let cause = match cause {
                    Cause::ClosedByPeer => Cause::Lost("the peer ended the connection".into()),
                    cause => cause,
                };
                Some((link, LifelineEvent::Ended(cause)))
            }
            _ => None,
        }
    }

    /// Writes the queued messages. Returns the links that have to break, with the reason, since
    /// their peers would wait for ever for a lost message.
    pub fn write_words(&mut self) -> Vec<(EndpointId, PostError)> {
        let mut lost = Vec::new();
        for (lifeline, word) in std::mem::take(&mut self.words) {
            match self.tcp.write_control(lifeline, &word.encode()) {
                // The end of a lifeline is reported separately.
                Ok(()) | Err(PostError::EndpointGone(_)) => {}
                Err(error) => lost.extend(self.links.get(&lifeline).map(|&link| (link, error))),
            }
        }
        lost
    }
}
