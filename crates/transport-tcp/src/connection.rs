//! One connection: its streams to one peer, the distribution of blocks over them, and its end. It is one endpoint,
//! or is shared by several, its channels (docs/decisions/shared-connections.md).

use std::time::Duration;

use rustc_hash::FxHashMap;
use transport::{
    ArrivingRead, Cause, Completion, EndpointId, PeerMemory, PostError, ReadLease, Token,
    WriteLease,
};

use crate::{
    byte_stream::ByteStream,
    channel::{Channel, End, Phase},
    counters::TcpCounters,
    limit::Direction,
    link::ConnectionId,
    posted_send::{PostedSend, To},
    settings::TcpSettings,
    stream::{NewStream, Round, Stream},
};

/// How much one connection may write, and how much it may read, before the next one is served.
const ROUND_BYTES: usize = 512 << 10;

/// The most bytes of control words that wait for a peer that does not read; more are refused.
const CONTROL_BACKLOG_BYTES_MAX: usize = 4 << 20;

/// How many channels of a shared connection may have ended here without the peer's bye. A peer that is alive answers at once,
/// and as many as 4,096 requests of its may be refused together (docs/decisions/shared-connections.md).
const AWAITED_BYES_MAX: usize = 16 << 10;

/// The endpoint of frames for no channel, which are refused.
const NO_ENDPOINT: EndpointId = EndpointId(u64::MAX);

/// The only channel of a connection that is not shared; on a shared one no endpoint has this number.
pub(crate) const ONLY: u32 = 0;

pub(crate) struct Connection<S> {
    id: ConnectionId,
    pub(crate) streams: Vec<Stream<S>>,
    channels: FxHashMap<u32, Channel>,
    /// Channels in the phase `Closing`.
    closing: Vec<u32>,
    pub(crate) is_shared: bool,
    /// Others of its streams are served elsewhere: its owner lets a channel end when all of them have their byes.
    pub(crate) is_part: bool,
    /// Endpoints whose peer has closed all streams of this part.
    closed_by_peer: Vec<EndpointId>,
    /// When a shared connection lost its last channel, or had its last message; meaningless while it has some.
    idle_from: Duration,
    /// Whether the connection is in the transport's ready list.
    pub(crate) queued: bool,
    /// Whether the connection is among those that wait for the limit on sending.
    waits_to_send: bool,
    /// The same for receiving.
    waits_to_receive: bool,
}

impl<S: ByteStream> Connection<S> {
    /// Makes a connection of one endpoint, on whose streams it is the only channel.
    pub(crate) fn of_one(
        id: ConnectionId,
        streams: Vec<NewStream<S>>,
        endpoint: EndpointId,
        settings: &TcpSettings,
        now: Duration,
    ) -> Self {
        let mut connection = Self::new(id, streams, Some(endpoint), settings, now);
        connection.channels.insert(ONLY, Channel::new(endpoint));
        connection.introduce(ONLY);
        connection
    }

    /// Makes a connection that is shared, without channels.
    pub(crate) fn shared(
        id: ConnectionId,
        streams: Vec<NewStream<S>>,
        settings: &TcpSettings,
        now: Duration,
    ) -> Self {
        Self::new(id, streams, None, settings, now)
    }

    fn new(
        id: ConnectionId,
        streams: Vec<NewStream<S>>,
        endpoint: Option<EndpointId>,
        settings: &TcpSettings,
        now: Duration,
    ) -> Self {
        let (is_shared, of) = (endpoint.is_none(), endpoint.unwrap_or(NO_ENDPOINT));
        let stream = |new| Stream::new(new, settings.segment_bytes, of, is_shared, now);
        let mut streams: Vec<_> = streams.into_iter().map(stream).collect();
        streams.iter_mut().skip(1).for_each(|stream| stream.incoming.refuse_words());
        Self {
            id,
            streams,
            channels: FxHashMap::default(),
            closing: Vec::new(),
            is_shared,
            is_part: false,
            closed_by_peer: Vec::new(),
            idle_from: now,
            queued: false,
            waits_to_send: false,
            waits_to_receive: false,
        }
    }

