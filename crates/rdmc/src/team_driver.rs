//! Progress of a team: the calling thread polls its network; between calls a background thread does.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use collective::{Kind, Reduction};
use session::{Deadline, Threads};
use team::{Failure as TeamFailure, Memory, Team};
use transport::{Region, Waker};

use crate::{Error, network::Network};

/// How long a call polls before it sleeps, from when something has moved the last time: longer than a short operation takes.
const POLLING: Duration = Duration::from_micros(100);

/// The interval at which the background thread polls an idle team, for heartbeats and to close the
/// links of a failed team.
const IDLE_TICK: Duration = Duration::from_millis(20);

/// The longest sleep of a call; an upper bound only.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The longest sleep of a call whose application is asked whether it is to stop.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// How long the links of a team that is dropped may take to close.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// An operation as it is called.
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) root: u32,
    /// Length of the message, or of one contribution.
    pub(crate) bytes: u64,
    pub(crate) by: Option<Reduction>,
}

/// The team and who drives it.
pub(crate) struct Driver {
    team: Mutex<Team<Network>>,
    /// Ends the thread's wait in the network.
    waker: Waker,
    /// Calls that want the team, or have it.
    callers: AtomicUsize,
    /// The thread may be waiting in the network.
    thread_polls: AtomicBool,
    interrupt: Interrupt,
    /// Whether the thread has to end; notified with `changed`, also when an operation is started.
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// How a call that waits is ended from outside.
#[derive(Default)]
struct Interrupt {
    /// Why the team is to fail: another thread has aborted it, or the application has asked for the end.
    aborted: OnceLock<String>,
    should_stop: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Interrupt {
    /// The longest sleep of a call.
    fn sleep_max(&self) -> Duration {
        if self.should_stop.get().is_some() { ASK_INTERVAL } else { SLEEP_MAX }
    }

    /// Asks the application whether the call is to stop.
    fn ask(&self) {
        if self.should_stop.get().is_some_and(|should_stop| should_stop()) {
            let _ = self.aborted.set("its application was interrupted".into());
        }
    }
}

/// A caller's memory in a long operation. Unless that has completed, the links are closed before this is dropped, so that the
/// network has given the memory back.
struct Loan<'a> {
    team: &'a mut Team<Network>,
    interrupt: &'a Interrupt,
    is_used: bool,
}

impl Loan<'_> {
    fn run(
        mut self,
        operation: Operation,
        memory: Region,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let Operation { kind, root, bytes, by } = operation;
        match self.team.start(kind, root, bytes, by, Memory::Region(memory)) {
            Ok(number) => {
                wait(self.team, number, &mut [], deadline, self.interrupt)?;
                self.team.take(number);
                self.is_used = false;
                Ok(())
            }
            Err(refused) => {
                // Nothing was started, or the team has failed.
                self.is_used = self.team.failure().is_some();
                Err(refused.into())
            }
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            return;
        }
        self.team.abort("an operation was not completed");
        // A network closes every link within a time of its own.
        while !self.team.has_ended() {
            self.team.progress(&mut [], IDLE_TICK);
        }
    }
}

