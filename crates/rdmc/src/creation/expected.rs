//! The groups that are being created here, and the threads that wait for their links.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use session::{Deadline, Secret};

use super::{
    links::{Joining, Request, Wires},
    shared::{Shared, Sharing},
    terms::Terms,
};
use crate::{
    Error,
    caller::Caller,
    commands::Commands,
    network::{Offers, Wire},
};

/// How long a thread waits for the worker that another one has.
const WORKER_PAUSE: Duration = Duration::from_millis(20);
/// How long a thread makes progress at most before it looks again.
const PROGRESS_TIME: Duration = Duration::from_secs(1);

/// What all threads have in common that create links of a context.
pub(crate) struct Meeting {
    pub(crate) secret: Secret,
    /// Which connections groups share; `None` if each link has its own.
    pub(crate) sharing: Option<Sharing>,
    /// The worker's; set before there are links.
    commands: OnceLock<Commands>,
    /// With [`crate::Progress::Caller`]: threads that wait make progress, without callbacks.
    caller: OnceLock<Weak<Caller>>,
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

/// A group or a team that is being created here, and the links accepted for it so far.
pub(crate) struct Expected {
    rank: u32,
    offers: Offers,
    terms: Terms,
    wires: BTreeMap<u32, Vec<Option<Wire>>>,
    problem: Option<(u32, SocketAddr, String)>,
}

impl Meeting {
    pub(crate) fn new(secret: Secret, sharing: Option<Sharing>) -> Self {
        Self {
            secret,
            sharing,
            commands: OnceLock::new(),
            caller: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_commands(&self, commands: Commands) {
        let _ = self.commands.set(commands);
    }

    pub(crate) fn set_caller(&self, caller: &Arc<Caller>) {
        let _ = self.caller.set(Arc::downgrade(caller));
    }

    /// Errors: the context has not started.
    pub(crate) fn commands(&self) -> Result<&Commands, Error> {
        self.commands.get().ok_or(Error::ContextClosed)
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
        let Some(caller) = self.caller.get() else { return self.wait_for(state, deadline) };
        drop(state);
        let left = deadline.left();
        let has_polled = caller.upgrade().is_some_and(|it| it.poll(left.min(PROGRESS_TIME)));
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
                return judged.map(|()| expected.offers.clone());
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
        if let Some(expected) = state.expected.get_mut(&request.group)
            && let Some(wires) = expected.wires.get_mut(&request.from)
            && let Some(place) = wires.get_mut(usize::from(request.stream))
        {
            *place = Some(wire);
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
        let group = joining.number;
        let empty = || (0..joining.terms.streams()).map(|_| None).collect::<Vec<_>>();
        let expected = Expected {
            rank: joining.rank,
            offers: joining.offers.clone(),
            terms: joining.terms.clone(),
            wires: ranks.iter().map(|&rank| (rank, empty())).collect(),
            problem: None,
        };
        let commands = self.commands()?;
        let mut state = self.state();
        if state.expected.contains_key(&group) {
            return Err(Error::NumberInUse(group));
        }
        state.expected.insert(group, expected);
        let expectation = Expectation { meeting: self, group };
        let answers = state.answer_parked(group, commands);
        drop(state);
        self.notify();
        answers.into_iter().try_for_each(|command| commands.give(command))?;
        Ok(expectation)
    }
}

impl State {
    pub(crate) fn expected(&mut self, group: u64) -> Option<&mut Expected> {
        self.expected.get_mut(&group)
    }
}

impl Expected {
    /// Returns whether a link is wanted, and notes the first problem.
    ///
    /// Errors: why it is refused.
    pub(crate) fn judge(&mut self, request: &Request, peer: SocketAddr) -> Result<(), String> {
        let Some(problem) = self.problem_with(request) else { return Ok(()) };
        self.problem.get_or_insert((request.from, peer, problem.clone()));
        Err(problem)
    }

    /// Takes a channel of a shared connection as the whole link to a member.
    pub(crate) fn take_shared(&mut self, from: u32, wire: Wire) {
        self.wires.insert(from, vec![Some(wire)]);
    }

    fn problem_with(&self, request: &Request) -> Option<String> {
        let Request { group, from, to, stream, terms, .. } = request;
        if let Some(difference) = self.terms.difference(terms) {
            return Some(format!(
                "members {} and {from} have different settings for group {group}: \
                 {difference} (seen from member {})",
                self.rank, self.rank
            ));
        }
        if *to != self.rank {
            return Some(format!(
                "this is member {}, not member {to}: the member lists differ",
                self.rank
            ));
        }
        let Some(wires) = self.wires.get(from) else {
            return Some(format!(
                "member {from} is not expected to connect to member {}",
                self.rank
            ));
        };
        match wires.get(usize::from(*stream)) {
            Some(None) => None,
            _ => Some(format!("member {from} has connected already; is it running twice?")),
        }
    }

    fn is_complete(&self) -> bool {
        self.wires.values().flatten().all(Option::is_some)
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
            let Some(expected) = state.expected.get_mut(&group) else {
                return Err(Error::NoSuchGroup(group));
            };
            if let Some((member, address, cause)) = expected.problem.take() {
                return Err(Error::Member { member, address, cause });
            }
            if expected.is_complete() {
                let wires = std::mem::take(&mut expected.wires).into_iter();
                return Ok(wires
                    .map(|(rank, w)| (rank, w.into_iter().flatten().collect()))
                    .collect());
            }
            let missing = expected.wires.iter().filter(|(_, it)| it.iter().any(Option::is_none));
            let missing = missing.map(|(&rank, _)| rank).collect();
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
