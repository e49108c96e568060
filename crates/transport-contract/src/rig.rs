//! The rig: members under test, their posts, and the invariants on completions.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    ops::Range,
    time::Duration,
};

use transport::{
    Arriving, Completion, EndpointId, OneSidedWrites, PeerMemory, PostError, Region, Token,
    Transport, TriggeredSends, Visibility,
};

use crate::harness::{Harness, Network};

/// The longest wait of a clause, by the clock of the transport.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a member waits in `poll` when no member has reported anything.
const TURN: Duration = Duration::from_millis(1);

/// How many of the last posts and completions are printed when a clause fails.
const TRACE_LINES_MAX: usize = 100;

/// The kind of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    Receive,
}

/// A post that has not completed.
struct Post {
    endpoint: EndpointId,
    kind: Kind,
    region: Region,
    range: Range<usize>,
    /// No other lease of the range exists, so the range must be free when the post completes.
    alone: bool,
}

/// Members under test. Methods identify an endpoint by its member and the member at the other end.
pub(crate) struct Rig<'h, H: Harness> {
    harness: &'h mut H,
    network: Network<H::Transport>,
    /// Members that the rig does not poll at present.
    unpolled: HashSet<usize>,
    posts: HashMap<(usize, Token), Post>,
    /// All completions, in order, with the member that reported them.
    pub(crate) seen: Vec<(usize, Completion)>,
    ended: HashMap<(usize, EndpointId), Completion>,
    done: HashMap<(usize, Token), Completion>,
    /// The immediates of receives whose blocks have begun to arrive.
    begun: HashMap<(usize, Token), u32>,
    trace: VecDeque<String>,
    /// The token of the next post; may be set.
    pub(crate) next_token: u64,
    next_waiting: usize,
}

impl<'h, H: Harness> Rig<'h, H> {
    pub(crate) fn new(harness: &'h mut H, members: usize) -> Self {
        let network = harness.network(members);
        assert_eq!(network.members.len(), members, "the harness made the wrong network");
        for (member, row) in network.endpoints.iter().enumerate() {
            let distinct: HashSet<_> = row.iter().flatten().collect();
            assert_eq!(distinct.len(), members - 1, "endpoints of member {member}: {row:?}");
            assert!(row[member].is_none());
        }
        Self {
            harness,
            network,
            unpolled: HashSet::new(),
            posts: HashMap::new(),
            seen: Vec::new(),
            ended: HashMap::new(),
            done: HashMap::new(),
            begun: HashMap::new(),
            trace: VecDeque::new(),
            next_token: 1000,
            next_waiting: 0,
        }
    }

    pub(crate) fn harness(&self) -> &H {
        self.harness
    }

    pub(crate) fn transport(&mut self, member: usize) -> &mut H::Transport {
        self.network.members[member].as_mut().expect("the member is alive")
    }

    /// Returns the one-sided writes of a transport that has them.
    pub(crate) fn writes(&mut self, member: usize) -> &mut dyn OneSidedWrites {
        self.transport(member).one_sided().expect("the transport has one-sided writes")
    }

    fn triggered(&mut self, member: usize) -> &mut dyn TriggeredSends {
        self.transport(member).triggered().expect("the transport has triggered sends")
    }

    pub(crate) fn endpoint(&self, member: usize, peer: usize) -> EndpointId {
        self.network.endpoints[member][peer].expect("not its own peer")
    }

    fn note(&mut self, line: fmt::Arguments<'_>) {
        if self.trace.len() == TRACE_LINES_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(line.to_string());
    }

    /// Posts a receive of a range; nothing else may use that range.
    pub(crate) fn receive(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
    ) -> Token {
        self.try_receive(member, peer, region, range).expect("a receive is accepted")
    }

    pub(crate) fn try_receive(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
    ) -> Result<Token, PostError> {
        let endpoint = self.endpoint(member, peer);
        let token = self.take_token();
        let lease = region.write(range.clone()).expect("the memory is free");
        let answer = self.transport(member).post_receive(endpoint, lease, token);
        self.posted(member, token, answer, endpoint, Kind::Receive, region, range, true)
    }

