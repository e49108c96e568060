//! A network in which everything completes at once and no byte is copied, so that the cost of the
//! code above it remains.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use rdmc::Schedule;
use transport::{
    Completion, EndpointId, PostError, ReadLease, Token, Transport, Waker, WriteLease,
};

type Queue = Rc<RefCell<Vec<Completion>>>;

/// One direction of a connection: receives that wait for their send.
type Receives = Rc<RefCell<VecDeque<(Token, u64)>>>;

/// One end of a connection.
pub struct Link {
    /// Where the other end's completions go, and what it calls this connection.
    far: (Queue, EndpointId),
    posted_here: Receives,
    posted_there: Receives,
}

/// Names a [`Link`] that waits at its transport to be opened: links have to be `Send`, and these
/// never leave their thread.
pub struct LinkNumber(u64);

/// One member's transport.
pub struct Instantaneous {
    completed: Queue,
    links: HashMap<EndpointId, Link>,
}

/// A transport for each member, with a link to each neighbour.
pub fn network(schedule: &Schedule) -> Vec<(Instantaneous, Vec<(u32, LinkNumber)>)> {
    let queues: Vec<Queue> = (0..schedule.members()).map(|_| Queue::default()).collect();
    let mut members: Vec<(Instantaneous, Vec<(u32, LinkNumber)>)> = queues
        .iter()
        .map(|queue| {
            (Instantaneous { completed: Rc::clone(queue), links: HashMap::new() }, Vec::new())
        })
        .collect();
    for low in 0..schedule.members() {
        for high in schedule.neighbours(low).filter(|&high| high > low) {
            let (to_low, to_high) = (Receives::default(), Receives::default());
            let ends = [(low, high, &to_low, &to_high), (high, low, &to_high, &to_low)];
            for (own, other, here, there) in ends {
                let link = Link {
                    far: (Rc::clone(&queues[other as usize]), EndpointId(own.into())),
                    posted_here: Rc::clone(here),
                    posted_there: Rc::clone(there),
                };
                let (transport, links) = &mut members[own as usize];
                // An endpoint is called like the member that it leads to.
                transport.links.insert(EndpointId(other.into()), link);
                links.push((other, LinkNumber(other.into())));
            }
        }
    }
    members
}

impl Instantaneous {
    fn link(&self, endpoint: EndpointId) -> Result<&Link, PostError> {
        self.links.get(&endpoint).ok_or(PostError::EndpointGone(endpoint))
    }
}

impl Transport for Instantaneous {
    type Link = LinkNumber;

    /// Constant, so that nothing ever stalls.
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn block_bytes_max(&self) -> u64 {
        u64::MAX
    }

    fn open(&mut self, link: LinkNumber) -> Result<EndpointId, PostError> {
        Ok(EndpointId(link.0))
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        let link = self.link(endpoint)?;
        link.posted_here.borrow_mut().push_back((token, into.bytes() as u64));
        Ok(())
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let link = self.link(endpoint)?;
        let matching = link.posted_there.borrow_mut().pop_front();
        let (receive, room) =
            matching.ok_or_else(|| PostError::System("a send without a receive".into()))?;
        let bytes = from.bytes() as u64;
        assert!(bytes <= room, "a block is longer than the memory");
        let received =
            Completion::Received { endpoint: link.far.1, token: receive, bytes, immediate };
        link.far.0.borrow_mut().push(received);
        self.completed.borrow_mut().push(Completion::Sent { endpoint, token });
        Ok(())
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        let link = self.link(endpoint)?;
        let word = Completion::Control { endpoint: link.far.1, word: word.to_vec() };
        link.far.0.borrow_mut().push(word);
        Ok(())
    }

    fn close(&mut self, endpoint: EndpointId) {
        if self.links.remove(&endpoint).is_some() {
            self.completed.borrow_mut().push(Completion::Closed { endpoint });
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, _wait: Duration) {
        completions.append(&mut self.completed.borrow_mut());
    }

    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }
}
