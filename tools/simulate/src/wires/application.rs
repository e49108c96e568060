//! What uses a channel at one end: posts, writes, and checks what comes.

use transport::{
    Arriving, CONTROL_BYTES_MAX, Completion, EndpointId, PeerMemory, PostError, Region, Token,
};

use super::{
    canary::WireCanary,
    facts::{ChannelEnd, Facts},
    scenario::ChannelPlan,
    threads::Threads,
};

/// The key of all exposed memory.
const KEY: u32 = 9;
/// What memory has before something comes.
const POISON: u8 = 0xEE;

/// How many words may come for a channel before it is opened: about half of what the transport keeps.
const EARLY_WORDS_MAX: u32 = 500;

/// First bytes of control words; a number of 4 bytes follows.
const HELLO: u8 = 0;
const CREDIT: u8 = 1;
const WORD: u8 = 2;
const FILL: u8 = 3;

/// The longest body of a record, but for a frame that selects the channel.
const RECORD_BYTES_MAX: usize = (64 << 10) + 1024 - 16;

/// The upper half of tokens.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const WRITE: u64 = 2;

/// What an application may use while it acts.
pub(super) struct Here<'h, 'f> {
    pub(super) connections: &'h mut Threads,
    pub(super) facts: &'h mut Facts<'f>,
    pub(super) canary: Option<WireCanary>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    Closing,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Posted,
    Done,
    Cancelled,
}

/// A post and its memory.
struct Posted {
    state: State,
    /// `None` for the memory of another post.
    region: Option<Region>,
    arriving: Option<Arriving>,
    has_begun: bool,
}

/// The application of one channel at one end.
pub(super) struct Application<'a> {
    plan: &'a ChannelPlan,
    /// Connection, channel, end.
    pub(super) at: (usize, usize, usize),
    streams: usize,
    pub(super) endpoint: EndpointId,
    pub(super) phase: Phase,
    /// Receives, sends and writes, in the order in which they were posted.
    posts: [Vec<Posted>; 3],
    /// Receives that the other end has granted.
    credits: usize,
    /// The other end has opened the channel, and exposes its memory.
    is_met: bool,
    words_sent: [u32; 4],
    words_heard: u32,
    words_of_plan_heard: u32,
    exposed: PeerMemory,
    written: usize,
    /// Memory that a planted bug holds.
    kept: Vec<transport::ReadLease>,
}

impl<'a> Application<'a> {
    pub(super) fn new(
        plan: &'a ChannelPlan,
        at: (usize, usize, usize),
        streams: usize,
        endpoint: EndpointId,
    ) -> Self {
        let exposed = vec![POISON; plan.flows[1 - at.2].exposed_bytes()];
        Self {
            plan,
            at,
            streams,
            endpoint,
            phase: Phase::Open,
            posts: [const { Vec::new() }; 3],
            credits: 0,
            is_met: false,
            words_sent: [0; 4],
            words_heard: 0,
            words_of_plan_heard: 0,
            exposed: PeerMemory::from_vec(exposed),
            written: 0,
            kept: Vec::new(),
        }
    }

    fn violated(&self, what: &str, facts: &mut Facts<'_>) {
        let (connection, channel, end) = self.at;
        facts.violated(format!("connection {connection}, channel {channel}, end {end}: {what}"));
    }

    /// Begins: the other end may write from now on.
    pub(super) fn begin(&mut self, here: &mut Here<'_, '_>) {
        let exposed = here.connections.expose(self.endpoint, KEY, self.exposed.clone());
        self.accepted(exposed, here);
        self.write_word(HELLO, here);
    }

    /// Returns whether a post was accepted, which it always is unless the channel has just ended.
    fn accepted(&self, outcome: Result<(), PostError>, here: &mut Here<'_, '_>) -> bool {
        match outcome {
            Ok(()) => true,
            Err(PostError::EndpointGone(_)) => false,
            Err(error) => {
                self.violated(&format!("a post was refused: {error}"), here.facts);
                false
            }
        }
    }