/// Gives the team back when it is dropped.
struct Turn<'a> {
    driver: &'a Driver,
    team: MutexGuard<'a, Team<Network>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.driver.callers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Driver {
    pub(crate) fn new(team: Team<Network>) -> Self {
        Self {
            waker: team.waker(),
            team: Mutex::new(team),
            callers: AtomicUsize::new(0),
            thread_polls: AtomicBool::new(false),
            interrupt: Interrupt::default(),
            stopped: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Starts the thread.
    ///
    /// Errors: the system has no thread left.
    pub(crate) fn start(self: &Arc<Self>, threads: &Threads) -> Result<(), Error> {
        let driver = Arc::clone(self);
        threads
            .spawn("rdmc-team", "the thread of a team".into(), move || driver.run())
            .map_err(|error| Error::System { what: "starting the thread of a team".into(), error })
    }

    /// Takes the team for a call.
    fn enter(&self) -> Turn<'_> {
        self.callers.fetch_add(1, Ordering::SeqCst);
        if self.thread_polls.load(Ordering::SeqCst) {
            (self.waker)();
        }
        let team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { driver: self, team }
    }

    /// Calls an operation, and drives the network until it is complete.
    ///
    /// Errors: the call is refused, the team fails, or the timeout expires, which fails it.
    pub(crate) fn call(
        &self,
        operation: Operation,
        memory: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut turn = self.enter();
        let Operation { kind, root, bytes, by } = operation;
        if turn.team.is_long(kind, bytes, by.as_ref()) {
            return transport::lend(memory, |region| {
                let (team, interrupt) = (&mut *turn.team, &self.interrupt);
                let loan = Loan { team, interrupt, is_used: true };
                loan.run(Operation { kind, root, bytes, by }, region, deadline)
            });
        }
        let number = turn.team.start(kind, root, bytes, by, Memory::Lent(memory))?;
        wait(&mut turn.team, number, memory, deadline, &self.interrupt)?;
        turn.team.take(number);
        Ok(())
    }

    /// Registers memory with the team's network.
    ///
    /// Errors: the network refuses it.
    pub(crate) fn register(&self, region: &Region) -> Result<(), Error> {
        let registered = self.enter().team.register(region);
        registered.map_err(|error| Error::Transport(error.to_string()))
    }

    /// Calls an operation that is not waited for; its memory is not lent. Returns its number.
    ///
    /// Errors: the call is refused, or the team has failed.
    pub(crate) fn begin(&self, operation: Operation, memory: Memory<'_>) -> Result<u64, Error> {
        let Operation { kind, root, bytes, by } = operation;
        let number = self.enter().team.start(kind, root, bytes, by, memory)?;
        self.changed.notify_all();
        Ok(number)
    }

    /// Drives the network until an operation is complete, and returns its memory.
    ///
    /// Errors: as [`Driver::call`].
    pub(crate) fn finish(&self, number: u64, deadline: Deadline) -> Result<Vec<u8>, Error> {
        let mut turn = self.enter();
        wait(&mut turn.team, number, &mut [], deadline, &self.interrupt)?;
        Ok(turn.team.take(number).unwrap_or_default())
    }

    /// Returns whether an operation is complete. Moves bytes, but does not wait.
    ///
    /// Errors: the team has failed.
    pub(crate) fn is_complete(&self, number: u64) -> Result<bool, Error> {
        let mut turn = self.enter();
        turn.team.progress(&mut [], Duration::ZERO);
        Ok(turn.team.is_complete(number)?)
    }

    pub(crate) fn stop_if(&self, should_stop: Box<dyn Fn() -> bool + Send + Sync>) {
        let _ = self.interrupt.should_stop.set(should_stop);
    }

    /// Makes the team fail at all members, and ends a call in progress on another thread.
    pub(crate) fn abort(&self, reason: &str) {
        let _ = self.interrupt.aborted.set(reason.to_owned());
        (self.waker)();
        self.enter().team.abort(reason);
    }

    /// Why the team has failed; `None` also while a call is in progress.
    pub(crate) fn failure(&self) -> Option<TeamFailure> {
        self.team.try_lock().ok()?.failure().cloned()
    }

    /// Ends the team in order, after a last barrier. Blocks until the deadline.
    ///
    /// Errors: as [`Driver::call`]; the links did not close in time.
    pub(crate) fn close(&self, deadline: Deadline) -> Result<(), Error> {
        let barrier = Operation { kind: Kind::Barrier, root: 0, bytes: 0, by: None };
        self.call(barrier, &mut [], deadline)?;
        let mut turn = self.enter();
        turn.team.leave()?;
        while !turn.team.has_ended() {
            if deadline.left().is_zero() {
                turn.team.time_out();
                break;
            }
            turn.team.progress(&mut [], deadline.left().min(SLEEP_MAX));
        }
        if turn.team.failure().is_none() && !turn.team.has_ended() {
            return Err(deadline.missed("the other members of a team").into());
        }
        turn.team.failure().map_or(Ok(()), |failure| Err(Error::TeamFailed(failure.clone())))
    }

    /// Ends the thread, and the links of a team that was not closed: a failure at all other members.
    pub(crate) fn shut_down(&self, threads: &Threads) {
        let deadline = Deadline::after(DROP_TIMEOUT);
        {
            let mut turn = self.enter();
            turn.team.abort("it dropped the team");
            while !turn.team.has_ended() && !deadline.left().is_zero() {
                turn.team.progress(&mut [], deadline.left());
            }
        }
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
        (self.waker)();
        threads.join(Deadline::after(DROP_TIMEOUT));
    }

    /// The background thread: polls without pause while operations are pending and no call is in progress, else at
    /// [`IDLE_TICK`].
    fn run(&self) {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stopped {
            drop(stopped);
            let is_busy = self.look();
            stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            if !*stopped && !is_busy {
                let waited = self.changed.wait_timeout(stopped, IDLE_TICK);
                stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Polls once, unless a call is in progress. Returns whether operations are pending and no call is in progress.
    fn look(&self) -> bool {
        if self.callers.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let Ok(mut team) = self.team.try_lock() else { return false };
        team.progress(&mut [], Duration::ZERO);
        if !team.is_waiting() {
            return false;
        }
        // A call that comes from now on uses the waker.
        self.thread_polls.store(true, Ordering::SeqCst);
        if self.callers.load(Ordering::SeqCst) == 0 {
            team.progress(&mut [], IDLE_TICK);
        }
        self.thread_polls.store(false, Ordering::SeqCst);
        self.callers.load(Ordering::SeqCst) == 0
    }
}

/// Drives the network until an operation is complete: polls for a short time, then sleeps.
fn wait(
    team: &mut Team<Network>,
    number: u64,
    memory: &mut [u8],
    deadline: Deadline,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let mut moved = (team.moved_at(), Instant::now());
    while !team.is_complete(number)? {
        if let Some(reason) = interrupt.aborted.get() {
            team.abort(reason);
        }
        team.progress(memory, Duration::ZERO);
        let now = Instant::now();
        if team.moved_at() != moved.0 {
            moved = (team.moved_at(), now);
        } else if now < moved.1 + POLLING {
            // Lets another member on the same processor run.
            thread::yield_now();
        } else if deadline.left().is_zero() {
            team.time_out();
            team.is_complete(number)?;
            return Err(deadline.missed("an operation of a team").into());
        } else {
            team.progress(memory, deadline.left().min(interrupt.sleep_max()));
            interrupt.ask();
        }
    }
    Ok(())
}
