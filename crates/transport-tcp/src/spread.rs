//! Endpoints whose streams several threads serve: which of them gets a block, and one end for all.
//!
//! A connection of several streams is cut into parts, as many as there are threads: stream i is of part i mod P. Part 0 is of the
//! thread that owns the transport, and has what stream 0 carries: control words, one-sided writes, and messages of shared
//! connections. The others get [`Command`]s, and report what has completed. All decisions are made here, by the owner.

use std::time::Duration;

use rustc_hash::FxHashMap;
use transport::{Cause, Completion, EndpointId, PostError, Token, WriteLease};

use crate::{
    byte_stream::ByteStream,
    command::{Command, Outbound},
    connections::{BLOCK_BYTES_MAX, Connections, Streams},
    link::{ConnectionId, STREAMS_MAX},
    reports::Report,
    shared::SharedEvent,
    stream::NewStream,
};

/// All endpoints of a transport, as far as other threads serve some of their streams.
///
/// `local` is always part 0 of the connections.
pub struct Spread<S> {
    parts: usize,
    /// How many endpoints, and how many connections, there were.
    opened: u64,
    connected: u64,
    /// Endpoints, and shared connections, that have more than one part.
    endpoints: FxHashMap<EndpointId, SpreadEndpoint>,
    shared: FxHashMap<ConnectionId, SpreadConnection>,
    /// For other parts than the first, in order.
    commands: Vec<(usize, Command<S>)>,
}

/// The streams of a new connection, by parts.
pub type Dealt<S> = Vec<Vec<NewStream<S>>>;

/// Parts of a connection, by number.
#[derive(Clone, Copy, Debug)]
struct Parts {
    count: usize,
    /// One bit for each that has ended.
    ended: u8,
}

struct SpreadEndpoint {
    connection: ConnectionId,
    streams: u64,
    parts: Parts,
    receives_posted: u64,
    sends_posted: u64,
    /// Posts that each part has not completed; none of part 0, which refuses those that it does not accept.
    posted: [Vec<Token>; STREAMS_MAX],
    /// Its channel is reserved, and not yet open.
    is_reserved: bool,
    /// Until it is closed.
    is_open: bool,
    /// Parts whose streams the peer has closed, one bit for each.
    closed_by_peer: u8,
    /// Why it breaks; `None` while no part has ended.
    cause: Option<Cause>,
}

struct SpreadConnection {
    streams: u64,
    parts: Parts,
    /// Why it has ended, once it has.
    cause: Option<Cause>,
}

impl Parts {
    fn new(count: usize) -> Self {
        Self { count, ended: 0 }
    }

    fn end(&mut self, part: usize) {
        self.ended |= 1 << part;
    }

    fn have_ended(self) -> bool {
        self.ended.count_ones() as usize == self.count
    }

    /// Returns those that have not ended.
    fn left(self) -> impl Iterator<Item = usize> {
        (0..self.count).filter(move |part| self.ended & (1 << part) == 0)
    }

    /// Returns those that have not ended, without the owner's.
    fn others(self) -> impl Iterator<Item = usize> {
        self.left().filter(|&part| part != 0)
    }
}

impl SpreadEndpoint {
    fn new(connection: ConnectionId, streams: u64, parts: usize) -> Self {
        Self {
            connection,
            streams,
            parts: Parts::new(parts),
            receives_posted: 0,
            sends_posted: 0,
            posted: [const { Vec::new() }; STREAMS_MAX],
            is_reserved: false,
            is_open: true,
            closed_by_peer: 0,
            cause: None,
        }
    }

    fn part_of(&self, block: u64) -> usize {
        (block % self.streams) as usize % self.parts.count
    }

    /// Returns the part of the next block that is received.
    fn next_receive(&mut self) -> usize {
        self.receives_posted += 1;
        self.part_of(self.receives_posted - 1)
    }

    /// Returns the part of the next block that is sent.
    fn next_send(&mut self) -> usize {
        self.sends_posted += 1;
        self.part_of(self.sends_posted - 1)
    }

