//! The root's sends of one group: sends of the same block to all receivers are combined into one
//! message.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use transport::{Completion, EndpointId, ReadLease, Token};

/// A send that was posted on one of the group's endpoints.
pub(crate) struct Send {
    /// Shared with the queue pair that sends from it.
    pub(crate) from: Arc<ReadLease>,
    pub(crate) immediate: u32,
    pub(crate) token: Token,
}

/// Sends that wait until the same block was posted for all others, and messages in flight.
pub(crate) struct Fanout {
    /// How many endpoints the group has, once all are open.
    endpoints: usize,
    waiting: BTreeMap<EndpointId, VecDeque<Send>>,
    /// The sends that each message in flight consists of, by its number.
    under_way: BTreeMap<u64, Vec<(EndpointId, Send)>>,
    next_id: u64,
}

impl Fanout {
    /// Makes the state of a group with this many endpoints, at least one.
    pub(crate) fn new(endpoints: usize) -> Self {
        Self { endpoints, waiting: BTreeMap::new(), under_way: BTreeMap::new(), next_id: 0 }
    }

    pub(crate) fn open(&mut self, endpoint: EndpointId) {
        self.waiting.insert(endpoint, VecDeque::new());
    }

    /// Adds a send; if the block is now posted for all endpoints, returns the number of its
    /// message, which is in flight from now on, until [`Fanout::sent`].
    ///
    /// Errors: endpoints were given different blocks. Their sends count as in flight, too, until
    /// cancelled.
    pub(crate) fn post(&mut self, endpoint: EndpointId, send: Send) -> Result<Option<u64>, String> {
        self.waiting.entry(endpoint).or_default().push_back(send);
        let is_complete = self.waiting.len() == self.endpoints
            && self.waiting.values().all(|sends| !sends.is_empty());
        if !is_complete {
            return Ok(None);
        }
        let sends = self.waiting.iter_mut();
        let sends: Vec<(EndpointId, Send)> =
            sends.filter_map(|(&endpoint, sends)| Some((endpoint, sends.pop_front()?))).collect();
        let id = self.next_id;
        self.next_id += 1;
        let what = |send: &Send| (send.from.as_ptr(), send.from.bytes(), send.immediate);
        let is_same = sends.windows(2).all(|pair| what(&pair[0].1) == what(&pair[1].1));
        self.under_way.insert(id, sends);
        if is_same {
            Ok(Some(id))
        } else {
            Err("members were to be sent different blocks by one transmission".into())
        }
    }

    /// Returns one of the sends of a message in flight: all have the same block.
    pub(crate) fn message(&self, id: u64) -> Option<&Send> {
        self.under_way.get(&id)?.first().map(|(_, send)| send)
    }

    /// Whether messages are in flight, or blocks wait until they are posted for all.
    pub(crate) fn is_busy(&self) -> bool {
        !self.under_way.is_empty() || self.waiting.values().any(|sends| !sends.is_empty())
    }

    /// Completes the sends of a message that all receivers have received, and that the queue pair has dropped.
    pub(crate) fn sent(&mut self, id: u64, completed: &mut Vec<Completion>) {
        for (endpoint, Send { from, token, .. }) in self.under_way.remove(&id).into_iter().flatten()
        {
            drop(from);
            completed.push(Completion::Sent { endpoint, token });
        }
    }

    /// Cancels the sends of an endpoint that ends, waiting or in flight. The queue pair has to be gone.
    pub(crate) fn cancel(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        let mut hand_back = |send: Send| {
            let Send { from, token, .. } = send;
            drop(from);
            completed.push(Completion::Cancelled { endpoint, token });
        };
        for sends in self.under_way.values_mut() {
            while let Some(at) = sends.iter().position(|(other, _)| *other == endpoint) {
                hand_back(sends.swap_remove(at).1);
            }
        }
        self.under_way.retain(|_, sends| !sends.is_empty());
        self.waiting.remove(&endpoint).into_iter().flatten().for_each(hand_back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::Region;

    const ENDPOINTS: [EndpointId; 3] = [EndpointId(4), EndpointId(5), EndpointId(9)];

    struct Posts {
        region: Region,
        fanout: Fanout,
        next: u64,
    }

    impl Posts {
        fn new() -> Self {
            let mut fanout = Fanout::new(ENDPOINTS.len());
            ENDPOINTS.into_iter().for_each(|endpoint| fanout.open(endpoint));
            Self { region: Region::zeroed(100), fanout, next: 0 }
        }

        fn post(&mut self, endpoint: usize, block: u32) -> Result<Option<u64>, String> {
            let at = block as usize * 10;
            let from = Arc::new(self.region.read(at..at + 10).unwrap());
            let token = Token(self.next);
            self.next += 1;
            self.fanout.post(ENDPOINTS[endpoint], Send { from, immediate: block, token })
        }
    }

    #[test]
    fn a_message_is_sent_once_all_endpoints_have_posted() {
        let mut posts = Posts::new();
        // One endpoint is ahead of the others.
        for (endpoint, block) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert!(posts.post(endpoint, block).unwrap().is_none());
        }
        let mut completed = Vec::new();
        for block in 0..2 {
            let id = posts.post(2, block).unwrap().unwrap();
            let message = posts.fanout.message(id).unwrap();
            assert_eq!((message.immediate, message.from.bytes()), (block, 10));
        }
        posts.fanout.sent(0, &mut completed);
        let sent = |(endpoint, token): (usize, u64)| Completion::Sent {
            endpoint: ENDPOINTS[endpoint],
            token: Token(token),
        };
        assert_eq!(completed, [(0, 0), (1, 2), (2, 4)].map(sent));
        // The first block's memory is free, the second's is not.
        assert!(posts.region.write(0..10).is_ok());
        assert!(posts.region.write(10..20).is_err());
    }

    #[test]
    fn every_post_is_completed_once() {
        let mut posts = Posts::new();
        for (endpoint, block) in [(0, 0), (1, 0), (0, 1)] {
            assert!(posts.post(endpoint, block).unwrap().is_none());
        }
        assert!(posts.post(2, 0).unwrap().is_some());
        let mut completed = Vec::new();
        ENDPOINTS.into_iter().for_each(|endpoint| posts.fanout.cancel(endpoint, &mut completed));
        posts.fanout.sent(0, &mut completed);
        let mut tokens: Vec<u64> = completed
            .iter()
            .map(|completion| match completion {
                Completion::Cancelled { token, .. } => token.0,
                other => panic!("{other:?}"),
            })
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [0, 1, 2, 3]);
        assert!(posts.region.write(0..100).is_ok());
    }

    #[test]
    fn different_blocks_at_the_endpoints_are_refused() {
        let mut posts = Posts::new();
        assert!(posts.post(0, 0).unwrap().is_none());
        assert!(posts.post(1, 1).unwrap().is_none());
        assert!(posts.post(2, 0).is_err());
        let mut completed = Vec::new();
        ENDPOINTS.into_iter().for_each(|endpoint| posts.fanout.cancel(endpoint, &mut completed));
        assert_eq!(completed.len(), 3);
    }
}
