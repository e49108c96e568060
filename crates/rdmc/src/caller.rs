//! Progress without a thread of its own: whoever calls, or waits, moves transfers on.
//!
//! One thread at a time has the turn, from the poll to the last callback that follows from it, so
//! callbacks come in the order of events. Others wait for the turn to end, and look then whether what
//! they wait for has happened. The worker itself is back in its place while callbacks run: they may
//! call into the library.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, ThreadId},
    time::Duration,
};

use engine::Event;
use session::Deadline;

use crate::{
    Error,
    commands::Commands,
    outlet::{Deliver, Due},
    worker::Worker,
};

/// The longest wait for one poll within a longer wait; only a bound.
const SLICE: Duration = Duration::from_secs(1);

/// The worker of a context whose callers drive it.
pub(crate) struct Caller {
    state: Mutex<State>,
    /// The turn is free, the worker is back, or a group's status has changed.
    changed: Condvar,
    commands: Commands,
}

struct State {
    worker: Place,
    /// The worker is not to come back.
    closed: bool,
    /// Whose turn it is, callbacks included.
    driver: Option<ThreadId>,
    /// Callbacks that have to run, in order.
    due: VecDeque<(Arc<Mutex<dyn Deliver>>, Event)>,
}

enum Place {
    Here(Box<Worker>),
    /// Somebody polls, or carries out commands.
    Taken,
    Gone,
}

/// Ends a turn when it is dropped.
struct Turn<'a>(&'a Caller);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().driver = None;
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
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), commands }
    }

    /// Moves transfers on and runs callbacks; waits up to `wait` if there is nothing to do, or for
    /// another thread that is at it. Whether callbacks ran here.
    ///
    /// Errors: called from a callback; the context is closed or has failed.
    pub(crate) fn progress(&self, wait: Duration) -> Result<bool, Error> {
        let deadline = Deadline::after(wait);
        let mut state = self.lock();
        while state.driver.is_some() {
            self.check_outside(&state, "progress", "return from it instead")?;
            let left = deadline.left();
            if left.is_zero() {
                return Ok(false);
            }
            state = self.wait_for_change(state, left);
        }
        self.drive(state, deadline)
    }

    /// Drives, or lets others drive, until this holds: at least one turn, if nobody else has it. False
    /// at the deadline; callbacks that run here may take longer.
    ///
    /// `call` is what the application has called, and `instead` what would do in a callback.
    ///
    /// Errors: as [`Caller::progress`].
    pub(crate) fn wait(
        &self,
        (call, instead): (&'static str, &'static str),
        deadline: Deadline,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let mut turns = 0;
        loop {
            let mut state = self.lock();
            while !done() && state.driver.is_some() {
                self.check_outside(&state, call, instead)?;
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
        }
    }

    /// Carries out commands now; a thread that is at it does so before it is done.
    pub(crate) fn take_commands(&self) {
        let mut state = self.lock();
        if let Some(worker) = state.take_worker() {
            drop(state);
            self.with(worker, |worker, _| worker.take_commands());
        }
    }

    /// Drives until all groups have ended, at most until the deadline, and drops the worker.
    pub(crate) fn stop(&self, deadline: Deadline) {
        loop {
            let mut state = self.lock();
            let is_over = match &state.worker {
                Place::Here(worker) => worker.has_stopped(),
                Place::Taken => false,
                Place::Gone => true,
            };
            let left = deadline.left();
            // From a callback there is nothing to wait for: it is in the way itself.
            let inside = state.driver == Some(thread::current().id());
            let is_over = is_over && state.due.is_empty() && state.driver.is_none();
            if is_over || inside || left.is_zero() {
                state.closed = true;
                let worker = state.take_worker();
                let due = std::mem::take(&mut state.due);
                drop(state);
                // Applications go with them: not under the lock.
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

    /// Whether the calling thread is in a callback.
    pub(crate) fn is_driven_here(&self) -> bool {
        self.lock().driver == Some(thread::current().id())
    }

    /// A group's status has changed.
    pub(crate) fn notify(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// One turn, which is free. Whether callbacks ran. Errors: there is no worker, and no callback due.
    fn drive(&self, mut state: MutexGuard<'_, State>, deadline: Deadline) -> Result<bool, Error> {
        if matches!(state.worker, Place::Gone) && state.due.is_empty() {
            return Err(self.commands.ended());
        }
        state.driver = Some(thread::current().id());
        let _turn = Turn(self);
        // Whoever carries out commands brings it back at once.
        while matches!(state.worker, Place::Taken) && !deadline.left().is_zero() {
            state = self.wait_for_change(state, deadline.left());
        }
        let worker = state.take_worker();
        drop(state);
        if let Some(worker) = worker {
            self.with(worker, |worker, due| worker.turn(deadline.left(), due));
        }
        let mut ran = false;
        while let Some((dispatcher, event)) = self.next_due() {
            ran = true;
            dispatcher.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).deliver_here(event);
        }
        Ok(ran)
    }

    /// Lets the worker act, carries out what was asked of it meanwhile, and brings it back.
    fn with(&self, worker: Box<Worker>, act: impl FnOnce(&mut Worker, &mut Due)) {
        let mut due = Due::new();
        let mut outcome = worker.attempt(&mut due, act);
        loop {
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
                Some(worker) => {
                    state.worker = Place::Here(worker);
                    break;
                }
                None => {
                    state.worker = Place::Gone;
                    break;
                }
            };
        }
        self.changed.notify_all();
    }

    fn next_due(&self) -> Option<(Arc<Mutex<dyn Deliver>>, Event)> {
        self.lock().due.pop_front()
    }

    fn check_outside(
        &self,
        state: &State,
        call: &'static str,
        instead: &'static str,
    ) -> Result<(), Error> {
        let inside = state.driver == Some(thread::current().id());
        if inside { Err(Error::InsideCallback(call, instead)) } else { Ok(()) }
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
    /// The worker, if it is here; whoever takes it brings it back.
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