    /// Posts a send of a range; nothing else may use that range.
    pub(crate) fn send(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
        immediate: u32,
    ) -> Token {
        self.try_send(member, peer, region, range, immediate).expect("a send is accepted")
    }

    pub(crate) fn try_send(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
        immediate: u32,
    ) -> Result<Token, PostError> {
        self.start_send(member, peer, region, range, immediate, true)
    }

    /// Posts a send of a range that other posts send at the same time.
    pub(crate) fn send_shared(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        immediate: u32,
    ) -> Token {
        self.start_send(member, peer, region, 0..region.len(), immediate, false)
            .expect("a send is accepted")
    }

    fn start_send(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
        immediate: u32,
        alone: bool,
    ) -> Result<Token, PostError> {
        let endpoint = self.endpoint(member, peer);
        let token = self.take_token();
        let lease = region.read(range.clone()).expect("the memory is free");
        let answer = self.transport(member).post_send(endpoint, lease, immediate, token);
        self.posted(member, token, answer, endpoint, Kind::Send, region, range, alone)
    }

    /// Posts a receive whose block may be sent on while it arrives.
    pub(crate) fn followed_receive(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
    ) -> (Token, Arriving) {
        let endpoint = self.endpoint(member, peer);
        let token = self.take_token();
        let mut lease = region.write(range.clone()).expect("the memory is free");
        let arriving = lease.arriving();
        let answer = self.transport(member).post_receive(endpoint, lease, token);
        self.posted(member, token, answer, endpoint, Kind::Receive, region, range, false)
            .expect("a receive is accepted");
        (token, arriving)
    }

    /// Posts a send of the first bytes of a region, which may still arrive.
    pub(crate) fn cut_through_send(
        &mut self,
        member: usize,
        peer: usize,
        arriving: &Arriving,
        region: &Region,
        bytes: usize,
        immediate: u32,
    ) -> Token {
        let endpoint = self.endpoint(member, peer);
        let token = self.take_token();
        let read = arriving.read(bytes).expect("there is no other writer");
        let sends = self.transport(member).cut_through().expect("the transport has them");
        let answer = sends.post_cut_through_send(endpoint, read, immediate, token);
        self.posted(member, token, answer, endpoint, Kind::Send, region, 0..bytes, false)
            .expect("a send is accepted")
    }

    /// Returns the immediate of a receive whose block was reported to have begun.
    pub(crate) fn arriving(&self, member: usize, token: Token) -> Option<u32> {
        self.begun.get(&(member, token)).copied()
    }

    /// Posts an offloaded receive. Offloaded sends may wait for the range.
    pub(crate) fn offloaded_receive(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
        immediate: u32,
    ) -> Token {
        self.try_offloaded_receive(member, peer, region, range, immediate)
            .expect("an offloaded receive is accepted")
    }

    pub(crate) fn try_offloaded_receive(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
        immediate: u32,
    ) -> Result<Token, PostError> {
        let endpoint = self.endpoint(member, peer);
        let token = self.take_token();
        let lease = region.write(range.clone()).expect("the memory is free");
        let sends = self.triggered(member);
        let answer = sends.post_offloaded_receive(endpoint, lease, immediate, token);
        self.posted(member, token, answer, endpoint, Kind::Receive, region, range, false)
    }

    /// Posts an offloaded send of a range whose receive may not have completed.
    pub(crate) fn offloaded_send(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
        immediate: u32,
        after: &[(EndpointId, Token)],
    ) -> Token {
        self.try_offloaded_send(member, peer, region, range, immediate, after)
            .expect("an offloaded send is accepted")
    }