    fn write_word(&mut self, tag: u8, here: &mut Here<'_, '_>) {
        let number = self.words_sent.iter().sum::<u32>();
        let word = word(tag, number, self.at);
        let written = here.connections.write_control(self.endpoint, &word);
        if self.accepted(written, here) {
            self.words_sent[usize::from(tag)] += 1;
        }
    }

    /// Does some of what there is to do, at random. Returns whether there is more.
    pub(super) fn work(&mut self, here: &mut Here<'_, '_>) -> bool {
        loop {
            let mut possible = Vec::new();
            if self.phase == Phase::Open {
                possible.extend(self.can_receive().then_some(RECEIVE));
                possible.extend(self.can_send().then_some(SEND));
                possible.extend(self.can_write().then_some(WRITE));
                let words = self.own_flow().words;
                let words = if self.is_met { words } else { words.min(EARLY_WORDS_MAX) };
                let has_words = self.words_sent[usize::from(WORD)] < words;
                possible.extend(has_words.then_some(u64::MAX));
            }
            if possible.is_empty() {
                return false;
            }
            match here.facts.dice.pick(&possible) {
                RECEIVE => self.receive(here),
                SEND => self.send(here),
                WRITE => self.write(here),
                _ => self.write_word(WORD, here),
            }
            if here.facts.dice.percent(30) {
                return true;
            }
        }
    }

