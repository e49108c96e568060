//! Where the threads that create links of a context meet, and its worker.
//!
//! Threads that create groups ask for channels of shared connections and wait for answers, and for the links that others
//! make; the worker, which has the transport, reserves channels, and sends and takes the messages.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use session::{Deadline, Secret, millis};
use transport::Transport;

use super::{
    choice::{Decision, Question},
    decisions::Reply,
    expected::Expected,
    joining::{Joining, Wires},
    messages::{Message, Post, Request, Sharing},
    shared::{Answer, OTHER_ANSWER, Shared, send},
};
use crate::{
    Error,
    commands::{Command, Commands},
    network::{ConnectionId, Network, Offers, Release, SharedEvent, TcpLink, Wire},
};

/// How long a thread waits for the worker that another one has.
const WORKER_PAUSE: Duration = Duration::from_millis(20);
/// How long a thread makes progress at most before it looks again.
const PROGRESS_TIME: Duration = Duration::from_secs(1);

/// Makes progress for up to this time; returns whether it did.
type MakeProgress = Box<dyn Fn(Duration) -> bool + Send + Sync>;

/// What all threads have in common that create links of a context.
pub(crate) struct Meeting {
    pub(crate) secret: Secret,
    /// Which connections groups share; `None` if each link has its own.
    pub(crate) sharing: Option<Sharing>,
    /// Gives commands to the worker, and channels back to it; set before there are links.
    worker: OnceLock<(Commands, Release)>,
    /// With [`crate::Progress::Caller`]: threads that wait make progress, without callbacks.
    progress: OnceLock<MakeProgress>,
    state: Mutex<State>,
    changed: Condvar,
    stopped: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    /// The groups and teams that are being created here, by number.
    expected: HashMap<u64, Expected>,
    pub(crate) shared: Shared,
}

/// A channel that this member has asked for, until the answer is taken.
pub(crate) struct Asking<'a> {
    meeting: &'a Meeting,
    connection: ConnectionId,
    channel: u32,
    pub(crate) member: u32,
    is_answered: bool,
}

