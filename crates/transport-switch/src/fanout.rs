//! The root's sends of one group: the same block to everybody, which becomes one message.

use std::collections::{BTreeMap, VecDeque};

use transport::{Completion, EndpointId, ReadLease, Token};

/// A send that was posted on one of the group's endpoints.
pub(crate) struct Send {
    pub(crate) from: ReadLease,
    pub(crate) immediate: u32,
    pub(crate) token: Token,
}

/// A block that all endpoints have been given.
pub(crate) struct Message {
    pub(crate) id: u64,
    sends: Vec<(EndpointId, Send)>,
}

impl Message {
    /// Of one of its sends: they are alike.
    pub(crate) fn first(&self) -> &Send {
        &self.sends[0].1
    }
}

/// Sends that wait for the same block to be posted to the others, and messages under way.
pub(crate) struct Fanout {
    /// How many endpoints the group has, once all are open.
    endpoints: usize,
    waiting: BTreeMap<EndpointId, VecDeque<Send>>,
    under_way: BTreeMap<u64, Message>,
    next_id: u64,
}

impl Fanout {
    /// Of a group with so many endpoints, at least one.
    pub(crate) fn new(endpoints: usize) -> Self {
        Self { endpoints, waiting: BTreeMap::new(), under_way: BTreeMap::new(), next_id: 0 }
    }

    pub(crate) fn open(&mut self, endpoint: EndpointId) {
        self.waiting.insert(endpoint, VecDeque::new());
    }

    /// Takes a send; answers the message, if it was the last that this block had to wait for.
    ///
    /// Errors: endpoints were given different blocks.
    pub(crate) fn post(
        &mut self,
        endpoint: EndpointId,
        send: Send,
    ) -> Result<Option<Message>, String> {
        self.waiting.entry(endpoint).or_default().push_back(send);
        let is_complete = self.waiting.len() == self.endpoints
            && self.waiting.values().all(|sends| !sends.is_empty());
        if !is_complete {
            return Ok(None);
        }
        let sends = self.waiting.iter_mut();
        let sends: Vec<(EndpointId, Send)> =
            sends.filter_map(|(&endpoint, sends)| Some((endpoint, sends.pop_front()?))).collect();
        let message = Message { id: self.next_id, sends };
        self.next_id += 1;
        let same = |send: &Send| {
            let first = message.first();
            (send.from.as_ptr(), send.from.bytes(), send.immediate)
                == (first.from.as_ptr(), first.from.bytes(), first.immediate)
        };
        let is_same = message.sends.iter().all(|(_, send)| same(send));
        if !is_same {
            self.under_way.insert(message.id, message);
            return Err("members were to be sent different blocks by one transmission".into());
        }
        Ok(Some(message))
    }

    /// The message is on its way; its memory stays leased.
    pub(crate) fn sends(&mut self, message: Message) {
        self.under_way.insert(message.id, message);
    }

    /// All have it.
    pub(crate) fn sent(&mut self, id: u64, completed: &mut Vec<Completion>) {
        let Some(message) = self.under_way.remove(&id) else { return };
        for (endpoint, Send { from, token, .. }) in message.sends {
            drop(from);
            completed.push(Completion::Sent { endpoint, token });
        }
    }

    /// An endpoint ends: its posts, waiting or under way, are handed back.
    pub(crate) fn cancel(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        let mut hand_back = |send: Send| {
            let Send { from, token, .. } = send;
            drop(from);
            completed.push(Completion::Cancelled { endpoint, token });
        };
        for message in self.under_way.values_mut() {
            while let Some(at) = message.sends.iter().position(|(other, _)| *other == endpoint) {
                hand_back(message.sends.swap_remove(at).1);
            }
        }
        self.under_way.retain(|_, message| !message.sends.is_empty());
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

        fn post(&mut self, endpoint: usize, block: u32) -> Result<Option<Message>, String> {
            let at = block as usize * 10;
            let from = self.region.read(at..at + 10).unwrap();
            let token = Token(self.next);
            self.next += 1;
            self.fanout.post(ENDPOINTS[endpoint], Send { from, immediate: block, token })
        }
    }

    #[test]
    fn one_message_goes_out_when_all_were_posted() {
        let mut posts = Posts::new();
        // One endpoint runs ahead of the others.
        for (endpoint, block) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert!(posts.post(endpoint, block).unwrap().is_none());
        }
        let mut completed = Vec::new();
        for block in 0..2 {
            let message = posts.post(2, block).unwrap().unwrap();
            assert_eq!((message.id, message.first().immediate), (u64::from(block), block));
            posts.fanout.sends(message);
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
    fn everything_is_handed_back_once() {
        let mut posts = Posts::new();
        for (endpoint, block) in [(0, 0), (1, 0), (0, 1)] {
            assert!(posts.post(endpoint, block).unwrap().is_none());
        }
        let message = posts.post(2, 0).unwrap().unwrap();
        posts.fanout.sends(message);
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
    fn different_blocks_are_no_message() {
        let mut posts = Posts::new();
        assert!(posts.post(0, 0).unwrap().is_none());
        assert!(posts.post(1, 1).unwrap().is_none());
        assert!(posts.post(2, 0).is_err());
        let mut completed = Vec::new();
        ENDPOINTS.into_iter().for_each(|endpoint| posts.fanout.cancel(endpoint, &mut completed));
        assert_eq!(completed.len(), 3);
    }
}