    /// Refuses control words and messages on all streams, none of which is the first one.
    pub(crate) fn refuse_words(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.incoming.refuse_words());
    }

    /// Takes the endpoints whose peer has closed all streams of this part.
    pub(crate) fn take_closed_by_peer(&mut self) -> Vec<EndpointId> {
        std::mem::take(&mut self.closed_by_peer)
    }

    /// Adds a channel of a shared connection. Errors: its number is in use, or is 0.
    pub(crate) fn add(&mut self, number: u32, endpoint: EndpointId) -> Result<(), PostError> {
        let is_used = self.streams.iter_mut().any(|stream| {
            stream.incoming.channels.get(number).is_some()
                || stream.outgoing.channel(number).is_some()
        });
        if is_used || !self.is_shared {
            return Err(PostError::System(format!("channel {number} is in use")));
        }
        self.channels.insert(number, Channel::new(endpoint));
        self.streams.iter_mut().for_each(|stream| stream.add(number, endpoint));
        Ok(())
    }

    /// Lets the peer of a channel read this end's memory, where that is possible.
    pub(crate) fn introduce(&mut self, number: u32) {
        self.streams.iter_mut().for_each(|stream| stream.introduce(number));
    }

    /// Cancels all posts, and returns how the endpoints of all channels have ended with their connection.
    pub(crate) fn into_ends(
        mut self,
        end: &End,
        completed: &mut Vec<Completion>,
    ) -> (impl Iterator<Item = S>, Vec<(EndpointId, End)>) {
        for stream in &mut self.streams {
            for &number in self.channels.keys() {
                stream.incoming.discard(number, completed);
            }
            stream.outgoing.abandon(completed);
        }
        let ended = self
            .channels
            .into_values()
            .map(|channel| (channel.endpoint, channel.ended(end.clone())));
        let ended = ended.collect();
        (self.streams.into_iter().map(|stream| stream.bytes.into_stream()), ended)
    }

    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.channels.get(&number).is_some_and(Channel::is_open)
    }

    pub(crate) fn post_receive(&mut self, channel: u32, into: WriteLease, token: Token) {
        let Some(of_channel) = self.channels.get_mut(&channel) else { return };
        let block = of_channel.next_receive();
        let (stream, number) = self.stream_of(block);
        stream.incoming.post(channel, into, token, number);
    }

    pub(crate) fn post_send(
        &mut self,
        channel: u32,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) {
        self.post(channel, immediate, |to| PostedSend::new(from, token, to));
    }

    pub(crate) fn post_cut_through_send(
        &mut self,
        channel: u32,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) {
        self.post(channel, immediate, |to| PostedSend::arriving(from, token, to));
    }

    fn post(&mut self, channel: u32, immediate: u32, send: impl FnOnce(To) -> PostedSend) {
        let Some(of_channel) = self.channels.get_mut(&channel) else { return };
        let block = of_channel.next_send();
        let (stream, number) = self.stream_of(block);
        let to = To::Receive { block: number, immediate };
        stream.outgoing.post(channel, send(to));
    }

    /// Looks how much has arrived of the blocks of a channel that are sent while they arrive. Returns whether there
    /// are any.
    pub(crate) fn follow(&mut self, channel: u32) -> bool {
        self.streams.iter_mut().fold(false, |any, stream| stream.outgoing.follow(channel) | any)
    }

    /// Exposes memory on the first stream, which carries all writes and so keeps them in order.
    pub(crate) fn expose(
        &mut self,
        channel: u32,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        self.streams[0].incoming.expose(channel, key, memory)
    }

    pub(crate) fn post_write(&mut self, channel: u32, from: ReadLease, to: To, token: Token) {
        self.streams[0].outgoing.post(channel, PostedSend::new(from, token, to));
    }

    /// Returns the stream on which a block travels, and its number there, modulo 2^32.
    fn stream_of(&mut self, block: u64) -> (&mut Stream<S>, u32) {
        let streams = self.streams.len() as u64;
        (&mut self.streams[(block % streams) as usize], (block / streams) as u32)
    }

    /// Queues a control word on the first stream, which carries all of them and so keeps them in
    /// order.
    pub(crate) fn write_control(&mut self, channel: u32, word: &[u8]) -> Result<(), PostError> {
        self.check_backlog()?;
        self.streams[0].outgoing.push_control(channel, word);
        Ok(())
    }

    /// Queues a message to the other end of a shared connection.
    pub(crate) fn write_message(&mut self, message: &[u8], now: Duration) -> Result<(), PostError> {
        self.check_backlog()?;
        self.idle_from = now;
        self.streams[0].outgoing.push_message(message);
        Ok(())
    }

    fn check_backlog(&self) -> Result<(), PostError> {
        let backlog_bytes = self.streams[0].outgoing.control_backlog_bytes();
        if backlog_bytes <= CONTROL_BACKLOG_BYTES_MAX {
            return Ok(());
        }
        Err(PostError::System(format!(
            "{backlog_bytes} bytes of control words wait for a peer that does not read"
        )))
    }

    /// Begins the ordered close of a channel, which ends at `deadline` at the latest.
    pub(crate) fn close(
        &mut self,
        number: u32,
        deadline: Duration,
        completed: &mut Vec<Completion>,
    ) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        channel.phase = Phase::Closing(deadline);
        self.closing.push(number);
        for stream in &mut self.streams {
            stream.incoming.discard(number, completed);
            stream.outgoing.finish(number, completed);
        }
    }

    /// Takes the messages that the other end of a shared connection has sent.
    pub(crate) fn take_messages(&mut self, now: Duration) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for stream in &mut self.streams {
            messages.append(&mut stream.incoming.channels.news.messages);
        }
        if !messages.is_empty() {
            self.idle_from = now;
        }
        messages
    }

    /// Ends the channels that have ended, and returns how. All their posts are cancelled.
    pub(crate) fn take_ended(
        &mut self,
        now: Duration,
        completed: &mut Vec<Completion>,
    ) -> Vec<(EndpointId, End)> {
        let (mut ended, mut byes) = (Vec::new(), Vec::new());
        for index in 0..self.streams.len() {
            let news = &mut self.streams[index].incoming.channels.news;
            byes.append(&mut news.byes);
            for (number, cause) in std::mem::take(&mut news.refused) {
                ended.extend(self.end(number, End::Broken(cause), now, completed));
            }
        }
        byes.retain(|&number| self.is_open(number) && self.has_byes(number));
        for number in byes {
            match self.channels.get(&number) {
                Some(channel) if self.is_part => self.closed_by_peer.push(channel.endpoint),
                _ => {
                    ended.extend(self.end(number, End::Broken(Cause::ClosedByPeer), now, completed))
                }
            }
        }
        for number in self.closing.clone() {
            if self.has_byes(number) && self.has_written_byes(number) {
                ended.extend(self.end(number, End::Closed, now, completed));
            }
        }
        ended
    }

    fn has_byes(&mut self, number: u32) -> bool {
        self.streams.iter_mut().all(|stream| {
            stream.incoming.channels.get(number).is_none_or(|channel| channel.received_bye)
        })
    }

    fn has_written_byes(&mut self, number: u32) -> bool {
        self.streams.iter_mut().all(|stream| stream.has_written_bye(number))
    }

    /// Returns whether the connection has ended with its only channel.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_shared && self.channels.is_empty()
    }

    /// Ends a channel, if it has not ended: cancels its posts and tells the peer.
    pub(crate) fn end(
        &mut self,
        number: u32,
        end: End,
        now: Duration,
        completed: &mut Vec<Completion>,
    ) -> Option<(EndpointId, End)> {
        let channel = self.channels.remove(&number)?;
        self.closing.retain(|&other| other != number);
        for stream in &mut self.streams {
            stream.incoming.discard(number, completed);
            stream.incoming.channels.end(number);
            stream.outgoing.finish(number, completed);
            stream.outgoing.remove(number, completed);
        }
        self.idle_from = now;
        Some((channel.endpoint, channel.ended(end)))
    }

    /// Returns whether another round of service would move bytes, as far as is known.
    pub(crate) fn is_ready(&self) -> bool {
        self.streams.iter().any(Stream::is_ready)
    }

    /// Serves the connection for one round, which moves a bounded number of bytes. Returns how it ended, if it did.
    pub(crate) fn serve(&mut self, round: &mut Round<'_>) -> Option<End> {
        self.begin_turn(round.turn);
        let end = self.serve_streams(round);
        self.wait_for_turns(round);
        end
    }

    /// Lets the streams move bytes again in the direction in which it is the connection's turn.
    fn begin_turn(&mut self, turn: Option<Direction>) {
        match turn {
            Some(Direction::Send) => {
                self.waits_to_send = false;
                self.streams.iter_mut().for_each(|stream| stream.send_held = false);
            }
            Some(Direction::Receive) => {
                self.waits_to_receive = false;
                self.streams.iter_mut().for_each(|stream| stream.receive_held = false);
            }
            None => {}
        }
    }

    /// Queues the connection for its next turn in each direction in which the limit has held back
    /// streams.
    fn wait_for_turns(&mut self, round: &mut Round<'_>) {
        if !self.waits_to_send && self.streams.iter().any(|stream| stream.send_held) {
            self.waits_to_send = true;
            round.sending.wait(self.id);
            round.counters.limit_waits += 1;
        }
        if !self.waits_to_receive && self.streams.iter().any(|stream| stream.receive_held) {
            self.waits_to_receive = true;
            round.receiving.wait(self.id);
            round.counters.limit_waits += 1;
        }
    }

    fn serve_streams(&mut self, round: &mut Round<'_>) -> Option<End> {
        let budget_bytes = ROUND_BYTES / self.streams.len();
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            if let Err(cause) = stream.serve(round, budget_bytes) {
                return Some(End::Broken(self.truest(cause)));
            }
        }
        let byes = self.streams.iter().map(|stream| stream.incoming.channels.awaited_byes);
        let byes = byes.max().filter(|&byes| byes > AWAITED_BYES_MAX)?;
        let words = format!("{byes} channels have ended here without its bye");
        Some(End::Broken(Cause::Protocol(words)))
    }

    /// Returns the real cause: a peer that has sent a bye on one stream, and then could not close
    /// the others within its drain time, has closed the connection.
    fn truest(&self, cause: Cause) -> Cause {
        let bye = self.streams.iter().any(|stream| stream.incoming.received_bye());
        match cause {
            Cause::Lost(_) | Cause::Silent(_) if bye => Cause::ClosedByPeer,
            cause => cause,
        }
    }

    /// Breaks or ends the connection, or writes heartbeats, as is due by the clock. Otherwise returns
    /// when to call it again. All that has arrived by `now` must have been read, or its stream be
    /// marked as readable.
    pub(crate) fn tick(
        &mut self,
        now: Duration,
        settings: &TcpSettings,
        counters: &mut TcpCounters,
    ) -> Result<Duration, End> {
        if !self.is_shared && !self.closing.is_empty() {
            // No heartbeat follows the last bye, and the close has its deadline.
            return Ok(Duration::MAX);
        }
        let (silence, interval) = (settings.silence_after(), settings.heartbeat_interval());
        let mut next = now + interval;
        if self.is_shared && self.channels.is_empty() {
            let idle_until = self.idle_from + settings.idle_after();
            if now >= idle_until {
                return Err(End::Closed);
            }
            next = next.min(idle_until);
        }
        let mut silent: Option<Duration> = None;
        for stream in &mut self.streams {
            // Nothing follows a bye, and other streams may have bytes that were sent before theirs.
            if !stream.incoming.received_bye() {
                let quiet = now.saturating_sub(stream.last_received);
                if quiet >= silence && !stream.can_read() {
                    silent = Some(quiet);
                }
                next = next.min(stream.last_received + silence).max(now);
            }
            if now.saturating_sub(stream.last_written) >= interval && !stream.is_urgent() {
                stream.outgoing.push_heartbeat();
                counters.heartbeats += 1;
            } else {
                next = next.min(stream.last_written + interval).max(now);
            }
            stream.retry();
        }
        match silent {
            Some(quiet) => Err(End::Broken(self.truest(Cause::Silent(quiet.as_millis() as u64)))),
            None => Ok(next),
        }
    }

    /// Ends the channels whose close has taken too long, and returns how. Otherwise lowers `next` to when to call it again.
    pub(crate) fn tick_closing(
        &mut self,
        now: Duration,
        next: &mut Duration,
        completed: &mut Vec<Completion>,
    ) -> Vec<(EndpointId, End)> {
        let mut ended = Vec::new();
        for number in self.closing.clone() {
            match self.channels.get(&number).map(|channel| channel.phase) {
                Some(Phase::Closing(deadline)) if now < deadline => *next = (*next).min(deadline),
                _ => ended.extend(self.end(number, End::Closed, now, completed)),
            }
        }
        ended
    }
}