    pub(crate) fn try_offloaded_send(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        range: Range<usize>,
        immediate: u32,
        after: &[(EndpointId, Token)],
    ) -> Result<Token, PostError> {
        let endpoint = self.endpoint(member, peer);
        let token = self.take_token();
        let from = region.future_read(range.clone()).expect("the range is in the region");
        let sends = self.triggered(member);
        let answer = sends.post_offloaded_send(endpoint, from, immediate, token, after);
        self.posted(member, token, answer, endpoint, Kind::Send, region, range, false)
    }

    /// Lets `peer` write into memory of `member`.
    pub(crate) fn expose(&mut self, member: usize, peer: usize, key: u32, memory: &PeerMemory) {
        self.try_expose(member, peer, key, memory).expect("memory may be exposed");
    }

    pub(crate) fn try_expose(
        &mut self,
        member: usize,
        peer: usize,
        key: u32,
        memory: &PeerMemory,
    ) -> Result<(), PostError> {
        let endpoint = self.endpoint(member, peer);
        let answer = self.writes(member).expose(endpoint, key, memory.clone());
        self.note(format_args!("member {member} exposes {key} on {endpoint:?}: {answer:?}"));
        answer
    }

    /// Returns what a member's transport vouches for about the writes of `peer`.
    pub(crate) fn visibility(&mut self, member: usize, peer: usize) -> Visibility {
        let endpoint = self.endpoint(member, peer);
        self.writes(member).visibility(endpoint)
    }

    /// Writes a whole region, which other posts may write at the same time, to a key and offset.
    /// Without an immediate the peer does not report it.
    pub(crate) fn write_to(
        &mut self,
        member: usize,
        peer: usize,
        region: &Region,
        key: u32,
        offset: u64,
        immediate: impl Into<Option<u32>>,
    ) -> Token {
        let (endpoint, range) = (self.endpoint(member, peer), 0..region.len());
        let token = self.take_token();
        let lease = region.read(range.clone()).expect("readers share");
        let writes = self.writes(member);
        let answer = writes.post_write(endpoint, lease, key, offset, immediate.into(), token);
        self.posted(member, token, answer, endpoint, Kind::Send, region, range, false)
            .expect("a write is accepted")
    }