    /// Returns the true cause: a peer that has closed one stream, and then could not close the others in time, has closed the
    /// connection.
    fn truest(&self, cause: Cause) -> Cause {
        match cause {
            Cause::Lost(_) | Cause::Silent(_) if self.closed_by_peer != 0 => Cause::ClosedByPeer,
            cause => cause,
        }
    }

    /// Notes that the peer has closed all streams of a part. Returns whether it has closed those of all parts that are left.
    fn close_by_peer(&mut self, part: usize) -> bool {
        self.closed_by_peer |= 1 << part;
        self.parts.left().all(|part| self.closed_by_peer & (1 << part) != 0)
    }

    /// Returns whether nothing more comes of any part.
    fn is_over(&self) -> bool {
        self.parts.have_ended() && self.posted.iter().all(Vec::is_empty)
    }

    /// Returns whether it accepts posts: no part has ended.
    fn accepts_posts(&self) -> bool {
        self.is_open && self.cause.is_none()
    }

    fn into_end(self, endpoint: EndpointId) -> Completion {
        match self.cause.filter(|_| self.is_open) {
            Some(cause) => Completion::Broken { endpoint, cause },
            None => Completion::Closed { endpoint },
        }
    }
}

impl<S: ByteStream> Spread<S> {
    /// Begins without connections. `parts`: how many threads serve streams, 1 to 8.
    pub fn new(parts: usize) -> Self {
        Self {
            parts,
            opened: 0,
            connected: 0,
            endpoints: FxHashMap::default(),
            shared: FxHashMap::default(),
            commands: Vec::new(),
        }
    }

    /// Returns the number of a connection that is made next.
    pub fn next_connection(&mut self) -> ConnectionId {
        self.connected += 1;
        ConnectionId(self.connected - 1)
    }

    fn next_endpoint(&mut self) -> EndpointId {
        self.opened += 1;
        EndpointId(self.opened - 1)
    }

    /// Returns the streams of a connection by parts, none of which is empty.
    pub fn deal<T>(&self, streams: Vec<T>) -> Vec<Vec<T>> {
        let count = self.parts.min(streams.len()).max(1);
        let mut parts: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
        for (index, stream) in streams.into_iter().enumerate() {
            parts[index % count].push(stream);
        }
        parts
    }

    /// Makes a new connection of one endpoint, of streams that were dealt.
    pub fn open(
        &mut self,
        local: &mut Connections<S>,
        connection: ConnectionId,
        parts: Dealt<S>,
        now: Duration,
    ) -> EndpointId {
        let endpoint = self.next_endpoint();
        let (count, streams) = (parts.len(), parts.iter().map(Vec::len).sum::<usize>());
        let mut parts = parts.into_iter();
        local.open(connection, endpoint, first(&mut parts, count), now);
        for (part, streams) in (1..).zip(parts) {
            self.commands.push((part, Command::Open { connection, endpoint, streams }));
        }
        if count > 1 {
            let spread = SpreadEndpoint::new(connection, streams as u64, count);
            self.endpoints.insert(endpoint, spread);
        }
        endpoint
    }

    /// Makes a new connection that endpoints share, of streams that were dealt.
    pub fn share(
        &mut self,
        local: &mut Connections<S>,
        connection: ConnectionId,
        parts: Dealt<S>,
        now: Duration,
    ) {
        let (count, streams) = (parts.len(), parts.iter().map(Vec::len).sum::<usize>());
        let mut parts = parts.into_iter();
        local.share(connection, first(&mut parts, count), now);
        for (part, streams) in (1..).zip(parts) {
            self.commands.push((part, Command::Share { connection, streams }));
        }
        if count > 1 {
            let (streams, parts) = (streams as u64, Parts::new(count));
            let spread = SpreadConnection { streams, parts, cause: None };
            self.shared.insert(connection, spread);
        }
    }

    /// As [`crate::SharedConnections::reserve`].
    pub fn reserve(
        &mut self,
        local: &mut Connections<S>,
        connection: ConnectionId,
        channel: u32,
    ) -> Result<EndpointId, PostError> {
        let endpoint = self.next_endpoint();
        local.reserve(connection, channel, endpoint)?;
        if let Some(shared) = self.shared.get(&connection) {
            let mut spread = SpreadEndpoint::new(connection, shared.streams, shared.parts.count);
            spread.is_reserved = true;
            for part in spread.parts.others() {
                self.commands.push((part, Command::Reserve { connection, channel, endpoint }));
            }
            self.endpoints.insert(endpoint, spread);
        }
        Ok(endpoint)
    }

