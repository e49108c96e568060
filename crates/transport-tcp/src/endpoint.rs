//! One endpoint: its streams to one peer, the distribution of blocks over them, and its end.

use std::time::{Duration, Instant};

use transport::{
    ArrivingRead, Cause, Completion, EndpointId, PeerMemory, PostError, ReadLease, Token,
    WriteLease,
};

use crate::{
    counters::TcpCounters,
    limit::Direction,
    posted_send::{PostedSend, To},
    settings::TcpSettings,
    stream::{Round, Stream},
};

/// How much one endpoint may write, and how much it may read, before the next one is served.
const ROUND_BYTES: usize = 512 << 10;

/// The most bytes of control words that wait for a peer that does not read; more are refused.
const CONTROL_BACKLOG_BYTES_MAX: usize = 4 << 20;

/// How an endpoint ended.
pub(crate) enum End {
    Broken(Cause),
    Closed,
}

enum Phase {
    Open,
    /// After `close`; the endpoint ends at this time at the latest.
    Closing(Instant),
}

pub(crate) struct Endpoint {
    id: EndpointId,
    pub(crate) streams: Vec<Stream>,
    /// Blocks posted so far in each direction; block i travels on stream i mod S.
    receives_posted: u64,
    sends_posted: u64,
    phase: Phase,
    /// Whether the endpoint is in the transport's ready list.
    pub(crate) queued: bool,
    /// Whether the endpoint is among those that wait for the limit on sending.
    waits_to_send: bool,
    /// The same for receiving.
    waits_to_receive: bool,
}

impl Endpoint {
    pub(crate) fn new(id: EndpointId, streams: Vec<Stream>) -> Self {
        Self {
            id,
            streams,
            receives_posted: 0,
            sends_posted: 0,
            phase: Phase::Open,
            queued: false,
            waits_to_send: false,
            waits_to_receive: false,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(crate) fn post_receive(&mut self, into: WriteLease, token: Token) {
        let number = self.receives_posted;
        self.receives_posted += 1;
        self.stream_of(number).incoming.post(into, token, number as u32);
    }

    pub(crate) fn post_send(&mut self, from: ReadLease, immediate: u32, token: Token) {
        self.post(immediate, |to| PostedSend::new(from, token, to));
    }

    pub(crate) fn post_cut_through_send(
        &mut self,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) {
        self.post(immediate, |to| PostedSend::arriving(from, token, to));
    }

    fn post(&mut self, immediate: u32, send: impl FnOnce(To) -> PostedSend) {
        let number = self.sends_posted;
        self.sends_posted += 1;
        let to = To::Receive { block: number as u32, immediate };
        self.stream_of(number).outgoing.post(send(to));
    }

    /// Looks how much has arrived of blocks that are sent while they arrive. Returns whether there are
    /// any.
    pub(crate) fn follow(&mut self) -> bool {
        self.streams.iter_mut().fold(false, |any, stream| stream.outgoing.follow() | any)
    }

    /// Exposes memory on the first stream, which carries all writes and so keeps them in order.
    pub(crate) fn expose(&mut self, key: u32, memory: PeerMemory) -> Result<(), PostError> {
        self.streams[0].incoming.expose(key, memory)
    }

    pub(crate) fn post_write(
        &mut self,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) {
        let to = To::Exposed { key, offset, immediate };
        self.streams[0].outgoing.post(PostedSend::new(from, token, to));
    }

    fn stream_of(&mut self, block: u64) -> &mut Stream {
        let index = block % self.streams.len() as u64;
        &mut self.streams[index as usize]
    }

    /// Queues a control word on the first stream, which carries all of them and so keeps them in
    /// order.
    pub(crate) fn write_control(&mut self, word: &[u8]) -> Result<(), PostError> {
        let outgoing = &mut self.streams[0].outgoing;
        let backlog_bytes = outgoing.control_backlog_bytes();
        if backlog_bytes > CONTROL_BACKLOG_BYTES_MAX {
            return Err(PostError::System(format!(
                "{backlog_bytes} bytes of control words wait for a peer that does not read"
            )));
        }
        outgoing.push_control(word);
        Ok(())
    }

    /// Begins the ordered close, which ends at `deadline` at the latest.
    pub(crate) fn close(&mut self, deadline: Instant, completed: &mut Vec<Completion>) {
        self.phase = Phase::Closing(deadline);
        for stream in &mut self.streams {
            stream.incoming.discard(self.id, completed);
            stream.outgoing.finish(self.id, completed);
        }
    }

    /// Cancels all posts; the endpoint is dropped next.
    pub(crate) fn abandon(&mut self, completed: &mut Vec<Completion>) {
        for stream in &mut self.streams {
            stream.incoming.discard(self.id, completed);
            stream.outgoing.abandon(self.id, completed);
        }
    }

    /// Returns whether another round of service would move bytes, as far as is known.
    pub(crate) fn is_ready(&self) -> bool {
        self.streams.iter().any(Stream::is_ready)
    }

    /// Serves the endpoint for one round, which moves a bounded number of bytes. Returns how the
    /// endpoint ended, if it did.
    pub(crate) fn serve(&mut self, round: &mut Round<'_>) -> Option<End> {
        self.begin_turn(round.turn);
        let end = self.serve_streams(round);
        self.wait_for_turns(round);
        end
    }

    /// Lets the streams move bytes again in the direction in which it is the endpoint's turn.
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

    /// Queues the endpoint for its next turn in each direction in which the limit has held back
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
            let served = stream.serve(round, budget_bytes);
            let Err(cause) = served else { continue };
            if self.is_open() {
                return Some(End::Broken(self.truest(cause)));
            }
            // The peer has closed or broken the connection: either way this stream moves no more
            // bytes.
            let stream = &mut self.streams[index];
            stream.lost = true;
            stream.outgoing.abandon(self.id, round.completed);
        }
        match self.phase {
            Phase::Open => {
                let over = self.streams.iter().all(|stream| stream.incoming.received_bye());
                over.then_some(End::Broken(Cause::ClosedByPeer))
            }
            Phase::Closing(_) => {
                // Not `all`: each stream has to be visited, to shut it down in time.
                let unfinished = self
                    .streams
                    .iter_mut()
                    .filter_map(|stream| (!stream.is_finished()).then_some(()));
                (unfinished.count() == 0).then_some(End::Closed)
            }
        }
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

    /// Breaks or ends the endpoint, or writes heartbeats, as is due by the clock. Otherwise returns
    /// when to call it again. All that has arrived by `now` must have been read, or its stream be
    /// marked as readable.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        settings: &TcpSettings,
        counters: &mut TcpCounters,
    ) -> Result<Instant, End> {
        if let Phase::Closing(deadline) = self.phase {
            return if now >= deadline { Err(End::Closed) } else { Ok(deadline) };
        }
        let (silence, interval) = (settings.silence_after(), settings.heartbeat_interval());
        let mut next = now + interval;
        let mut silent: Option<Duration> = None;
        for stream in &mut self.streams {
            let quiet = now.saturating_duration_since(stream.last_received);
            if quiet >= silence && !stream.can_read() {
                silent = Some(quiet);
            }
            next = next.min(stream.last_received + silence).max(now);
            if now.saturating_duration_since(stream.last_written) >= interval
                && !stream.outgoing.is_urgent()
            {
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
}