impl Meeting {
    pub(crate) fn new(secret: Secret, sharing: Option<Sharing>) -> Self {
        Self {
            secret,
            sharing,
            worker: OnceLock::new(),
            progress: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_commands(&self, commands: Commands) {
        let giving = commands.clone();
        let release: Release = Arc::new(move |link| {
            // Without a worker there is no connection.
            let _ = giving.give(Command::Release { link });
        });
        let _ = self.worker.set((commands, release));
    }

    /// Sets what makes progress for up to a time, without callbacks, and returns false if another thread has the worker.
    pub(crate) fn set_progress(&self, progress: impl Fn(Duration) -> bool + Send + Sync + 'static) {
        let _ = self.progress.set(Box::new(progress));
    }

    /// Errors: the context has not started.
    pub(crate) fn commands(&self) -> Result<&Commands, Error> {
        self.worker.get().map(|(commands, _)| commands).ok_or(Error::ContextClosed)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Tells all threads that wait of a change.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, or less long. Returns `None` if the deadline has passed or the context is closing. For threads
    /// of the application, which may have to make progress meanwhile.
    pub(crate) fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        deadline: Deadline,
    ) -> Option<MutexGuard<'a, State>> {
        let Some(progress) = self.progress.get() else { return self.wait_for(state, deadline) };
        drop(state);
        let left = deadline.left();
        let has_polled = progress(left.min(PROGRESS_TIME));
        let state = self.state();
        if has_polled && !left.is_zero() && !self.stopped.load(Ordering::Acquire) {
            return Some(state);
        }
        // Another thread has the worker. It may stop making progress unnoticed.
        let soon = Deadline::after(left.min(WORKER_PAUSE));
        self.wait_for(state, soon)
    }

    fn wait_for<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        deadline: Deadline,
    ) -> Option<MutexGuard<'a, State>> {
        let left = deadline.left();
        if left.is_zero() || self.stopped.load(Ordering::Acquire) {
            return None;
        }
        let waited = self.changed.wait_timeout(state, left);
        Some(waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0)
    }

    /// Ends all waits.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Once the lock was taken, every thread that saw `stopped` unset is waiting and receives
        // this notification.
        drop(self.state());
        self.notify();
    }

    /// Waits until the group is being created here. Returns what makes offers for its links.
    ///
    /// Errors: why the link is refused.
    pub(crate) fn await_group(
        &self,
        request: &Request,
        peer: SocketAddr,
        deadline: Deadline,
    ) -> Result<Offers, String> {
        let mut state = self.state();
        loop {
            if let Some(expected) = state.expected.get_mut(&request.group) {
                let judged = expected.judge(request, peer);
                self.notify();
                return judged.map(|()| expected.offers());
            }
            let Some(changed) = self.wait_for(state, deadline) else {
                return Err(format!("group {} was not created there in time", request.group));
            };
            state = changed;
        }
    }

    /// Adds a connection to an expected group, if it still is one.
    pub(crate) fn place(&self, request: &Request, wire: Wire) {
        let mut state = self.state();
        if let Some(expected) = state.expected.get_mut(&request.group) {
            expected.take(request, wire);
            drop(state);
            self.notify();
            if let Ok(commands) = self.commands() {
                // For a thread that makes progress while it waits.
                commands.wake();
            }
        }
    }

    /// Expects links from members of these ranks.
    ///
    /// Errors: the group is being created here already.
    pub(crate) fn expect(
        &self,
        joining: &Joining,
        ranks: &[u32],
    ) -> Result<Expectation<'_>, Error> {
        let (group, commands) = (joining.number, self.commands()?);
        let mut state = self.state();
        let State { expected, shared } = &mut *state;
        let Entry::Vacant(place) = expected.entry(group) else {
            return Err(Error::NumberInUse(group));
        };
        let expected = place.insert(Expected::new(joining, ranks));
        let mut posts = shared.answer_parked(group, expected);
        shared.decisions.add(&joining.decision);
        posts.extend(shared.answer_questions());
        drop(state);
        let expectation = Expectation { meeting: self, group };
        self.notify();
        if !posts.is_empty() {
            commands.give(Command::Post(posts))?;
        }
        Ok(expectation)
    }

    /// Answers questions about the choice for a group that this member is about to create, which it may not know yet.
    ///
    /// Errors: the context has ended.
    pub(crate) fn announce(&self, decision: &Arc<Decision>) -> Result<(), Error> {
        let mut state = self.state();
        state.shared.decisions.add(decision);
        let posts = state.shared.answer_questions();
        drop(state);
        self.notify();
        if posts.is_empty() { Ok(()) } else { self.commands()?.give(Command::Post(posts)) }
    }

    /// Waits until a question can be answered. For the thread of a connection of its own.
    pub(crate) fn await_decision(
        &self,
        question: &Question,
        peer: SocketAddr,
        deadline: Deadline,
    ) -> Reply {
        let mut state = self.state();
        loop {
            if let Some(reply) = state.shared.decisions.answer(question, peer) {
                self.notify();
                return reply;
            }
            let Some(changed) = self.wait_for(state, deadline) else {
                return Err(format!("group {} was not created there in time", question.group));
            };
            state = changed;
        }
    }

    /// Asks a member for the root's choice on a shared connection, and waits for the answer; `None` if the connection is lost.
    ///
    /// Errors: it does not answer in time; a member asks here about another group of this number.
    pub(crate) fn ask_choice(
        &self,
        connection: ConnectionId,
        (member, address): (u32, SocketAddr),
        decision: &Decision,
        deadline: Deadline,
    ) -> Result<Option<Reply>, Error> {
        let question = decision.question(member, millis(deadline.left()));
        let channel = self.state().shared.ask(connection);
        let mut asking = Asking { meeting: self, connection, channel, member, is_answered: false };
        let message = Message::AsksChoice { channel, question };
        self.commands()?.give(Command::Post(vec![Post { connection, message }]))?;
        let mut state = self.state();
        loop {
            if let Some(answer) = state.shared.take_answer((connection, channel)) {
                asking.is_answered = true;
                return Ok(match answer {
                    Answer::Chose(choice) => Some(Ok(choice)),
                    Answer::Refused(cause) => Some(Err(cause)),
                    Answer::Accepted(_) => Some(Err(OTHER_ANSWER.into())),
                    Answer::Lost => None,
                });
            }
            if let Some((member, address, cause)) = decision.problem().cloned() {
                drop(state);
                return Err(Error::Member { member, address, cause });
            }
            let Some(changed) = self.wait(state, deadline) else {
                let group = decision.group();
                let what = format!(
                    "waiting for member {member} ({address}) to tell what the root of group {group} has chosen"
                );
                return Err(deadline.missed(what).into());
            };
            state = changed;
        }
    }

    /// Asks members for the links of a group. Does not wait.
    ///
    /// Errors: the context has ended.
    pub(crate) fn ask(
        &self,
        joining: &Joining,
        members: &[(u32, ConnectionId)],
        timeout_ms: u64,
    ) -> Result<Vec<Asking<'_>>, Error> {
        let mut state = self.state();
        let (mut asking, mut posts) = (Vec::new(), Vec::new());
        for &(member, connection) in members {
            let channel = state.shared.ask(connection);
            let request = joining.request(member, timeout_ms);
            posts.push(Post { connection, message: Message::Asks { channel, request } });
            asking.push(Asking { meeting: self, connection, channel, member, is_answered: false });
        }
        drop(state);
        if !posts.is_empty() {
            self.commands()?.give(Command::Post(posts))?;
        }
        Ok(asking)
    }

    /// Waits for the answers to all of these, and takes those of members that were lost into `lost`.
    ///
    /// Errors: a member refuses, or does not answer in time.
    pub(crate) fn await_answers(
        &self,
        mut asking: Vec<Asking<'_>>,
        group: u64,
        addresses: &[SocketAddr],
        deadline: Deadline,
        lost: &mut Vec<u32>,
    ) -> Result<Wires, Error> {
        let (mut wires, mut refused) = (Wires::new(), None);
        let mut state = self.state();
        loop {
            for one in &mut asking {
                let Some(answer) = state.shared.take_answer((one.connection, one.channel)) else {
                    continue;
                };
                one.is_answered = true;
                let member = one.member;
                match answer {
                    Answer::Accepted(link) => wires.push((member, vec![Wire::Shared(link)])),
                    Answer::Lost => lost.push(member),
                    Answer::Chose(_) => {
                        let (address, cause) = (addresses[member as usize], OTHER_ANSWER.into());
                        refused.get_or_insert(Error::Member { member, address, cause });
                    }
                    Answer::Refused(cause) => {
                        let address = addresses[member as usize];
                        refused.get_or_insert(Error::Member { member, address, cause });
                    }
                }
            }
            // Those that are answered take no lock when they are dropped.
            asking.retain(|one| !one.is_answered);
            if refused.is_some() || asking.is_empty() {
                drop(state);
                return refused.map_or(Ok(wires), Err);
            }
            let Some(changed) = self.wait(state, deadline) else {
                let missing = asking.iter().map(|one| one.member).collect();
                return Err(missed(deadline, missing, addresses, group));
            };
            state = changed;
        }
    }

    /// Sends messages, and reserves the channels that they ask for. Called by the worker.
    pub(crate) fn post(&self, network: &mut Network, posts: Vec<Post>) {
        let Some((_, release)) = self.worker.get() else { return };
        let mut state = self.state();
        for Post { connection, message } in posts {
            if let Message::Asks { channel, .. } = message
                && !state.shared.reserve(network, (connection, channel), release)
            {
                continue;
            }
            send(network, connection, &message);
        }
        drop(state);
        // With `Progress::Caller` nothing may poll soon.
        network.flush();
        self.notify();
    }

    /// Makes a connection one that groups share. Called by the worker.
    pub(crate) fn share(
        &self,
        network: &mut Network,
        link: TcpLink,
        address: SocketAddr,
        connected_here: bool,
    ) {
        let connection = network.share(link);
        let mut state = self.state();
        match connection {
            Ok(connection) => state.shared.add(connection, address, connected_here),
            Err(error) => {
                tracing::warn!(%address, %error, "cannot share a connection");
                // A thread that waits for it tries again.
                state.shared.by_address.remove(&address);
            }
        }
        drop(state);
        self.notify();
    }

    /// Takes what has happened on a shared connection. Called by the worker.
    pub(crate) fn on_event(&self, network: &mut Network, event: SharedEvent) {
        let mut state = self.state();
        match event {
            SharedEvent::Ended { connection, cause } => {
                tracing::debug!(connection = connection.0, ?cause, "a shared connection has ended");
                state.shared.forget(connection);
            }
            SharedEvent::Message { connection, message } => match postcard::from_bytes(&message) {
                Ok(message) => {
                    if let Some((_, release)) = self.worker.get() {
                        let State { expected, shared } = &mut *state;
                        shared.on_message(network, connection, message, expected, release);
                    }
                }
                Err(error) => {
                    tracing::debug!(connection = connection.0, %error, "a malformed message");
                }
            },
        }
        drop(state);
        network.flush();
        self.notify();
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let (connection, channel) = (self.connection, self.channel);
        let asked = self.meeting.state().shared.withdraw((connection, channel));
        if let (Some(_), Ok(commands)) = (&asked, self.meeting.commands()) {
            let message = Message::Withdraws { channel };
            let _ = commands.give(Command::Post(vec![Post { connection, message }]));
        }
        // Its channel is given back behind the message.
        drop(asked);
    }
}