    /// Opens a channel that was reserved.
    pub fn open_reserved(
        &mut self,
        local: &mut Connections<S>,
        endpoint: EndpointId,
    ) -> Result<(), PostError> {
        let opened = local.open_reserved(endpoint);
        if opened.is_err() {
            self.give_back(endpoint);
        }
        self.command_others(endpoint, || Command::OpenReserved(endpoint));
        if let Some(spread) = self.endpoints.get_mut(&endpoint) {
            spread.is_reserved = false;
        }
        opened
    }

    /// As [`crate::SharedConnections::release`].
    pub fn release(&mut self, local: &mut Connections<S>, endpoint: EndpointId, now: Duration) {
        local.release(endpoint, now);
        self.give_back(endpoint);
    }

    fn give_back(&mut self, endpoint: EndpointId) {
        self.command_others(endpoint, || Command::Release(endpoint));
        self.endpoints.remove(&endpoint);
    }

    /// Gives a command to the parts of an endpoint that have not ended.
    fn command_others(&mut self, endpoint: EndpointId, command: impl Fn() -> Command<S>) {
        let Some(spread) = self.endpoints.get(&endpoint) else { return };
        self.commands.extend(spread.parts.others().map(|part| (part, command())));
    }

    /// As [`transport::Transport::post_receive`].
    pub fn post_receive(
        &mut self,
        local: &mut Connections<S>,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        let Some(spread) = self.endpoints.get_mut(&endpoint) else {
            return local.post_receive(endpoint, into, token);
        };
        if !spread.accepts_posts() {
            return Err(PostError::EndpointGone(endpoint));
        }
        PostError::check_length(into.bytes(), BLOCK_BYTES_MAX)?;
        let part = spread.next_receive();
        if part == 0 {
            return local.post_receive(endpoint, into, token);
        }
        spread.posted[part].push(token);
        self.commands.push((part, Command::Receive { endpoint, into, token }));
        Ok(())
    }

    /// As [`transport::Transport::post_send`] and [`transport::CutThroughSends::post_cut_through_send`].
    pub fn post_send(
        &mut self,
        local: &mut Connections<S>,
        endpoint: EndpointId,
        from: Outbound,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let mut part = 0;
        if let Some(spread) = self.endpoints.get_mut(&endpoint) {
            if !spread.accepts_posts() {
                return Err(PostError::EndpointGone(endpoint));
            }
            PostError::check_length(from.bytes(), BLOCK_BYTES_MAX)?;
            part = spread.next_send();
            if part != 0 {
                spread.posted[part].push(token);
            }
        }
        match from {
            from if part != 0 => {
                self.commands.push((part, Command::Send { endpoint, from, immediate, token }));
                Ok(())
            }
            Outbound::Whole(lease) => local.post_send(endpoint, lease, immediate, token),
            Outbound::Arriving(read) => {
                local.post_cut_through_send(endpoint, read, immediate, token)
            }
        }
    }

    /// As [`transport::Transport::close`].
    pub fn close(&mut self, local: &mut Connections<S>, endpoint: EndpointId, now: Duration) {
        local.close(endpoint, now);
        self.command_others(endpoint, || Command::Close(endpoint));
        if let Some(spread) = self.endpoints.get_mut(&endpoint) {
            spread.is_open = false;
        }
    }

    /// Ends an endpoint whose peer has failed, with all others of the same connection, which report this cause.
    pub fn break_off(&mut self, local: &mut Connections<S>, endpoint: EndpointId, cause: &Cause) {
        local.break_off(endpoint, cause.clone());
        let Some(spread) = self.endpoints.get(&endpoint) else { return };
        // The endpoint may have ended there, and not elsewhere.
        local.end_connection(spread.connection, Some(cause.clone()));
        self.command_others(endpoint, || Command::Fail { endpoint, cause: cause.clone() });
    }

