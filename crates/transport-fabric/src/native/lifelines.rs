//! The lifelines of all links: TCP endpoints, whose they are, and what is to be said on them.

use std::{collections::HashMap, io, time::Duration};

use transport::{Cause, Completion, EndpointId, PostError, Transport};
use transport_tcp::{TcpConfig, TcpLink, TcpTransport};

use crate::native::lifeline::Lifeline;

/// TCP endpoints of which each belongs to a link.
pub struct Lifelines {
    pub tcp: TcpTransport,
    links: HashMap<EndpointId, EndpointId>,
    /// Words to be said, by their lifelines, in order.
    pub words: Vec<(EndpointId, Lifeline)>,
}

/// What has come over a lifeline.
pub enum News {
    /// A word; `None` if it makes no sense.
    Word(Option<Lifeline>),
    /// The lifeline has ended, and so has its link.
    Ended(Cause),
}

impl Lifelines {
    /// Errors: as of [`TcpTransport::new`].
    pub fn new(config: TcpConfig) -> io::Result<Self> {
        Ok(Self { tcp: TcpTransport::new(config)?, links: HashMap::new(), words: Vec::new() })
    }

    /// Takes a connection into use. It belongs to a link from [`Lifelines::assign`] on.
    pub fn open(&mut self, lifeline: TcpLink) -> Result<EndpointId, PostError> {
        self.tcp.open(lifeline)
    }

    pub fn assign(&mut self, lifeline: EndpointId, link: EndpointId) {
        self.links.insert(lifeline, link);
    }

    /// Closes it, if it has not ended by itself.
    pub fn remove(&mut self, lifeline: EndpointId) {
        if self.links.remove(&lifeline).is_some() {
            self.tcp.close(lifeline);
        }
    }

    /// What has come, with the link that it is for.
    pub fn poll(&mut self) -> Vec<(EndpointId, News)> {
        let mut completions = Vec::new();
        self.tcp.poll(&mut completions, Duration::ZERO);
        completions.into_iter().filter_map(|completion| self.news(completion)).collect()
    }

    fn news(&mut self, completion: Completion) -> Option<(EndpointId, News)> {
        match completion {
            Completion::Control { endpoint, word } => {
                let &link = self.links.get(&endpoint)?;
                Some((link, News::Word(Lifeline::decode(&word))))
            }
            Completion::Broken { endpoint, cause } => {
                let link = self.links.remove(&endpoint)?;
                let cause = match cause {
                    Cause::ClosedByPeer => Cause::Lost("the peer gave the connection up".into()),
                    cause => cause,
                };
                Some((link, News::Ended(cause)))
            }
            _ => None,
        }
    }

    /// Says what is to be said. Answers the links that have to break, since a word that is lost
    /// would leave their peers waiting, and why.
    pub fn speak(&mut self) -> Vec<(EndpointId, PostError)> {
        let mut lost = Vec::new();
        for (lifeline, word) in std::mem::take(&mut self.words) {
            match self.tcp.write_control(lifeline, &word.encode()) {
                // A lifeline that is gone tells of itself.
                Ok(()) | Err(PostError::EndpointGone(_)) => {}
                Err(error) => lost.extend(self.links.get(&lifeline).map(|&link| (link, error))),
            }
        }
        lost
    }
}