/// Removes an expected group when its creation ends, with or without success.
pub(crate) struct Expectation<'a> {
    meeting: &'a Meeting,
    group: u64,
}

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        let removed = self.meeting.state().expected.remove(&self.group);
        // Its links tell the worker.
        drop(removed);
    }
}

impl Expectation<'_> {
    /// Waits for the links from the expected members.
    pub(crate) fn await_all(
        &self,
        addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<Wires, Error> {
        let (meeting, group) = (self.meeting, self.group);
        let mut state = meeting.state();
        loop {
            if let Some((member, address, cause)) = state.shared.decisions.problem(group) {
                return Err(Error::Member { member, address, cause });
            }
            let Some(expected) = state.expected.get_mut(&group) else {
                return Err(Error::NoSuchGroup(group));
            };
            if let Some(wires) = expected.take_all()? {
                return Ok(wires);
            }
            let missing = expected.missing();
            let Some(changed) = meeting.wait(state, deadline) else {
                return Err(missed(deadline, missing, addresses, group));
            };
            state = changed;
        }
    }
}

/// Returns the error that these members have not joined by the deadline.
pub(crate) fn missed(
    deadline: Deadline,
    missing: Vec<u32>,
    addresses: &[SocketAddr],
    group: u64,
) -> Error {
    let members: Vec<String> =
        missing.iter().map(|&rank| format!("{rank} ({})", addresses[rank as usize])).collect();
    let what = format!("waiting for members {} to join group {group}", members.join(", "));
    deadline.missed(what).into()
}
