//! What the receiving half of a stream holds for its channels.

use std::collections::{HashMap, VecDeque};

use transport::{Cause, Completion, EndpointId, PeerMemory, Token, WriteLease};

use crate::{
    posted_receive::PostedReceive, references::References, selected::Selected, wire::Header,
};

/// The receives of one channel on one stream.
pub(crate) struct Inbound {
    pub(crate) endpoint: EndpointId,
    pub(crate) receives: VecDeque<PostedReceive>,
    pub(crate) exposed: HashMap<u32, PeerMemory>,
    pub(crate) references: References,
    /// The channel is closing or has ended: blocks are read and dropped.
    pub(crate) discarding: bool,
    pub(crate) received_bye: bool,
    /// The channel has ended here, and is kept until its bye.
    pub(crate) has_ended: bool,
}

impl Inbound {
    pub(crate) fn new(endpoint: EndpointId) -> Self {
        Self {
            endpoint,
            receives: VecDeque::new(),
            exposed: HashMap::new(),
            references: References::default(),
            discarding: false,
            received_bye: false,
            has_ended: false,
        }
    }

    pub(crate) fn post(&mut self, lease: WriteLease, token: Token, block: u32) {
        self.receives.push_back(PostedReceive::new(lease, token, block));
    }

    /// Returns whether it has ended at both ends.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.received_bye
    }

    /// Cancels all receives; blocks that still arrive are dropped from now on.
    pub(crate) fn discard(&mut self, completed: &mut Vec<Completion>) {
        self.discarding = true;
        self.exposed.clear();
        self.references.discard(self.endpoint, completed);
        for receive in self.receives.drain(..) {
            receive.cancel(self.endpoint, completed);
        }
    }

    /// Takes the first posted receive for a block in the peer's memory. Errors: why the block is refused.
    pub(crate) fn begin_copy(
        &mut self,
        bytes: u32,
        immediate: u32,
        block: u32,
        address: u64,
    ) -> Result<(), String> {
        if !self.references.is_trusted() {
            return Err("it refers to memory that cannot be read here".into());
        }
        if self.discarding {
            return Ok(());
        }
        let mut receive =
            self.receives.pop_front().ok_or("a block for which no memory was posted")?;
        let checked = match receive.filled_bytes {
            0 => receive.check(bytes as usize, immediate, block),
            _ => Err("a reference inside a block".into()),
        };
        if checked.is_err() {
            self.receives.push_front(receive);
        } else {
            self.references.push(receive, address, bytes);
        }
        checked
    }
}

/// The channels of one stream: the only one, or those of a shared connection.
pub(crate) struct Channels {
    /// Selected is the channel whose frames come now.
    pub(crate) all: Selected<Inbound>,
    pub(crate) is_shared: bool,
    /// What has come, by numbers of channels, since the connection has looked.
    pub(crate) news: News,
    /// How many channels have ended here and are kept until their byes.
    pub(crate) awaited_byes: usize,
}

/// What has come on a stream and concerns its connection.
#[derive(Default)]
pub(crate) struct News {
    /// Channels whose peers have said something of memory for direct copies.
    pub(crate) of_memory: Vec<u32>,
    /// Channels with blocks to copy.
    pub(crate) copying: Vec<u32>,
    /// Channels that have received their bye.
    pub(crate) byes: Vec<u32>,
    /// Channels whose peers broke the protocol, or whose memory failed.
    pub(crate) refused: Vec<(u32, Cause)>,
    /// Messages of a shared connection.
    pub(crate) messages: Vec<Vec<u8>>,
}

impl Channels {
    /// Begins with channel 0: the only one, or, on a shared connection, one that no group has.
    pub(crate) fn new(endpoint: EndpointId, is_shared: bool) -> Self {
        let all = Selected::new(Inbound::new(endpoint));
        Self { all, is_shared, news: News::default(), awaited_byes: 0 }
    }

    /// Adds a channel of a shared connection.
    pub(crate) fn add(&mut self, number: u32, endpoint: EndpointId) {
        self.all.add(number, Inbound::new(endpoint));
    }

    /// Returns a channel; `None` if it has ended.
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Inbound> {
        self.all.get_mut(number)
    }

    /// Forgets a channel that has ended here, as soon as its bye has come.
    pub(crate) fn end(&mut self, number: u32) {
        let Some(inbound) = self.get(number) else { return };
        let is_awaited = !std::mem::replace(&mut inbound.has_ended, true) && !inbound.received_bye;
        self.awaited_byes += usize::from(is_awaited);
        let Some(inbound) = self.get(number) else { return };
        // The selected one goes when another is selected.
        if inbound.is_over() && number != self.all.number {
            self.all.remove(number);
        }
    }

    /// Takes the bye of the channel whose frames come.
    pub(crate) fn receive_bye(&mut self) {
        let is_first = !std::mem::replace(&mut self.all.current.received_bye, true);
        self.awaited_byes -= usize::from(is_first && self.all.current.has_ended);
        self.news.byes.push(self.all.number);
    }

    /// Takes the frames that follow for a channel. Errors: it is not open.
    pub(crate) fn select(&mut self, number: u32) -> Result<(), Cause> {
        let (last, is_over) = (self.all.number, self.all.current.is_over());
        if !self.all.select(number) {
            return Err(Cause::Protocol(format!("frames for channel {number}, which is not open")));
        }
        if is_over && number != last {
            self.all.remove(last);
        }
        Ok(())
    }

    /// Reports what has arrived of the block that is arriving.
    pub(crate) fn report(&mut self, completed: &mut Vec<Completion>) {
        if let Some(receive) = self.all.current.receives.front_mut() {
            receive.report(self.all.current.endpoint, completed);
        }
    }

    /// Checks that a frame is one that may come now on this connection and its channel.
    pub(crate) fn check(&self, header: Header) -> Result<(), Cause> {
        let why = match (header, self.is_shared) {
            (Header::Heartbeat, _) => return Ok(()),
            (Header::Channel { .. } | Header::Message { .. }, true) => return Ok(()),
            (Header::Channel { .. } | Header::Message { .. }, false) => {
                "a frame of shared connections on one that is not"
            }
            (_, true) if self.all.number == 0 => "a frame for no channel",
            _ if self.all.current.received_bye => "a frame behind the bye of its channel",
            _ => return Ok(()),
        };
        Err(Cause::Protocol(why.into()))
    }

    /// Notes that something has come of memory for direct copies.
    pub(crate) fn news_of_memory(&mut self) {
        if !self.news.of_memory.contains(&self.all.number) {
            self.news.of_memory.push(self.all.number);
        }
    }

    /// Notes that there is a block to copy.
    pub(crate) fn news_to_copy(&mut self) {
        if !self.news.copying.contains(&self.all.number) {
            self.news.copying.push(self.all.number);
        }
    }
}
