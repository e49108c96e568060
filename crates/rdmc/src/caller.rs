//! Progress without a thread of its own: threads that call the library and wait make progress.
//!
//! One thread at a time has the turn, from the poll to the last callback that results from it, so
//! that callbacks run in the order of events. Other threads wait for the turn to end, and then
//! check for what they wait for. The worker is put back before callbacks run, since they may call
//! the library.

use std::{
    collections::VecDeque,
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Condvar, Mutex, MutexGuard, OnceLock},
    thread::{self, ThreadId},
    time::Duration,
};

use session::Deadline;

use crate::{
    Error,
    commands::Commands,
    descriptor::Descriptor,
    outlet::{Due, Job},
    worker::Worker,
};

/// The longest poll within a longer wait; an upper bound only.
const SLICE: Duration = Duration::from_secs(1);

/// The worker of a context with `Progress::Caller`.
pub(crate) struct Caller {
    state: Mutex<State>,
    /// Notified when the turn ends, the worker is put back, or a group's status changes.
    changed: Condvar,
    commands: Commands,
    /// What the application waits for, once it has asked for it.
    descriptor: OnceLock<Descriptor>,
}

struct State {
    worker: Place,
    /// The worker is dropped rather than put back.
    closed: bool,
    /// The thread that has the turn, callbacks included.
    driver: Option<ThreadId>,
    /// Pending callbacks, in order.
    due: VecDeque<Job>,
    /// A group's status has changed since [`Caller::progress`] returned the last time, after which the application looks.
    has_news: bool,
    /// The descriptor is readable by a signal only, until the turn ends.
    is_paused: bool,
}

enum Place {
    Here(Box<Worker>),
    /// A thread polls, or executes commands.
    Taken,
    Gone,
}

/// A blocking call of the application, as errors name it.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// What callbacks do in its place.
    pub(crate) instead: &'static str,
}

/// Ends a turn when it is dropped.
struct Turn<'a>(&'a Caller);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.driver = None;
        if std::mem::take(&mut state.is_paused)
            && let Some(descriptor) = self.0.descriptor.get()
        {
            descriptor.set_paused(false);
        }
        // Another thread's turn may have left some meanwhile.
        let is_due = !state.due.is_empty();
        drop(state);
        if is_due {
            self.0.signal();
        }
        self.0.changed.notify_all();
    }
}

impl Caller {
    pub(crate) fn new(worker: Worker, commands: Commands) -> Self {
        let state = State {
            worker: Place::Here(Box::new(worker)),
            closed: false,
            driver: None,
            due: VecDeque::new(),
            has_news: false,
            is_paused: false,
        };
        let descriptor = OnceLock::new();
        Self { state: Mutex::new(state), changed: Condvar::new(), commands, descriptor }
    }

