//! All groups and teams that are being created at one member: a state machine that takes events, and says what
//! has to be done (docs/decisions/creation.md). Times are since any fixed moment.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use transport_tcp::ConnectionId;

use super::{
    attempt::{Asking, Attempt, ChannelId, Place},
    choice::RootChoice,
    contexts::{Contexts, Dial, Way},
    decision::Decision,
    effects::{Effect, Medium, Reserve, Wire},
    joining::{Joining, Wants},
    messages::{Asks, Message, shortened},
    parked::{Parked, Waiting},
};
use crate::Error;

/// How many connections are being made at the same time for one creation.
const CONNECTING_MAX: usize = 16;

/// What is wrong with an answer of another kind than the question.
pub(crate) const OTHER_ANSWER: &str = "sent an answer to another question";

/// What is being created at one member, and asked of it.
pub struct Creations<M: Medium> {
    /// Tells this context from another at the same address.
    context: u128,
    attempts: u64,
    contexts: Contexts,
    creations: BTreeMap<u64, Attempt<M>>,
    /// What others are answered about each group, until it has ended here, and about teams that are being created.
    decisions: BTreeMap<u64, Decision>,
    /// For each channel that was asked for and has no answer yet: the number, and the member.
    asked: HashMap<ChannelId, (u64, u32)>,
    waiting: Waiting<M::Channel>,
    /// Creations that something has happened to.
    touched: VecDeque<u64>,
    effects: VecDeque<Effect<M>>,
}

impl<M: Medium> Creations<M> {
    /// Returns one in which nothing is being created. `context`: a random number.
    pub fn new(context: u128) -> Self {
        Self {
            context,
            attempts: 0,
            contexts: Contexts::default(),
            creations: BTreeMap::new(),
            decisions: BTreeMap::new(),
            asked: HashMap::new(),
            waiting: Waiting::default(),
            touched: VecDeque::new(),
            effects: VecDeque::new(),
        }
    }

    /// Returns what has to be done next. To be called until it returns nothing, after each other call.
    pub fn next_effect(&mut self) -> Option<Effect<M>> {
        self.effects.pop_front()
    }

    /// Begins to create a group or a team, or the second step of this. [`Effect::Chosen`] or [`Effect::End`] follows within `left`, if
    /// [`Creations::handle_timeout`] is called in time. Once a group has ended, [`Creations::forget`] has to be called.
    ///
    /// Errors: one of this number is being created here already.
    pub fn begin(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        joining: Joining,
        left: Duration,
    ) -> Result<(), Error> {
        let number = joining.number;
        if self.creations.contains_key(&number) {
            return Err(Error::NumberInUse(number));
        }
        self.attempts += 1;
        let decision = self.decisions.entry(number).or_insert_with(|| Decision::new(&joining));
        if let Wants::Links { choice: Some(choice), .. } = &joining.wants {
            decision.decide(*choice);
        }
        let mut creation = Attempt::new(joining, self.attempts, now, left);
        self.waiting.asks().for_each(|asks| creation.note_request(asks));
        self.creations.insert(number, creation);
        self.unpark(channels, number);
        self.touched.push_back(number);
        self.settle(channels, now);
        Ok(())
    }

    /// A group has begun to end: its root has closed it, or it has failed. From now on members that know what its root has chosen
    /// ask about the next one of its number. To be called before messages are taken that came later.
    pub fn end(&mut self, number: u64) {
        if let Some(decision) = self.decisions.get_mut(&number) {
            decision.end();
        }
    }

    /// A group has ended, or it was not created after all.
    pub fn forget(&mut self, number: u64) {
        if !self.creations.contains_key(&number) {
            self.decisions.remove(&number);
        }
    }