    /// Returns whether no endpoint has more than one part.
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.shared.is_empty()
    }

    /// Takes the commands for other parts than the first, each with the number of its part.
    pub fn take_commands(&mut self) -> Vec<(usize, Command<S>)> {
        std::mem::take(&mut self.commands)
    }

    /// Replaces what part `part` reports by what the transport does.
    pub fn on_report(
        &mut self,
        local: &mut Connections<S>,
        part: usize,
        report: Report,
        now: Duration,
    ) -> Report {
        if part == 0 && self.is_empty() {
            return report;
        }
        let mut whole = Report::default();
        for completion in report.completions {
            self.on_completion(local, part, completion, &mut whole, now);
        }
        for endpoint in report.closed_by_peer {
            let spread = self.endpoints.get_mut(&endpoint);
            if spread.is_some_and(|spread| spread.close_by_peer(part)) {
                self.fail(local, endpoint, &Cause::ClosedByPeer, now);
            }
        }
        for event in report.events {
            match event {
                SharedEvent::Ended { connection, cause }
                    if self.shared.contains_key(&connection) =>
                {
                    self.on_end_of_connection(local, part, connection, cause, &mut whole);
                }
                event => whole.events.push(event),
            }
        }
        whole
    }

    /// Ends everything that a part serves, since its thread has failed: it reports nothing any more, and has given back all memory.
    pub fn on_lost_part(
        &mut self,
        local: &mut Connections<S>,
        part: usize,
        now: Duration,
    ) -> Report {
        let cause = Cause::Lost("a thread of the transport has failed".into());
        let mut whole = Report::default();
        let endpoints: Vec<EndpointId> = self.endpoints.keys().copied().collect();
        for endpoint in endpoints {
            let Some(spread) = self.endpoints.get_mut(&endpoint) else { continue };
            let cancelled = std::mem::take(&mut spread.posted[part]).into_iter();
            let cancelled = cancelled.map(|token| Completion::Cancelled { endpoint, token });
            whole.completions.extend(cancelled);
            if spread.parts.left().any(|left| left == part) {
                let broken = Completion::Broken { endpoint, cause: cause.clone() };
                self.on_completion(local, part, broken, &mut whole, now);
            } else {
                self.end_if_over(endpoint, &mut whole);
            }
        }
        let is_its = |it: &SpreadConnection| it.parts.left().any(|left| left == part);
        let its = self.shared.iter().filter(|(_, it)| is_its(it)).map(|(&id, _)| id);
        let connections: Vec<ConnectionId> = its.collect();
        for id in connections {
            self.on_end_of_connection(local, part, id, Some(cause.clone()), &mut whole);
        }
        whole
    }

    fn on_completion(
        &mut self,
        local: &mut Connections<S>,
        part: usize,
        completion: Completion,
        whole: &mut Report,
        now: Duration,
    ) {
        let endpoint = completion.endpoint();
        let Some(spread) = self.endpoints.get_mut(&endpoint) else {
            // Of other parts the last was heard when it was given back.
            if part == 0 {
                whole.completions.push(completion);
            }
            return;
        };
        if let Completion::Sent { token, .. }
        | Completion::Received { token, .. }
        | Completion::Cancelled { token, .. } = &completion
            && let Some(at) = spread.posted[part].iter().position(|posted| posted == token)
        {
            spread.posted[part].remove(at);
        }
        match completion {
            Completion::Closed { .. } => spread.parts.end(part),
            Completion::Broken { cause, .. } => {
                spread.parts.end(part);
                let cause = spread.truest(cause);
                if spread.cause.is_none() {
                    spread.cause = Some(cause.clone());
                    self.fail(local, endpoint, &cause, now);
                }
            }
            other => whole.completions.push(other),
        }
        self.end_if_over(endpoint, whole);
    }

    /// Ends all parts of an endpoint that have not ended.
    fn fail(
        &mut self,
        local: &mut Connections<S>,
        endpoint: EndpointId,
        cause: &Cause,
        now: Duration,
    ) {
        local.fail(endpoint, cause.clone(), now);
        self.command_others(endpoint, || Command::Fail { endpoint, cause: cause.clone() });
    }

    fn end_if_over(&mut self, endpoint: EndpointId, whole: &mut Report) {
        if !self.endpoints.get(&endpoint).is_some_and(SpreadEndpoint::is_over) {
            return;
        }
        let Some(spread) = self.endpoints.remove(&endpoint) else { return };
        let connection = spread.connection;
        whole.completions.push(spread.into_end(endpoint));
        self.end_connection_if_over(connection, whole);
    }

    fn on_end_of_connection(
        &mut self,
        local: &mut Connections<S>,
        part: usize,
        connection: ConnectionId,
        cause: Option<Cause>,
        whole: &mut Report,
    ) {
        let Some(shared) = self.shared.get_mut(&connection) else { return };
        let is_first = shared.parts.ended == 0;
        shared.parts.end(part);
        if is_first {
            shared.cause = cause.clone();
            local.end_connection(connection, cause.clone());
            let end = || Command::End { connection, cause: cause.clone() };
            self.commands.extend(shared.parts.others().map(|part| (part, end())));
        }
        self.end_connection_if_over(connection, whole);
    }

    /// Reports the end of a shared connection behind those of its endpoints.
    fn end_connection_if_over(&mut self, connection: ConnectionId, whole: &mut Report) {
        let is_over = self.shared.get(&connection).is_some_and(|it| it.parts.have_ended())
            && self.endpoints.values().all(|it| it.is_reserved || it.connection != connection);
        if is_over && let Some(shared) = self.shared.remove(&connection) {
            whole.events.push(SharedEvent::Ended { connection, cause: shared.cause });
        }
    }
}