    /// Returns what the application waits for; the first call makes it of the network's descriptor. It is readable then.
    ///
    /// Errors: those of `network`; the process has no descriptors left.
    pub(crate) fn descriptor(
        &self,
        network: impl FnOnce() -> Result<OwnedFd, Error>,
    ) -> Result<BorrowedFd<'_>, Error> {
        if let Some(made) = self.descriptor.get() {
            return Ok(made.as_fd());
        }
        let made = Descriptor::new(network()?).map_err(|error| Error::System {
            what: "making a descriptor to wait for".into(),
            error,
        })?;
        // Of two that threads make at the same time one is kept.
        let kept = self.descriptor.get_or_init(|| made);
        kept.signal();
        Ok(kept.as_fd())
    }

    /// Has the application call [`Caller::progress`], if it waits for the descriptor.
    fn signal(&self) {
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.signal();
        }
    }

    /// Makes progress and runs callbacks; waits up to `wait` if there is nothing to do or another
    /// thread has the turn. Returns whether callbacks ran on this thread.
    ///
    /// Errors: called from a callback; the context is closed or has failed.
    pub(crate) fn progress(&self, wait: Duration) -> Result<bool, Error> {
        let deadline = Deadline::after(wait);
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.take_signal();
        }
        let call = Call { name: "progress", instead: "return from it instead" };
        let mut state = self.lock();
        while state.driver.is_some() {
            self.check_outside(&state, call)?;
            let left = deadline.left();
            if left.is_zero() {
                if let Some(descriptor) = self.descriptor.get() {
                    descriptor.set_paused(true);
                    state.is_paused = true;
                }
                return Ok(false);
            }
            state = self.wait_for_change(state, left);
        }
        let ran = self.drive(state, deadline);
        // The application looks after this.
        self.lock().has_news = false;
        ran
    }

    /// Makes progress, or waits while another thread does, until `done` returns true. Takes at
    /// least one turn if no other thread has it. Returns `false` at the deadline, which callbacks
    /// on this thread may exceed.
    ///
    /// Errors: as [`Caller::progress`].
    pub(crate) fn wait(
        &self,
        call: Call,
        deadline: Deadline,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let mut turns = 0;
        loop {
            let mut state = self.lock();
            while !done() && state.driver.is_some() {
                self.check_outside(&state, call)?;
                let left = deadline.left();
                if left.is_zero() {
                    return Ok(false);
                }
                state = self.wait_for_change(state, left);
            }
            if done() {
                return Ok(true);
            }
            let left = deadline.left();
            if left.is_zero() && turns > 0 {
                return Ok(false);
            }
            turns += 1;
            self.drive(state, Deadline::after(left.min(SLICE)))?;
            self.keep_news();
        }
    }

    /// Makes progress for up to `wait`, and leaves the callbacks that result to the next turn. Returns false if another
    /// thread has the worker, or there is none. May be called from a callback.
    pub(crate) fn poll(&self, wait: Duration) -> bool {
        let mut state = self.lock();
        let Some(worker) = state.take_worker() else { return false };
        drop(state);
        self.with(worker, |worker, due| worker.turn(wait, due));
        self.keep_news();
        true
    }

    /// Has the application look at its groups if something has happened in one of them, though it did not call
    /// [`Caller::progress`].
    fn keep_news(&self) {
        if std::mem::take(&mut self.lock().has_news) {
            self.signal();
        }
    }

    /// Executes pending commands now. A thread that has the worker executes them before it puts it
    /// back.
    pub(crate) fn take_commands(&self) {
        let mut state = self.lock();
        if let Some(worker) = state.take_worker() {
            drop(state);
            self.with(worker, |worker, _| worker.take_commands());
        }
    }

    /// Makes progress until all groups have ended, at most until the deadline, and drops the
    /// worker.
    pub(crate) fn stop(&self, deadline: Deadline) {
        loop {
            let mut state = self.lock();
            let is_over = match &state.worker {
                Place::Here(worker) => worker.has_stopped(),
                Place::Taken => false,
                Place::Gone => true,
            };
            let left = deadline.left();
            // Waiting in a callback is useless: the turn does not end before the callback returns.
            let inside = state.driver == Some(thread::current().id());
            let is_over = is_over && state.due.is_empty() && state.driver.is_none();
            if is_over || inside || left.is_zero() {
                state.closed = true;
                let worker = state.take_worker();
                let due = std::mem::take(&mut state.due);
                drop(state);
                // Drops applications, which must not happen under the lock.
                drop(due);
                self.changed.notify_all();
                if let Some(worker) = worker.filter(|worker| worker.has_stopped()) {
                    worker.finish();
                }
                return;
            }
            if state.driver.is_some() {
                drop(self.wait_for_change(state, left));
            } else {
                let _ = self.drive(state, Deadline::after(left.min(SLICE)));
            }
        }
    }

    /// Returns whether the calling thread has the turn, and so is in a callback.
    pub(crate) fn is_driven_here(&self) -> bool {
        self.lock().driver == Some(thread::current().id())
    }

    /// Wakes threads that wait, since a group's status has changed.
    pub(crate) fn notify(&self) {
        self.lock().has_news = true;
        self.changed.notify_all();
    }

    /// Takes one turn; no other thread has it. Returns whether callbacks ran.
    ///
    /// Errors: there is neither a worker nor a pending callback.
    fn drive(&self, mut state: MutexGuard<'_, State>, deadline: Deadline) -> Result<bool, Error> {
        if matches!(state.worker, Place::Gone) && state.due.is_empty() {
            return Err(self.commands.ended());
        }
        state.driver = Some(thread::current().id());
        let _turn = Turn(self);
        // A thread that executes commands puts the worker back at once.
        while matches!(state.worker, Place::Taken) && !deadline.left().is_zero() {
            state = self.wait_for_change(state, deadline.left());
        }
        let worker = state.take_worker();
        drop(state);
        if let Some(worker) = worker {
            self.with(worker, |worker, due| worker.turn(deadline.left(), due));
        }
        let mut ran = false;
        while let Some(job) = self.next_due() {
            ran = true;
            job();
        }
        Ok(ran)
    }

    /// Runs `act` with the worker, executes commands that arrived meanwhile, and puts the worker
    /// back.
    fn with(&self, worker: Box<Worker>, act: impl FnOnce(&mut Worker, &mut Due)) {
        let mut due = Due::new();
        let mut outcome = worker.attempt(&mut due, act);
        let state = loop {
            let mut state = self.lock();
            state.due.extend(due.drain(..));
            outcome = match outcome {
                Some(worker) if state.closed => {
                    drop(state);
                    drop(worker);
                    None
                }
                Some(worker) if worker.has_commands() => {
                    drop(state);
                    worker.attempt(&mut due, |worker, _| worker.take_commands())
                }
                Some(mut worker) => {
                    if let Some(descriptor) = self.descriptor.get() {
                        descriptor.set_timer(worker.next_turn());
                    }
                    state.worker = Place::Here(worker);
                    break state;
                }
                None => {
                    state.worker = Place::Gone;
                    break state;
                }
            };
        };
        // The thread that has the turn runs callbacks before it ends. Without a worker the next call returns why.
        let is_due = state.driver.is_none() && !state.due.is_empty();
        let is_gone = matches!(state.worker, Place::Gone);
        drop(state);
        if is_due || is_gone {
            self.signal();
        }
        self.changed.notify_all();
    }

    fn next_due(&self) -> Option<Job> {
        self.lock().due.pop_front()
    }

    fn check_outside(&self, state: &State, call: Call) -> Result<(), Error> {
        let inside = state.driver == Some(thread::current().id());
        if inside { Err(Error::InsideCallback(call.name, call.instead)) } else { Ok(()) }
    }

    fn wait_for_change<'a>(
        &self,
        state: MutexGuard<'a, State>,
        left: Duration,
    ) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// Takes the worker, if it is here; the caller must put it back.
    fn take_worker(&mut self) -> Option<Box<Worker>> {
        let gone = if self.closed { Place::Gone } else { Place::Taken };
        match std::mem::replace(&mut self.worker, gone) {
            Place::Here(worker) => Some(worker),
            other => {
                self.worker = other;
                None
            }
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}