    fn take_token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token = self.next_token.wrapping_add(1);
        token
    }

    #[allow(clippy::too_many_arguments, reason = "one private place where posts are recorded")]
    fn posted(
        &mut self,
        member: usize,
        token: Token,
        answer: Result<(), PostError>,
        endpoint: EndpointId,
        kind: Kind,
        region: &Region,
        range: Range<usize>,
        alone: bool,
    ) -> Result<Token, PostError> {
        self.note(format_args!(
            "member {member} posts {kind:?} of {range:?} on {endpoint:?} as {token:?}: {answer:?}"
        ));
        if let Err(error) = answer {
            let free = !alone || region.write(range).is_ok();
            assert!(free, "a refused post ({error}) keeps its lease");
            return Err(error);
        }
        let post = Post { endpoint, kind, region: region.clone(), range, alone };
        let other = self.posts.insert((member, token), post);
        assert!(other.is_none(), "the suite used {token:?} twice");
        Ok(token)
    }

    pub(crate) fn write(&mut self, member: usize, peer: usize, word: &[u8]) {
        self.try_write(member, peer, word).expect("a control word is accepted");
    }

    pub(crate) fn try_write(
        &mut self,
        member: usize,
        peer: usize,
        word: &[u8],
    ) -> Result<(), PostError> {
        let endpoint = self.endpoint(member, peer);
        let answer = self.transport(member).write_control(endpoint, word);
        let bytes = word.len();
        self.note(format_args!(
            "member {member} writes a word of {bytes} bytes on {endpoint:?}: {answer:?}"
        ));
        answer
    }

    pub(crate) fn close(&mut self, member: usize, peer: usize) {
        let endpoint = self.endpoint(member, peer);
        self.note(format_args!("member {member} closes {endpoint:?}"));
        self.transport(member).close(endpoint);
    }

    /// Kills a member; its posts are removed.
    pub(crate) fn kill(&mut self, member: usize) {
        self.note(format_args!("member {member} is killed"));
        self.harness.kill(&mut self.network, member);
        assert!(self.network.members[member].is_none(), "the harness did not kill");
        self.posts.retain(|&(owner, _), _| owner != member);
    }

    /// Calls [`Harness::silence`].
    pub(crate) fn silence(&mut self, member: usize) -> Option<Duration> {
        let within = self.harness.silence(&mut self.network, member)?;
        self.note(format_args!("member {member} falls silent"));
        self.unpolled.insert(member);
        Some(within)
    }

    /// Stops or resumes polling a member.
    pub(crate) fn set_polled(&mut self, member: usize, polled: bool) {
        self.note(format_args!("member {member} polls: {polled}"));
        if polled {
            self.unpolled.remove(&member);
        } else {
            self.unpolled.insert(member);
        }
    }

    /// Polls one member, and processes its completions. Returns how many there were.
    pub(crate) fn poll(&mut self, member: usize, wait: Duration) -> usize {
        let mut completions = Vec::new();
        self.transport(member).poll(&mut completions, wait);
        let count = completions.len();
        for completion in completions {
            self.take_in(member, completion);
        }
        count
    }

    /// Checks the invariants on a completion, whatever the clause.
    fn take_in(&mut self, member: usize, completion: Completion) {
        match &completion {
            Completion::Control { word, .. } => {
                self.note(format_args!("member {member} gets a word of {} bytes", word.len()));
            }
            other => self.note(format_args!("member {member} gets {other:?}")),
        }
        let endpoint = completion.endpoint();
        let known = self.network.endpoints[member].contains(&Some(endpoint));
        assert!(known, "member {member} has no {endpoint:?}");
        let end = self.ended.get(&(member, endpoint));
        assert!(end.is_none(), "{completion:?} at member {member} follows {end:?}");
        match &completion {
            Completion::Sent { token, .. } => {
                self.take_back(member, *token, &completion, Some(Kind::Send));
            }
            Completion::Received { token, .. } => {
                self.take_back(member, *token, &completion, Some(Kind::Receive));
            }
            Completion::Cancelled { token, .. } => {
                self.take_back(member, *token, &completion, None);
            }
            Completion::Arriving { token, immediate, .. } => {
                let post = self.posts.get(&(member, *token));
                let kind = post.map(|post| (post.kind, post.endpoint));
                assert_eq!(kind, Some((Kind::Receive, endpoint)), "{completion:?}");
                let before = self.begun.insert((member, *token), *immediate);
                assert_eq!(before, None, "{completion:?} is reported twice");
            }
            Completion::Control { word, .. } => {
                let fits = (1..=transport::CONTROL_BYTES_MAX).contains(&word.len());
                assert!(fits, "a control word of {} bytes", word.len());
            }
            Completion::Written { .. } | Completion::Halted { .. } => {}
            Completion::Broken { .. } | Completion::Closed { .. } => {
                let open = self
                    .posts
                    .iter()
                    .filter(|((owner, _), post)| *owner == member && post.endpoint == endpoint)
                    .count();
                assert_eq!(open, 0, "member {member}: {completion:?} with posts open");
                self.ended.insert((member, endpoint), completion.clone());
            }
            other => panic!("the suite has no rule about {other:?}"),
        }
        self.seen.push((member, completion));
    }

    /// Checks that the completed post exists, completes for the first time, and that its memory is
    /// free.
    fn take_back(
        &mut self,
        member: usize,
        token: Token,
        completion: &Completion,
        kind: Option<Kind>,
    ) {
        let post = self.posts.remove(&(member, token));
        let post = post.unwrap_or_else(|| panic!("{completion:?} at member {member}: not posted"));
        let (Completion::Sent { endpoint, .. }
        | Completion::Received { endpoint, .. }
        | Completion::Cancelled { endpoint, .. }) = completion
        else {
            unreachable!("only these hand back");
        };
        assert_eq!(post.endpoint, *endpoint, "{completion:?}");
        assert!(kind.is_none_or(|kind| kind == post.kind), "{completion:?} of a {:?}", post.kind);
        if let Completion::Received { bytes, .. } = completion {
            assert!(*bytes <= post.range.len() as u64, "{completion:?} into {:?}", post.range);
        }
        if post.alone && post.region.is_writable() {
            let free = post.region.write(post.range.clone());
            assert!(free.is_ok(), "{completion:?} is reported, but {:?}", free.err());
        }
        self.done.insert((member, token), completion.clone());
    }

    /// Returns how a post completed, if it has.
    pub(crate) fn outcome(&self, member: usize, token: Token) -> Option<&Completion> {
        self.done.get(&(member, token))
    }

    /// Returns whether a post was completed. Panics if it was cancelled.
    pub(crate) fn succeeded(&self, member: usize, token: Token) -> bool {
        let outcome = self.outcome(member, token);
        assert!(!matches!(outcome, Some(Completion::Cancelled { .. })), "{outcome:?}");
        outcome.is_some()
    }

    /// Returns the last completion of an endpoint, if it has ended.
    pub(crate) fn end(&self, member: usize, peer: usize) -> Option<&Completion> {
        self.ended.get(&(member, self.endpoint(member, peer)))
    }

    /// Returns the control words received, in order.
    pub(crate) fn words(&self, member: usize, peer: usize) -> Vec<&[u8]> {
        let from = self.endpoint(member, peer);
        let of = |(owner, completion): &'_ (usize, Completion)| {
            *owner == member
                && matches!(completion, Completion::Control { endpoint, .. } if *endpoint == from)
        };
        self.seen
            .iter()
            .filter(|seen| of(seen))
            .filter_map(|(_, completion)| match completion {
                Completion::Control { word, .. } => Some(word.as_slice()),
                _ => None,
            })
            .collect()
    }

    /// Returns the immediates of the writes received, in order.
    pub(crate) fn written(&self, member: usize, peer: usize) -> Vec<u32> {
        let from = self.endpoint(member, peer);
        let immediate_of = |(owner, completion): &(usize, Completion)| match completion {
            Completion::Written { endpoint, immediate } => {
                (*owner == member && *endpoint == from).then_some(*immediate)
            }
            _ => None,
        };
        self.seen.iter().filter_map(immediate_of).collect()
    }

    fn polled_members(&self) -> Vec<usize> {
        let alive = |&member: &usize| self.network.members[member].is_some();
        let polled = |member: &usize| !self.unpolled.contains(member);
        (0..self.network.members.len()).filter(alive).filter(polled).collect()
    }

    /// Polls all members once; if none has anything to report, one waits for a short time.
    fn turn(&mut self) {
        let members = self.polled_members();
        let reported: usize = members.iter().map(|&member| self.poll(member, Duration::ZERO)).sum();
        if reported == 0 {
            self.next_waiting += 1;
            self.poll(members[self.next_waiting % members.len()], TURN);
        }
    }

    /// Returns the time by the clock that deadlines use.
    pub(crate) fn now(&self) -> Duration {
        let first = self.polled_members()[0];
        self.network.members[first].as_ref().expect("it is alive").now()
    }

    /// Polls all members in turn until `enough` returns true. `what` names what is waited for.
    pub(crate) fn pump(&mut self, what: &str, enough: impl Fn(&Self) -> bool) {
        let deadline = self.now() + PATIENCE;
        while !enough(self) {
            assert!(self.now() < deadline, "waited {PATIENCE:?} in vain: {what}");
            self.turn();
        }
    }

    /// Polls all members in turn for a while, to check that nothing more is reported.
    pub(crate) fn pump_for(&mut self, while_: Duration) {
        let until = self.now() + while_;
        while self.now() < until {
            self.turn();
        }
    }
}

impl<H: Harness> Drop for Rig<'_, H> {
    /// A failed clause prints its last posts and completions.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last {} posts and completions:", self.trace.len());
            self.trace.iter().for_each(|line| eprintln!("  {line}"));
            eprintln!("{}", self.harness.describe());
        }
    }
}
