//! Progress of a team: the calling thread polls the team's network; between calls a background thread polls.

use std::{
    hint,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use collective::{Kind, Reduction};
use session::{Deadline, Threads};
use team::{Counters as TeamCounters, Failure as TeamFailure, Memory, Team};
use transport::{Region, Transport, Waker};

use crate::{Error, network::Network};

/// How long a call polls without progress before it sleeps: longer than a short operation takes.
const POLLING: Duration = Duration::from_micros(100);

/// How often a call looks at memory in vain before each poll. Of 0, 3, 8 and 32, allreduces of 4 bytes among 8 and 16 members on two
/// processors took the least time with 3; between two members that have a processor each, the same time with all.
const GLANCES: u32 = 3;

/// What a call does between two polls before it sleeps: lets another member on the same processor run, or only polls again. Any
/// other program, too, may keep for milliseconds the processor that was given to it.
type Pause = fn();

/// The interval at which the background thread polls an idle team, for heartbeats and to close the
/// links of a failed team.
const IDLE_TICK: Duration = Duration::from_millis(20);

/// The longest sleep of a call; an upper bound only.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The longest sleep of a call that asks the application whether to stop.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum time in which a team's network closes a link in order, whatever its settings: a call whose operation has
/// failed waits for the close, since the network uses the caller's memory until then.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The maximum time in which the links of a dropped team close.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// An operation and its arguments.
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) root: u32,
    /// Length of the message, or of one contribution.
    pub(crate) bytes: u64,
    pub(crate) by: Option<Reduction>,
}

/// A team, and the calls and the thread that drive it.
pub(crate) struct Driver {
    team: Mutex<Team<Network>>,
    /// Ends the thread's wait in the network.
    waker: Waker,
    /// The number of calls that wait for the team, or use it.
    callers: AtomicUsize,
    /// Whether the thread may be waiting in the network.
    thread_polls: AtomicBool,
    interrupt: Interrupt,
    pause: Pause,
    /// The team's counters when the last call ended.
    counted: Mutex<TeamCounters>,
    /// Whether the thread has to end. `changed` is notified when this is set, and when an operation is started.
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Ends waiting calls from outside.
#[derive(Default)]
struct Interrupt {
    /// Why the team must fail: another thread has aborted it, or the application has asked calls to stop.
    aborted: OnceLock<String>,
    should_stop: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// The thread whose call is asking the application: the application's code then runs within the call.
    asks: Mutex<Option<ThreadId>>,
}

impl Interrupt {
    /// The longest sleep of a call.
    fn sleep_max(&self) -> Duration {
        if self.should_stop.get().is_some() { ASK_INTERVAL } else { SLEEP_MAX }
    }

    /// Asks the application whether the call should stop.
    fn ask(&self) {
        let Some(should_stop) = self.should_stop.get() else { return };
        *self.asking() = Some(thread::current().id());
        let stops = should_stop();
        *self.asking() = None;
        if stops {
            let _ = self.aborted.set("its application was interrupted".into());
        }
    }

    fn asking(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The condition for which a call waits.
#[derive(Clone, Copy)]
enum Goal {
    /// The member knows how ways are chosen.
    Ready,
    /// The operation of this number is complete.
    Operation(u64),
    /// The links have closed, once the other members have left.
    End,
}

impl Goal {
    /// Returns whether the goal is reached. Errors: the team has failed before.
    fn is_reached<T: Transport>(self, team: &Team<T>) -> Result<bool, Error> {
        match (self, team.failure()) {
            (Self::Ready, _) => Ok(team.is_ready()?),
            (Self::Operation(number), _) => Ok(team.is_complete(number)?),
            (Self::End, Some(failure)) => Err(Error::TeamFailed(failure.clone())),
            (Self::End, None) => Ok(team.has_ended()),
        }
    }

    /// Returns the text for what has not happened in time.
    fn missed(self) -> &'static str {
        match self {
            Self::Ready => "the costs of a team",
            Self::Operation(_) => "an operation of a team",
            Self::End => "the other members of a team",
        }
    }
}

/// A caller's memory in a long operation. Unless the operation has completed, dropping the loan closes the links first, so that
/// the network no longer uses the memory.
struct Loan<'a> {
    team: &'a mut Team<Network>,
    interrupt: &'a Interrupt,
    pause: Pause,
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
                let goal = Goal::Operation(number);
                wait(self.team, goal, &mut [], deadline, self.interrupt, self.pause)?;
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
        // A network closes every link within its drain timeout: see `DRAIN_MAX`.
        while !self.team.has_ended() {
            self.team.progress(&mut [], IDLE_TICK);
        }
    }
}