    fn own_flow(&self) -> &'a super::scenario::FlowPlan {
        &self.plan.flows[self.at.2]
    }

    fn peer_flow(&self) -> &'a super::scenario::FlowPlan {
        &self.plan.flows[1 - self.at.2]
    }

    fn own_blocks(&self) -> &'a [usize] {
        self.plan.blocks(self.at.2)
    }

    fn peer_blocks(&self) -> &'a [usize] {
        self.plan.blocks(1 - self.at.2)
    }

    fn is_echo(&self) -> bool {
        self.plan.is_echoed && self.at.2 == 1
    }

    fn can_receive(&self) -> bool {
        let posted = &self.posts[RECEIVE as usize];
        let open = posted.iter().filter(|post| post.state == State::Posted).count();
        posted.len() < self.peer_blocks().len() && open < self.peer_flow().window
    }

    fn can_send(&self) -> bool {
        let next = self.posts[SEND as usize].len();
        let is_there = !self.is_echo()
            || self.posts[RECEIVE as usize]
                .get(next)
                .is_some_and(|post| post.state == State::Done || post.has_begun);
        next < self.own_blocks().len().min(self.credits) && is_there
    }

    fn can_write(&self) -> bool {
        self.is_met && self.posts[WRITE as usize].len() < self.own_flow().writes.len()
    }

    fn receive(&mut self, here: &mut Here<'_, '_>) {
        let number = self.posts[RECEIVE as usize].len();
        let more = here.facts.dice.below(3) as usize;
        let region = Region::from_vec(vec![POISON; self.peer_blocks()[number] + more]);
        let Ok(mut lease) = region.write(0..region.len()) else { return };
        let arriving = self.is_echo().then(|| lease.arriving());
        let posted = here.connections.post_receive(self.endpoint, lease, token(RECEIVE, number));
        if self.accepted(posted, here) {
            self.posted(RECEIVE, Some(region), arriving);
            self.write_word(CREDIT, here);
        }
    }

    fn send(&mut self, here: &mut Here<'_, '_>) {
        let number = self.posts[SEND as usize].len();
        let (bytes, immediate) = (self.own_blocks()[number], immediate(number, self.at));
        let (at, token) = (self.endpoint, token(SEND, number));
        if self.is_echo()
            && let Some(post) = self.posts[RECEIVE as usize].get(number)
            && let Some(arriving) = &post.arriving
        {
            if here.canary == Some(WireCanary::SendsTooSoon) && post.state == State::Posted {
                let region = Region::zeroed(bytes);
                let Ok(lease) = region.read(0..bytes) else { return };
                let posted = here.connections.post_send(at, lease, immediate, token);
                if self.accepted(posted, here) {
                    self.posted(SEND, None, None);
                }
                return;
            }
            let Ok(read) = arriving.read(bytes) else {
                self.violated("what arrives cannot be read", here.facts);
                return;
            };
            here.facts.counts.cut_through += u64::from(post.state == State::Posted);
            let posted = here.connections.post_cut_through_send(at, read, immediate, token);
            if self.accepted(posted, here) {
                self.posted(SEND, None, None);
            }
            return;
        }
        if bytes == 0 && self.own_flow().fills_record && self.is_met {
            self.fill_record(here);
        }
        let (_, _, end) = self.at;
        let region = Region::from_vec(block(bytes, number, end, self.at));
        let Ok(lease) = region.read(0..bytes) else { return };
        if here.canary == Some(WireCanary::KeepsMemory) && here.facts.dice.percent(5) {
            self.kept.extend(region.read(0..bytes));
        }
        let posted = here.connections.post_send(at, lease, immediate, token);
        if self.accepted(posted, here) {
            self.posted(SEND, Some(region), None);
        }
    }

    /// Writes as many control words as fit into one record, once.
    fn fill_record(&mut self, here: &mut Here<'_, '_>) {
        if self.words_sent[usize::from(FILL)] > 0 {
            return;
        }
        let (first, mut free_bytes) = (self.words_sent.iter().sum::<u32>(), RECORD_BYTES_MAX);
        for number in first.. {
            // A header stands before each.
            let frame_bytes = 16 + word(FILL, number, self.at).len();
            let Some(rest_bytes) = free_bytes.checked_sub(frame_bytes) else { return };
            free_bytes = rest_bytes;
            self.write_word(FILL, here);
        }
    }

    fn write(&mut self, here: &mut Here<'_, '_>) {
        let number = self.posts[WRITE as usize].len();
        let (flow, (_, _, end)) = (self.own_flow(), self.at);
        let bytes = flow.writes[number].bytes;
        let offset: usize = flow.writes[..number].iter().map(|write| write.bytes).sum();
        let region = Region::from_vec(block(bytes, number + 1_000, end, self.at));
        let Ok(lease) = region.read(0..bytes) else { return };
        let immediate = flow.is_reported(number).then(|| immediate(number, self.at));
        let token = token(WRITE, number);
        let (key, offset) = (KEY, offset as u64);
        let posted =
            here.connections.post_write(self.endpoint, lease, key, offset, immediate, token);
        if self.accepted(posted, here) {
            self.posted(WRITE, Some(region), None);
        }
    }

    fn posted(&mut self, kind: u64, region: Option<Region>, arriving: Option<Arriving>) {
        let posted = Posted { state: State::Posted, region, arriving, has_begun: false };
        self.posts[kind as usize].push(posted);
    }

    /// Closes the channel, if it is open.
    pub(super) fn close(&mut self, here: &mut Here<'_, '_>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            let now = std::time::Duration::from_nanos(here.facts.now_ns);
            here.facts.note(|| format!("{:?} closes", self.at));
            if here.canary != Some(WireCanary::ForgetsClose) || !here.facts.dice.percent(20) {
                here.connections.close(self.endpoint, now);
            }
        }
    }

    /// Returns whether it has sent and received everything.
    pub(super) fn is_done(&self) -> bool {
        let done = |kind: u64, count: usize| {
            let posts = &self.posts[kind as usize];
            posts.len() == count && posts.iter().all(|post| post.state == State::Done)
        };
        done(RECEIVE, self.peer_blocks().len())
            && done(SEND, self.own_blocks().len())
            && done(WRITE, self.own_flow().writes.len())
            && self.words_sent[usize::from(WORD)] == self.own_flow().words
            && self.words_of_plan_heard == self.peer_flow().words
            && self.written == self.peer_flow().reported_writes()
    }

    /// Takes what is reported of its endpoint. Returns how the channel has ended, if it has.
    pub(super) fn complete(
        &mut self,
        completion: Completion,
        facts: &mut Facts<'_>,
    ) -> Option<ChannelEnd> {
        if self.phase == Phase::Ended {
            self.violated(&format!("{completion:?} after its end"), facts);
            return None;
        }
        match completion {
            Completion::Sent { token, .. } => self.finish(token, State::Done, facts),
            Completion::Cancelled { token, .. } => self.finish(token, State::Cancelled, facts),
            Completion::Arriving { token, .. } => self.begins(token, facts),
            Completion::Received { token, bytes, immediate, .. } => {
                self.received(token, bytes as usize, immediate, facts);
            }
            Completion::Written { immediate, .. } => self.has_written(immediate, facts),
            Completion::Control { word, .. } => self.hear(&word, facts),
            Completion::Closed { .. } => return Some(self.end(ChannelEnd::Closed, facts)),
            Completion::Broken { cause, .. } => {
                return Some(self.end(ChannelEnd::Broken(cause), facts));
            }
            other => self.violated(&format!("{other:?}"), facts),
        }
        None
    }

    /// Returns the post of a token, if it is under way.
    fn post(&mut self, token: Token, facts: &mut Facts<'_>) -> Option<(u64, usize)> {
        let (kind, number) = (token.0 >> 32, token.0 as u32 as usize);
        let post = self.posts.get(kind as usize).and_then(|posts| posts.get(number));
        if post.is_some_and(|post| post.state == State::Posted) {
            return Some((kind, number));
        }
        self.violated(&format!("post {kind}/{number} has completed, and was not posted"), facts);
        None
    }

    fn finish(&mut self, token: Token, state: State, facts: &mut Facts<'_>) {
        let Some((kind, number)) = self.post(token, facts) else { return };
        let (_, _, end) = self.at;
        facts.digest(&[2, end as u64, kind, number as u64, u64::from(state == State::Done)]);
        if kind == RECEIVE && state == State::Done {
            self.violated("a receive was sent", facts);
        }
        self.posts[kind as usize][number].state = state;
        facts.counts.writes += u64::from(kind == WRITE && state == State::Done);
        if kind != RECEIVE {
            self.check_returned(kind, number, facts);
        }
    }

    /// Checks that nobody uses the memory of a post any longer.
    fn check_returned(&self, kind: u64, number: usize, facts: &mut Facts<'_>) {
        if let Some(region) = &self.posts[kind as usize][number].region
            && region.write(0..region.len()).is_err()
        {
            self.violated(&format!("the memory of {kind}/{number} is in use"), facts);
        }
    }

    fn begins(&mut self, token: Token, facts: &mut Facts<'_>) {
        let Some((_, number)) = self.post(token, facts) else { return };
        let post = &mut self.posts[RECEIVE as usize][number];
        if post.arriving.is_none() || std::mem::replace(&mut post.has_begun, true) {
            self.violated(&format!("receive {number} arrives again, or is not followed"), facts);
        }
    }

    fn received(&mut self, token: Token, bytes: usize, with: u32, facts: &mut Facts<'_>) {
        let Some((_, number)) = self.post(token, facts) else { return };
        let (connection, channel, end) = self.at;
        facts.digest(&[3, end as u64, number as u64, bytes as u64]);
        facts.note(|| format!("{:?} receives block {number}", self.at));
        facts.counts.blocks += 1;
        let posts = &mut self.posts[RECEIVE as usize];
        let before = posts[..number].iter().filter(|it| it.state == State::Posted).count();
        posts[number].state = State::Done;
        if before > 0 && self.streams == 1 {
            self.violated(&format!("block {number} came before others"), facts);
        }
        if facts.may_differ(connection) {
            return;
        }
        let expected = self.peer_blocks()[number];
        if bytes != expected || with != immediate(number, (connection, channel, 1 - end)) {
            self.violated(&format!("block {number}: {bytes} bytes with {with}"), facts);
        }
        let post = &self.posts[RECEIVE as usize][number];
        let Some(region) = &post.region else { return };
        let Ok(lease) = region.read(0..region.len()) else {
            self.violated(&format!("the memory of block {number} is in use"), facts);
            return;
        };
        // What comes back was sent by this end.
        let by = if self.plan.is_echoed { 0 } else { 1 - end };
        let is_right = lease[..expected.min(bytes)] == block(expected, number, by, self.at)[..];
        // Memory that is followed has no contents but its block.
        let is_untouched =
            post.arriving.is_some() || lease[bytes..].iter().all(|&byte| byte == POISON);
        if !is_right || !is_untouched {
            self.violated(&format!("block {number} has other bytes"), facts);
        }
    }

    fn has_written(&mut self, with: u32, facts: &mut Facts<'_>) {
        let (connection, channel, end) = self.at;
        facts.digest(&[4, end as u64, u64::from(with)]);
        let flow = self.peer_flow();
        let mut reported = (0..flow.writes.len()).filter(|&write| flow.is_reported(write));
        let number = reported.nth(self.written);
        self.written += 1;
        if facts.may_differ(connection) {
            return;
        }
        let from = (connection, channel, 1 - end);
        let Some(number) = number.filter(|&number| with == immediate(number, from)) else {
            self.violated(&format!("a write that reports {with}"), facts);
            return;
        };
        let mut offset = 0;
        for (write, plan) in flow.writes[..=number].iter().enumerate() {
            let mut bytes = vec![0; plan.bytes];
            let is_read = self.exposed.copy_out(offset, &mut bytes).is_ok();
            if !is_read || bytes != block(plan.bytes, write + 1_000, 1 - end, self.at) {
                self.violated(&format!("write {write} has other bytes"), facts);
            }
            offset += plan.bytes;
        }
    }

    fn hear(&mut self, heard: &[u8], facts: &mut Facts<'_>) {
        let (connection, channel, end) = self.at;
        let tag = heard[0];
        facts.digest(&[5, end as u64, u64::from(tag), u64::from(self.words_heard)]);
        facts.counts.words += 1;
        let is_right = heard == word(tag, self.words_heard, (connection, channel, 1 - end));
        if !is_right && !facts.may_differ(connection) {
            let number = self.words_heard;
            self.violated(&format!("{heard:02x?} in place of word {number}"), facts);
        }
        self.words_heard += 1;
        match tag {
            HELLO => self.is_met = true,
            CREDIT => self.credits += 1,
            FILL => {}
            _ => self.words_of_plan_heard += 1,
        }
    }

    fn end(&mut self, end: ChannelEnd, facts: &mut Facts<'_>) -> ChannelEnd {
        self.phase = Phase::Ended;
        if self.posts.iter().flatten().any(|post| post.state == State::Posted) {
            self.violated("it has ended, and not all posts are completed", facts);
        }
        end
    }

    /// Checks that all memory was handed back.
    pub(super) fn check_memory(self, facts: &mut Facts<'_>) {
        let at = self.at;
        let (connection, channel, end) = at;
        for (kind, posts) in self.posts.into_iter().enumerate() {
            for (number, post) in posts.into_iter().enumerate() {
                drop(post.arriving);
                if post.region.is_some_and(|region| region.try_into_vec().is_err()) {
                    facts.violated(format!(
                        "connection {connection}, channel {channel}, end {end}: the memory of {kind}/{number} was not handed back"
                    ));
                }
            }
        }
        if self.exposed.try_into_vec().is_err() {
            facts.violated(format!(
                "connection {connection}, channel {channel}, end {end}: exposed memory was not handed back"
            ));
        }
    }
}

fn token(kind: u64, number: usize) -> Token {
    Token(kind << 32 | number as u64)
}

/// Returns the immediate of a block or a write of an end.
fn immediate(number: usize, at: (usize, usize, usize)) -> u32 {
    (number * 64 + at.0 * 16 + at.1 * 2 + at.2) as u32
}

/// Returns the contents of a block or a write of an end.
fn block(bytes: usize, number: usize, by: usize, at: (usize, usize, usize)) -> Vec<u8> {
    let salt = number * 7 + by * 101 + at.0 * 17 + at.1 * 29;
    (0..bytes).map(|at| (at * 31 + (at >> 8) * 3 + salt) as u8 ^ (at >> 12) as u8).collect()
}

/// Returns a control word of an end.
fn word(tag: u8, number: u32, at: (usize, usize, usize)) -> Vec<u8> {
    let more = if tag >= WORD { number as usize * 13 % (CONTROL_BYTES_MAX - 4) } else { 0 };
    let mut word = vec![tag];
    word.extend(number.to_le_bytes());
    word.extend((0..more).map(|byte| (byte + at.0 + at.1 + at.2) as u8));
    word
}