    /// Returns when [`Creations::handle_timeout`] has to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let creations = self.creations.values().filter_map(Attempt::next_time);
        creations.chain(self.waiting.next_time()).min()
    }

    /// Does what is due at this time. `refused`: why a peer at this address was refused last, if it was, for errors.
    pub fn handle_timeout(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        refused: impl Fn(IpAddr) -> Option<String>,
    ) {
        for parked in self.waiting.take_late(now) {
            // A member that asked on a shared connection has given up as well.
            if let Place::Own(_) = parked.at {
                let number = parked.asks.group();
                let cause = format!("group {number} was not created there in time");
                self.refuse(parked.at, number, cause);
            }
        }
        let is_late = |creation: &Attempt<M>| creation.until.is_some_and(|until| until <= now);
        let late = self.creations.values().filter(|creation| is_late(creation));
        let missed = |creation: &Attempt<M>| {
            (creation.joining.number, creation.missed(hint(creation, &refused)))
        };
        let missed: Vec<(u64, Error)> = late.map(missed).collect();
        for (number, error) in missed {
            self.fail(number, error, now);
        }
        self.touched.extend(self.creations.keys());
        self.settle(channels, now);
    }

    /// A connection to the context at this address is shared from now on. `from`: the other end of the connection; `dial`: if it
    /// was made for [`Effect::Connect`].
    pub fn connected(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        connection: ConnectionId,
        address: SocketAddr,
        from: IpAddr,
        dial: Option<u64>,
    ) {
        let ended = dial.and_then(|dial| self.contexts.end(dial));
        self.touched.extend(ended.map(|ended| ended.number));
        self.contexts.add(connection, address, from, dial.is_some());
        self.connect_again(address, now);
        self.settle(channels, now);
    }

    /// A link was made for [`Effect::Connect`], which has connections of its own.
    pub fn linked(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        dial: u64,
        link: M::Own,
    ) {
        let Some(Dial { address, number, attempt, member }) = self.contexts.end(dial) else {
            return;
        };
        if let Some(creation) = self.creations.get_mut(&number).filter(|it| it.attempt == attempt) {
            creation.set(member, Asking::Linked(None, Wire::Own(link)));
        }
        self.touched.push_back(number);
        self.connect_again(address, now);
        self.settle(channels, now);
    }

    /// [`Effect::Connect`] has made a connection on which the other context has told what the root has chosen.
    pub fn chosen(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        dial: u64,
        choice: RootChoice,
    ) {
        let Some(Dial { address, number, attempt, .. }) = self.contexts.end(dial) else { return };
        if self.creations.get(&number).is_some_and(|creation| creation.attempt == attempt) {
            self.learn(channels, number, choice);
        }
        self.connect_again(address, now);
        self.settle(channels, now);
    }

    /// [`Effect::Connect`] has failed.
    pub fn not_connected(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        dial: u64,
        error: Error,
    ) {
        let Some(Dial { address, number, attempt, .. }) = self.contexts.end(dial) else { return };
        if self.creations.get(&number).is_some_and(|creation| creation.attempt == attempt) {
            self.fail(number, error, now);
        }
        self.connect_again(address, now);
        self.settle(channels, now);
    }

    /// A connection with the context at this address cannot be used, for a reason of this host. `dial`: if it was made for
    /// [`Effect::Connect`].
    pub fn unusable(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        address: SocketAddr,
        dial: Option<u64>,
        cause: &str,
    ) {
        let ended = dial.and_then(|dial| self.contexts.end(dial));
        self.touched.extend(ended.map(|ended| ended.number));
        self.touch_each(|creation| creation.cannot_reach(address, cause));
        self.settle(channels, now);
    }

    /// A shared connection has ended; `cause`, unless it was idle.
    pub fn disconnected(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        connection: ConnectionId,
        cause: Option<&str>,
    ) {
        self.contexts.forget(connection);
        self.waiting.lose(connection);
        self.asked.retain(|at, _| at.0 != connection);
        if cause.is_some() {
            self.decisions.values_mut().for_each(|decision| decision.lose(connection));
        }
        self.touch_each(|creation| creation.lose(connection, cause, now));
        self.settle(channels, now);
    }

    /// A message has come on a shared connection.
    pub fn on_message(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        connection: ConnectionId,
        message: Message,
    ) {
        match message {
            Message::Asks { channel, asks } => {
                let Some((peer, from)) = self.contexts.addresses(connection) else { return };
                let (at, number) = (Place::Channel((connection, channel)), asks.group());
                match reserve(channels, connection, channel, &asks) {
                    Ok(link) => {
                        self.take_request(channels, Parked::new(at, peer, from, link, asks, now));
                    }
                    Err(cause) => self.refuse(at, number, cause),
                }
            }
            Message::Accepts { channel } => {
                if let Some((number, member)) = self.asked.remove(&(connection, channel)) {
                    match self.creations.get_mut(&number) {
                        Some(creation) if creation.joining.terms().is_some() => {
                            creation.accepted(member);
                        }
                        _ => self.refused(number, member, OTHER_ANSWER.into(), now),
                    }
                    self.touched.push_back(number);
                }
            }
            Message::Chose { channel, choice } => {
                if let Some((number, member)) = self.asked.remove(&(connection, channel)) {
                    match self.creations.get(&number) {
                        Some(creation) if creation.joining.terms().is_none() => {
                            self.learn(channels, number, choice);
                        }
                        _ => self.refused(number, member, OTHER_ANSWER.into(), now),
                    }
                }
            }
            Message::Refuses { channel, cause } => {
                if let Some((number, member)) = self.asked.remove(&(connection, channel)) {
                    self.refused(number, member, shortened(&cause), now);
                }
            }
            Message::Withdraws { channel } => {
                let at = (connection, channel);
                self.waiting.forget(Place::Channel(at));
                self.asked.remove(&at);
                self.touch_each(|creation| creation.withdrawn(at, now));
            }
        }
        self.settle(channels, now);
    }

    /// Another context asks something on a connection of its own. [`Effect::Answer`] follows, at the latest when the request's
    /// time is over, unless it is taken back before. `ask` names it; `peer`: where the other context has connected from.
    pub fn requested(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        ask: u64,
        peer: SocketAddr,
        asks: Asks,
    ) {
        self.take_request(channels, Parked::new(Place::Own(ask), peer, peer.ip(), None, asks, now));
        self.settle(channels, now);
    }

    /// The link of a request that was granted is there. Dropped if the creation has ended.
    pub fn placed(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        ask: u64,
        link: M::Own,
    ) {
        let mut creations = self.creations.iter_mut();
        if let Some((&number, creation)) = creations.find(|(_, it)| it.has_granted(ask)) {
            creation.place(ask, link);
            self.touched.push_back(number);
        }
        self.settle(channels, now);
    }

    /// What was asked on a connection of its own is no longer asked.
    pub fn taken_back(&mut self, ask: u64) {
        self.waiting.forget(Place::Own(ask));
        self.touch_each(|creation| creation.take_back(Place::Own(ask)));
        // Nothing can be done now: it has to be asked again.
        self.touched.clear();
    }

    /// Calls this for each creation. Those for which it returns true are touched.
    fn touch_each(&mut self, mut act: impl FnMut(&mut Attempt<M>) -> bool) {
        let touched =
            self.creations.iter_mut().filter_map(|(&number, it)| act(it).then_some(number));
        self.touched.extend(touched);
    }

    /// Those that waited for the connection to an address use it, or make it.
    fn connect_again(&mut self, address: SocketAddr, now: Duration) {
        self.touch_each(|creation| creation.stop_connecting(address, now));
    }

    /// Goes on with all creations that something has happened to.
    fn settle(&mut self, channels: &mut impl Reserve<M>, now: Duration) {
        while let Some(number) = self.touched.pop_front() {
            let advanced = self.advance(channels, now, number);
            if let Err(error) = advanced {
                // This touches those that have waited for its connections.
                self.fail(number, error, now);
            }
        }
    }

    /// Asks the neighbours of a creation that are to be asked now, and ends it once all links are there.
    ///
    /// Errors: why it cannot succeed.
    fn advance(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        number: u64,
    ) -> Result<(), Error> {
        let Some(creation) = self.creations.get_mut(&number) else { return Ok(()) };
        let asked_of = self.decisions.get_mut(&number).and_then(Decision::take_problem);
        if let Some(problem) = asked_of.or_else(|| creation.take_problem()) {
            return Err(problem);
        }
        if creation.is_complete() && !creation.drop_closed(channels, now) {
            let creation = self.creations.remove(&number);
            if creation.as_ref().is_some_and(|creation| creation.joining.root.is_none()) {
                self.decisions.remove(&number);
            }
            let outcome = Ok(creation.map(Attempt::into_links).unwrap_or_default());
            self.effects.push_back(Effect::End { number, outcome });
            return Ok(());
        }
        for rank in creation.take_due(now) {
            self.ask(channels, now, number, rank)?;
        }
        Ok(())
    }

    /// Asks a neighbour, or connects to it first. Errors: a channel cannot be reserved.
    fn ask(
        &mut self,
        channels: &mut impl Reserve<M>,
        now: Duration,
        number: u64,
        rank: u32,
    ) -> Result<(), Error> {
        let Some(creation) = self.creations.get_mut(&number) else { return Ok(()) };
        let (address, own) = (creation.address(rank), creation.address(creation.joining.rank));
        let left = creation.until.map_or(Duration::MAX, |until| until.saturating_sub(now));
        self.attempts += 1;
        // Not less: it is not refused as too late before this member has given up.
        let timeout_ms = session::millis(left).saturating_add(1);
        let asks = creation.joining.asks(rank, self.context, self.attempts, timeout_ms);
        let shares = creation.joining.is_shared;
        let way = if shares { self.contexts.way(address) } else { Way::None };
        match way {
            Way::Connecting => creation.set(rank, Asking::Connecting),
            Way::Shared(connection) => {
                let Some(channel) = self.contexts.next_channel(connection) else { return Ok(()) };
                let at = (connection, channel);
                let reserved = reserve(channels, connection, channel, &asks);
                let link =
                    reserved.map_err(|cause| Error::Member { member: rank, address, cause })?;
                creation.set(rank, Asking::Waiting(at, link));
                self.asked.insert(at, (number, rank));
                let message = Message::Asks { channel, asks };
                self.effects.push_back(Effect::Send { connection, message });
            }
            Way::None => {
                let attempt = creation.attempt;
                if self.contexts.dials_of(number, attempt).len() >= CONNECTING_MAX {
                    return Ok(());
                }
                creation.set(rank, if shares { Asking::Connecting } else { Asking::Dialing });
                let dial = Dial { address, number, attempt, member: rank };
                let dial = self.contexts.begin(dial, shares);
                let connect = Effect::Connect { dial, address, own, timeout: left, shares, asks };
                self.effects.push_back(connect);
            }
        }
        Ok(())
    }

    /// Takes the answer of a member that does not give what it was asked for.
    fn refused(&mut self, number: u64, member: u32, cause: String, now: Duration) {
        if let Some(creation) = self.creations.get(&number) {
            let address = creation.address(member);
            self.fail(number, Error::Member { member, address, cause }, now);
        }
    }

    /// Takes what the root has chosen, the end of the first step of a creation, and tells it to those that have asked.
    fn learn(&mut self, channels: &mut impl Reserve<M>, number: u64, choice: RootChoice) {
        self.creations.remove(&number);
        if let Some(decision) = self.decisions.get_mut(&number) {
            decision.decide(choice);
        }
        self.effects.push_back(Effect::Chosen { number, choice });
        self.unpark(channels, number);
    }

    /// Ends a creation with an error, and tells its neighbours.
    fn fail(&mut self, number: u64, error: Error, now: Duration) {
        let Some(creation) = self.creations.remove(&number) else { return };
        self.decisions.remove(&number);
        for (connection, channel) in creation.channels() {
            self.asked.remove(&(connection, channel));
            let message = Message::Withdraws { channel };
            self.effects.push_back(Effect::Send { connection, message });
        }
        let dials = self.contexts.dials_of(number, creation.attempt);
        // Its channels are given back behind these messages.
        drop(creation);
        self.effects.push_back(Effect::End { number, outcome: Err(error) });
        for dial in dials {
            self.effects.push_back(Effect::Interrupt { dial });
            if let Some(ended) = self.contexts.end(dial) {
                self.connect_again(ended.address, now);
            }
        }
    }

    /// Looks again at the requests that wait for a group.
    fn unpark(&mut self, channels: &mut impl Reserve<M>, number: u64) {
        for parked in self.waiting.take(number) {
            self.take_request(channels, parked);
        }
    }

    /// Answers a request, or keeps it until that can be done.
    fn take_request(&mut self, channels: &mut impl Reserve<M>, parked: Parked<M::Channel>) {
        let Parked { at, peer, .. } = parked;
        let number = parked.asks.group();
        match &parked.asks {
            Asks::Link(request) => {
                let creation = self.creations.get(&number);
                if creation.is_some_and(|creation| creation.joining.terms().is_some()) {
                    self.answer(channels, parked);
                    return self.touched.push_back(number);
                }
                let replaced = self.waiting.take_outdated(request);
                for outdated in replaced {
                    self.refuse(outdated.at, number, "it has made a newer request since".into());
                }
            }
            Asks::Choice(question) => {
                let decision = self.decisions.get_mut(&number);
                if let Some(answer) = decision.and_then(|it| it.answer(question, peer, at)) {
                    self.tell(at, number, answer);
                    return self.touched.push_back(number);
                }
            }
        }
        self.creations.values_mut().for_each(|creation| creation.note_request(&parked.asks));
        if let Some(parked) = self.waiting.park(parked) {
            self.refuse(parked.at, number, "too many groups are being created there".into());
        }
    }

    /// Answers a request for a link of a group that is being created here.
    fn answer(&mut self, channels: &mut impl Reserve<M>, parked: Parked<M::Channel>) {
        let Parked { at, peer, channel, asks: Asks::Link(request), .. } = parked else { return };
        let number = request.group;
        let Some(creation) = self.creations.get_mut(&number) else { return };
        match creation.judge(channels, &request, peer) {
            Ok(()) => {
                creation.grant(&request, at, channel.map(Wire::Shared));
                self.effects.push_back(match at {
                    Place::Own(ask) => Effect::Answer { ask, number, answer: Ok(None) },
                    Place::Channel((connection, channel)) => {
                        Effect::Send { connection, message: Message::Accepts { channel } }
                    }
                });
            }
            Err(cause) => self.refuse(at, number, cause),
        }
    }

    /// Tells what the root has chosen, or why that is refused.
    fn tell(&mut self, at: Place, number: u64, answer: Result<RootChoice, String>) {
        match (answer, at) {
            (Ok(choice), Place::Own(ask)) => {
                self.effects.push_back(Effect::Answer { ask, number, answer: Ok(Some(choice)) });
            }
            (Ok(choice), Place::Channel((connection, channel))) => {
                let message = Message::Chose { channel, choice };
                self.effects.push_back(Effect::Send { connection, message });
            }
            (Err(cause), at) => self.refuse(at, number, cause),
        }
    }

    fn refuse(&mut self, at: Place, number: u64, cause: String) {
        self.effects.push_back(match at {
            Place::Own(ask) => Effect::Answer { ask, number, answer: Err(cause) },
            Place::Channel((connection, channel)) => {
                Effect::Send { connection, message: Message::Refuses { channel, cause } }
            }
        });
    }
}

/// Why members may be missing.
fn hint<M: Medium>(
    creation: &Attempt<M>,
    refused: impl Fn(IpAddr) -> Option<String>,
) -> Option<String> {
    if let Some((member, other)) = creation.elsewhere() {
        return Some(format!(
            "member {member} wants to join group {other}: do the numbers differ, or the order of several groups?"
        ));
    }
    creation.missing().find_map(|member| {
        let address = creation.address(member).ip();
        Some(format!("a peer at {address} was refused: it {}", refused(address)?))
    })
}

/// Reserves the channel under whose number something is asked, if that is a link. Errors: why it cannot be reserved.
fn reserve<M: Medium>(
    channels: &mut impl Reserve<M>,
    connection: ConnectionId,
    channel: u32,
    asks: &Asks,
) -> Result<Option<M::Channel>, String> {
    match asks {
        Asks::Link(_) => channels.reserve(connection, channel).map(Some),
        Asks::Choice(_) => Ok(None),
    }
}