/// Takes the streams of the owner's part, of so many parts.
fn first<S>(parts: &mut impl Iterator<Item = Vec<NewStream<S>>>, count: usize) -> Streams<S> {
    let streams = parts.next().unwrap_or_default();
    if count > 1 { Streams::Part(streams) } else { Streams::All(streams) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{IoSlice, IoSliceMut},
        os::fd::BorrowedFd,
    };

    use rustix::io::Errno;
    use transport::Region;

    use super::*;
    use crate::settings::TcpSettings;

    /// Nothing comes, and nothing is accepted.
    #[derive(Debug)]
    struct Stuck;

    impl ByteStream for Stuck {
        fn read(&mut self, _: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
            Err(Errno::AGAIN)
        }

        fn write(&mut self, _: &[IoSlice<'_>]) -> Result<usize, Errno> {
            Err(Errno::AGAIN)
        }

        fn socket(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    const NOW: Duration = Duration::from_secs(1);

    struct Rig {
        local: Connections<Stuck>,
        spread: Spread<Stuck>,
        endpoint: EndpointId,
    }

    /// Returns an endpoint of three streams over two parts, whose commands were given.
    fn rig() -> Rig {
        let (mut local, mut spread) = (Connections::new(TcpSettings::default()), Spread::new(2));
        let stream = || NewStream { bytes: Stuck, keys: None, copies_directly: false };
        let (id, parts) =
            (spread.next_connection(), spread.deal((0..3).map(|_| stream()).collect()));
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let endpoint = spread.open(&mut local, id, parts, NOW);
        assert_eq!(spread.take_commands().len(), 1);
        Rig { local, spread, endpoint }
    }

    impl Rig {
        fn receive(&mut self, token: u64) -> Result<(), PostError> {
            let region = Region::zeroed(1);
            let lease = region.write(0..1).unwrap();
            self.spread.post_receive(&mut self.local, self.endpoint, lease, Token(token))
        }

        /// Returns what is reported of what a part has.
        fn hear(&mut self, part: usize, completions: Vec<Completion>) -> Vec<Completion> {
            let report = Report { completions, ..Report::default() };
            self.spread.on_report(&mut self.local, part, report, NOW).completions
        }

        /// Returns what is reported of what the owner's part has by now.
        fn hear_own(&mut self) -> Vec<Completion> {
            let mut report = Report::default();
            if self.local.has_news(NOW) {
                report = self.local.take_report();
            }
            self.spread.on_report(&mut self.local, 0, report, NOW).completions
        }
    }

    #[test]
    fn blocks_go_to_the_parts_of_their_streams() {
        let mut rig = rig();
        // Streams 0, 1, 2: parts 0, 1, 0.
        (0..6).for_each(|token| rig.receive(token).unwrap());
        let tokens = rig.spread.take_commands().into_iter().map(|(part, command)| {
            let Command::Receive { token, .. } = command else { panic!("{command:?}") };
            (part, token)
        });
        assert_eq!(tokens.collect::<Vec<_>>(), [(1, Token(1)), (1, Token(4))]);
    }

    #[test]
    fn an_endpoint_ends_once_with_its_last_part_and_its_last_post() {
        let mut rig = rig();
        let endpoint = rig.endpoint;
        (0..2).for_each(|token| rig.receive(token).unwrap());
        let cause = Cause::Lost("reset".into());
        let broken = Completion::Broken { endpoint, cause: cause.clone() };
        // The other part ends before it has heard of the post.
        assert_eq!(rig.hear(1, vec![broken.clone()]), []);
        let of_own = vec![Completion::Cancelled { endpoint, token: Token(0) }];
        assert_eq!(rig.hear_own(), of_own, "it ends, too, and the post elsewhere is open");
        assert!(rig.receive(2).is_err(), "part 0 is gone");
        let cancelled = Completion::Cancelled { endpoint, token: Token(1) };
        assert_eq!(rig.hear(1, vec![cancelled.clone()]), [cancelled, broken]);
        assert_eq!(rig.hear_own(), []);
        assert!(rig.spread.is_empty());
    }

    #[test]
    fn a_peer_has_closed_when_it_has_closed_all_streams() {
        let mut rig = rig();
        let endpoint = rig.endpoint;
        let closed_by_peer = || Report { closed_by_peer: vec![endpoint], ..Report::default() };
        rig.spread.on_report(&mut rig.local, 1, closed_by_peer(), NOW);
        assert!(rig.spread.take_commands().is_empty() && rig.receive(0).is_ok());
        rig.spread.on_report(&mut rig.local, 0, closed_by_peer(), NOW);
        let commands = rig.spread.take_commands();
        assert!(
            matches!(commands[..], [(1, Command::Fail { cause: Cause::ClosedByPeer, .. })]),
            "{commands:?}"
        );
        let broken = Completion::Broken { endpoint, cause: Cause::ClosedByPeer };
        assert_eq!(rig.hear(1, vec![broken.clone()]), []);
        let cancelled = Completion::Cancelled { endpoint, token: Token(0) };
        assert_eq!(rig.hear_own(), [cancelled, broken]);
    }

    #[test]
    fn a_lost_thread_ends_what_it_served() {
        let mut rig = rig();
        let endpoint = rig.endpoint;
        (0..2).for_each(|token| rig.receive(token).unwrap());
        let whole = rig.spread.on_lost_part(&mut rig.local, 1, NOW);
        assert_eq!(whole.completions, [Completion::Cancelled { endpoint, token: Token(1) }]);
        assert!(
            rig.receive(2).is_err() && rig.receive(3).is_err(),
            "no thread would complete them"
        );
        let reported = rig.hear_own();
        assert!(
            matches!(&reported[..], [Completion::Cancelled { .. }, Completion::Broken { endpoint: of, cause: Cause::Lost(_) }] if *of == endpoint),
            "{reported:?}"
        );
        assert!(rig.spread.is_empty());
    }
    #[test]
    fn a_lost_thread_cancels_what_it_was_given_after_its_part_had_ended() {
        let mut rig = rig();
        let endpoint = rig.endpoint;
        (0..2).for_each(|token| rig.receive(token).unwrap());
        let broken = Completion::Broken { endpoint, cause: Cause::Lost("reset".into()) };
        assert_eq!(rig.hear(1, vec![broken.clone()]), []);
        let own = vec![Completion::Cancelled { endpoint, token: Token(0) }];
        assert_eq!(rig.hear_own(), own);
        let whole = rig.spread.on_lost_part(&mut rig.local, 1, NOW);
        let cancelled = Completion::Cancelled { endpoint, token: Token(1) };
        assert_eq!(whole.completions, [cancelled, broken]);
        assert!(rig.spread.is_empty());
    }
}