/// Exclusive use of the team, until dropped.
struct Turn<'a> {
    driver: &'a Driver,
    team: MutexGuard<'a, Team<Network>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.driver.counted.lock().unwrap_or_else(PoisonError::into_inner) = self.team.counters();
        self.driver.callers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Driver {
    /// `is_crowded`: this host has more members than processors.
    pub(crate) fn new(team: Team<Network>, is_crowded: bool) -> Self {
        Self {
            pause: if is_crowded { thread::yield_now } else { hint::spin_loop },
            waker: team.waker(),
            team: Mutex::new(team),
            callers: AtomicUsize::new(0),
            thread_polls: AtomicBool::new(false),
            interrupt: Interrupt::default(),
            counted: Mutex::default(),
            stopped: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Starts the background thread.
    ///
    /// Errors: the system cannot create a thread.
    pub(crate) fn start(self: &Arc<Self>, threads: &Threads) -> Result<(), Error> {
        let driver = Arc::clone(self);
        threads
            .spawn("rdmc-team", "the thread of a team".into(), move || driver.run())
            .map_err(|error| Error::System { what: "starting the thread of a team".into(), error })
    }

    /// Drives the network until this member knows how ways are chosen.
    ///
    /// Errors: the team fails, or the deadline is missed, which fails the team.
    pub(crate) fn join(&self, deadline: Deadline) -> Result<(), Error> {
        let mut turn = self.enter();
        wait(&mut turn.team, Goal::Ready, &mut [], deadline, &self.interrupt, self.pause)?;
        // What it tells others leaves now, and not with the first call.
        turn.team.progress(&mut [], Duration::ZERO);
        Ok(())
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

    /// Calls an operation, and drives the network until the operation is complete.
    ///
    /// Errors: the call is refused, the team fails, or the timeout expires, which fails the team.
    pub(crate) fn call(
        &self,
        operation: Operation,
        memory: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut turn = self.enter();
        let Operation { kind, root, bytes, .. } = operation;
        if kind.has_parts_at_root() {
            let needed = turn.team.memory_bytes(kind, root, bytes, None)?;
            // Parts of others pass through this member.
            if let Ok(needed) = usize::try_from(needed)
                && needed > memory.len()
                && root != turn.team.rank()
            {
                let mut parts = vec![0; needed];
                parts[..memory.len()].copy_from_slice(memory);
                self.call_in(&mut turn, operation, &mut parts, deadline)?;
                if kind == Kind::Scatter {
                    memory.copy_from_slice(&parts[..memory.len()]);
                }
                return Ok(());
            }
        }
        self.call_in(&mut turn, operation, memory, deadline)
    }

    fn call_in(
        &self,
        turn: &mut Turn<'_>,
        operation: Operation,
        memory: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), Error> {
        let Operation { kind, root, bytes, by } = operation;
        if turn.team.is_long(kind, bytes, by.as_ref()) {
            return transport::lend(memory, |region| {
                let (team, interrupt, pause) = (&mut *turn.team, &self.interrupt, self.pause);
                let loan = Loan { team, interrupt, pause, is_used: true };
                loan.run(Operation { kind, root, bytes, by }, region, deadline)
            });
        }
        let number = turn.team.start(kind, root, bytes, by, Memory::Lent(memory))?;
        wait(
            &mut turn.team,
            Goal::Operation(number),
            memory,
            deadline,
            &self.interrupt,
            self.pause,
        )?;
        turn.team.take(number);
        Ok(())
    }

    /// Registers memory with the team's network.
    ///
    /// Errors: the network refuses the memory.
    pub(crate) fn register(&self, region: &Region) -> Result<(), Error> {
        let registered = self.enter().team.register(region);
        registered.map_err(|error| Error::Transport(error.to_string()))
    }

    /// Starts an operation without waiting; its memory is not lent. Returns its number.
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
        wait(
            &mut turn.team,
            Goal::Operation(number),
            &mut [],
            deadline,
            &self.interrupt,
            self.pause,
        )?;
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

    /// Fails the team at all members, and ends a call in progress: on another thread, or on this thread if the call is asking
    /// the application whether to stop.
    pub(crate) fn abort(&self, reason: &str) {
        let _ = self.interrupt.aborted.set(reason.to_owned());
        if *self.interrupt.asking() == Some(thread::current().id()) {
            // The call has the team, and checks for a reason next.
            return;
        }
        (self.waker)();
        self.enter().team.abort(reason);
    }

    /// Returns why the team has failed; `None` also while a call is in progress.
    pub(crate) fn failure(&self) -> Option<TeamFailure> {
        self.team.try_lock().ok()?.failure().cloned()
    }

    /// Returns the team's counters; while a call is in progress, those from before the call.
    pub(crate) fn counters(&self) -> TeamCounters {
        match self.team.try_lock() {
            Ok(team) => team.counters(),
            Err(_) => *self.counted.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Ends the team in order, after a last barrier. Blocks until the deadline.
    ///
    /// Errors: as [`Driver::call`]; the links did not close in time.
    pub(crate) fn close(&self, deadline: Deadline) -> Result<(), Error> {
        let barrier = Operation { kind: Kind::Close, root: 0, bytes: 0, by: None };
        self.call(barrier, &mut [], deadline)?;
        let mut turn = self.enter();
        turn.team.leave()?;
        wait(&mut turn.team, Goal::End, &mut [], deadline, &self.interrupt, self.pause)
    }

    /// Ends the thread, and the links of a team that was not closed: the team then fails at all other members.
    pub(crate) fn shut_down(&self, threads: &Threads) {
        let deadline = Deadline::after(DROP_TIMEOUT);
        // Also ends a call on another thread, which may wait for a started operation.
        self.abort("it dropped the team");
        {
            let mut turn = self.enter();
            while !turn.team.has_ended() && !deadline.left().is_zero() {
                turn.team.progress(&mut [], deadline.left());
            }
        }
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
        (self.waker)();
        threads.join(Deadline::after(DROP_TIMEOUT));
    }

    /// Runs the background thread: polls without pause while operations are pending and no call is in progress, otherwise
    /// every [`IDLE_TICK`].
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
        // A call made from now on uses the waker.
        self.thread_polls.store(true, Ordering::SeqCst);
        if self.callers.load(Ordering::SeqCst) == 0 {
            team.progress(&mut [], IDLE_TICK);
        }
        self.thread_polls.store(false, Ordering::SeqCst);
        self.callers.load(Ordering::SeqCst) == 0
    }
}

/// Drives the network until the goal is reached: polls for a short time, then sleeps.
///
/// Errors: the team fails, or the deadline is missed, which fails the team.
fn wait<T: Transport>(
    team: &mut Team<T>,
    goal: Goal,
    memory: &mut [u8],
    deadline: Deadline,
    interrupt: &Interrupt,
    pause: Pause,
) -> Result<(), Error> {
    let mut moved = (team.moved_at(), Instant::now());
    let mut glances = 0;
    while !goal.is_reached(team)? {
        // Takes less time than a poll, which has to follow: it receives control words, such as those that free slots.
        if team.shows_writes() {
            if team.glance(memory) {
                continue;
            }
            if glances < GLANCES {
                glances += 1;
                pause();
                continue;
            }
        }
        glances = 0;
        team.progress(memory, Duration::ZERO);
        // After the poll, which consumes the wake of an abort. A later abort wakes the next poll, even if that sleeps.
        if let Some(reason) = interrupt.aborted.get() {
            team.abort(reason);
            if goal.is_reached(team)? {
                break;
            }
        }
        let now = Instant::now();
        if team.moved_at() != moved.0 {
            moved = (team.moved_at(), now);
        } else if now < moved.1 + POLLING {
            pause();
        } else if goal.is_reached(team)? {
            // By a word, which does not count as a move.
            break;
        } else if deadline.left().is_zero() {
            team.time_out(deadline.timeout());
            goal.is_reached(team)?;
            return Err(deadline.missed(goal.missed()).into());
        } else {
            team.progress(memory, deadline.left().min(interrupt.sleep_max()));
            interrupt.ask();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use team::TeamSettings;
    use transport::{Completion, EndpointId, PostError};
    use transport_sim::{SimConfig, SimLink, SimNet, SimTransport};

    use super::*;

    /// A network in which something happens in each poll without a wait; counts those that may sleep.
    struct Watched {
        inner: SimTransport,
        /// Called in a poll without a wait, with the number of sleeps before it.
        meanwhile: Box<dyn FnMut(usize) + Send>,
        sleeps: Arc<AtomicUsize>,
    }

    impl Transport for Watched {
        type Link = SimLink;

        transport::forward!(
            inner;
            now, block_bytes_max, post_receive, post_send, write_control, one_sided, close, waker
        );

        fn open(&mut self, link: SimLink) -> Result<EndpointId, PostError> {
            self.inner.open(link)
        }

        fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
            if !wait.is_zero() {
                self.sleeps.fetch_add(1, Ordering::SeqCst);
            } else {
                (self.meanwhile)(self.sleeps.load(Ordering::SeqCst));
            }
            self.inner.poll(completions, Duration::ZERO);
        }
    }

    /// Both members of a team, and the number of sleeps of the second one. The first one's costs are on their way to it.
    struct Pair {
        first: Team<SimTransport>,
        second: Team<Watched>,
        sleeps: Arc<AtomicUsize>,
        network: SimNet,
    }

    impl Pair {
        fn new(meanwhile: impl FnMut(usize) + Send + 'static) -> Self {
            let network = SimNet::new(SimConfig::default(), 1);
            let (one, other) = (network.member(), network.member());
            let (near, far) = network.connect(0, 1);
            let settings = |rank| {
                let mut settings = TeamSettings::new(1, 2, rank);
                settings.takes_costs = true;
                settings
            };
            let first = Team::new(one, settings(0), [(1, near)]).unwrap();
            let sleeps = Arc::default();
            let watched = Watched {
                inner: other,
                meanwhile: Box::new(meanwhile),
                sleeps: Arc::clone(&sleeps),
            };
            let second = Team::new(watched, settings(1), [(0, far)]).unwrap();
            Self { first, second, sleeps, network }
        }

        /// A pair whose second member is ready. Another thread aborts the team while a call polls without waiting, once it has slept.
        fn aborted() -> (Self, Arc<Interrupt>) {
            let interrupt = Arc::<Interrupt>::default();
            let aborts = Arc::clone(&interrupt);
            let mut pair = Self::new(move |sleeps| {
                if sleeps > 0 {
                    // The wake that follows ends this poll.
                    let _ = aborts.aborted.set("enough".into());
                }
            });
            pair.send();
            pair.second.progress(&mut [], Duration::ZERO);
            assert!(pair.second.is_ready().unwrap());
            (pair, interrupt)
        }

        /// Takes what is on its way to the second member there.
        fn send(&mut self) {
            self.first.progress(&mut [], Duration::ZERO);
            while self.network.step().is_some() {}
        }

        fn wait(&mut self, goal: Goal, interrupt: &Interrupt) -> Result<(), Error> {
            let deadline = Deadline::after(Duration::from_secs(5));
            wait(&mut self.second, goal, &mut [], deadline, interrupt, thread::yield_now)
        }

        fn sleeps(&self) -> usize {
            self.sleeps.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_call_does_not_sleep_after_an_abort_whose_wake_was_used_up() {
        let (mut pair, interrupt) = Pair::aborted();
        let number = pair.second.start(Kind::Barrier, 0, 0, None, Memory::Lent(&mut [])).unwrap();
        let outcome = pair.wait(Goal::Operation(number), &interrupt);
        assert!(matches!(outcome, Err(Error::TeamFailed(_))), "{outcome:?}");
        assert_eq!(pair.sleeps(), 1);
    }

    #[test]
    fn an_abort_ends_the_wait_for_members_that_do_not_leave() {
        let (mut pair, interrupt) = Pair::aborted();
        pair.second.leave().unwrap();
        let outcome = pair.wait(Goal::End, &interrupt);
        assert!(matches!(outcome, Err(Error::TeamFailed(_))), "{outcome:?}");
        assert_eq!(pair.sleeps(), 1);
    }

    #[test]
    fn a_member_does_not_sleep_after_a_long_poll_that_has_brought_what_it_waits_for() {
        // Longer than it polls before it sleeps, as where cryptography or another process takes the time.
        let mut pair = Pair::new(|_| thread::sleep(2 * POLLING));
        pair.send();
        pair.wait(Goal::Ready, &Interrupt::default()).unwrap();
        assert_eq!(pair.sleeps(), 0);
    }

    #[test]
    fn a_member_does_not_sleep_after_a_long_poll_that_has_brought_a_failure() {
        let (mut pair, interrupt) =
            (Pair::new(|_| thread::sleep(2 * POLLING)), Interrupt::default());
        pair.send();
        pair.wait(Goal::Ready, &interrupt).unwrap();
        let number = pair.second.start(Kind::Barrier, 0, 0, None, Memory::Lent(&mut [])).unwrap();
        pair.first.abort("enough");
        pair.send();
        let outcome = pair.wait(Goal::Operation(number), &interrupt);
        assert!(matches!(outcome, Err(Error::TeamFailed(_))), "{outcome:?}");
        assert_eq!(pair.sleeps(), 0);
    }
}
