//! Handles of teams.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use collective::{Element, Function, Kind, Op, Reduction, Type, bytes_of, bytes_of_mut};
use session::{Deadline, Threads};
use team::{Counters as TeamCounters, Failure as TeamFailure, Memory};
use transport::Region;

use crate::{
    Error, Prepared,
    team_driver::{Driver, Operation},
};

/// A fixed, ordered list of members that call operations together: broadcast, reductions, and others
/// made of them, for messages of 4 bytes to some MiB, where the number of steps counts.
///
/// All members have to make the same calls in the same order; the i-th call of each is one
/// operation. Members that call different things fail the team, and the error names them.
///
/// # Blocking and threads
/// A call blocks until this member's part is done, and the thread that calls drives the team's
/// network itself. A broadcast is done at the root when the message is on its way. Calls of several
/// threads are made one after another. Between calls a background thread of the team sends heartbeats, so
/// that a long computation does not look like a dead member. Contexts with
/// [`crate::Progress::Caller`] have no such thread: there a member that makes no call for
/// [`crate::TcpSettings::silence_timeout`] is considered lost.
///
/// # Failures
/// A member that dies, falls silent, or is waited for beyond a timeout fails the team: at all members
/// all calls return [`Error::TeamFailed`] with the member and the reason. The values that an
/// operation was called with are then undefined.
///
/// # The end
/// [`Team::close`] ends a team in order. Dropping it fails it at all other members. A team outlives its
/// context.
pub struct Team {
    number: u64,
    rank: u32,
    members: u32,
    driver: Arc<Driver>,
    threads: Threads,
    is_closed: bool,
}

/// An operation that was started and is not waited for yet; see [`Team::start_all_reduce`].
#[must_use = "the result is lost with it"]
pub struct Pending<E> {
    driver: Arc<Driver>,
    number: u64,
    element: PhantomData<E>,
}

impl Team {
    pub(crate) fn new(
        (number, rank, members): (u64, u32, u32),
        driver: Arc<Driver>,
        threads: Threads,
    ) -> Self {
        Self { number, rank, members, driver, threads, is_closed: false }
    }

    /// Returns the team's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns this member's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of members.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Waits until all members have called this.
    ///
    /// Errors: [`Error::TeamFailed`], which the timeout causes, too; the team is closed.
    pub fn barrier(&self, timeout: Duration) -> Result<(), Error> {
        self.run::<u8>(Kind::Barrier, 0, None, &mut [], timeout)
    }

    /// Replaces `values` at all members by those of the root.
    ///
    /// Errors: as [`Team::barrier`]; [`Error::TeamCall`] if there is no such rank.
    pub fn broadcast<E: Element>(
        &self,
        root: u32,
        values: &mut [E],
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::Broadcast, root, None, values, timeout)
    }

    /// Replaces each of `values` at all members by its combination over all members. All have the
    /// same bits afterwards.
    ///
    /// Errors: as [`Team::barrier`]; [`Error::TeamCall`] if the operator does not work on the type.
    pub fn all_reduce<E: Element>(
        &self,
        values: &mut [E],
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::AllReduce, 0, Some(reduction(E::TYPE, op)?), values, timeout)
    }

    /// As [`Team::all_reduce`], by a function of the user's on bytes: a whole number of its elements.
    /// Members are folded in the order of ranks.
    ///
    /// Errors: as [`Team::all_reduce`].
    pub fn all_reduce_by(
        &self,
        bytes: &mut [u8],
        function: &Function,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::AllReduce, 0, Some(function.clone().into()), bytes, timeout)
    }

    /// As [`Team::all_reduce`], of elements whose type is known when it is called; they may be at any address.
    ///
    /// Errors: as [`Team::all_reduce`]; [`Error::TeamCall`] if the bytes are no whole number of elements.
    pub fn all_reduce_bytes(
        &self,
        bytes: &mut [u8],
        element: Type,
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::AllReduce, 0, Some(reduction(element, op)?), bytes, timeout)
    }

    /// Replaces each of `values` at the root by its combination over all members; elsewhere `values`
    /// do not change.
    ///
    /// Errors: as [`Team::all_reduce`].
    pub fn reduce<E: Element>(
        &self,
        root: u32,
        values: &mut [E],
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.reduce_with(root, values, reduction(E::TYPE, op)?, timeout)
    }

    /// As [`Team::reduce`], by a function of the user's on bytes: see [`Team::all_reduce_by`].
    ///
    /// Errors: as [`Team::all_reduce`].
    pub fn reduce_by(
        &self,
        root: u32,
        bytes: &mut [u8],
        function: &Function,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.reduce_with(root, bytes, function.clone().into(), timeout)
    }

    /// As [`Team::reduce`], of elements whose type is known when it is called: see [`Team::all_reduce_bytes`].
    ///
    /// Errors: as [`Team::all_reduce_bytes`].
    pub fn reduce_bytes(
        &self,
        root: u32,
        bytes: &mut [u8],
        element: Type,
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.reduce_with(root, bytes, reduction(element, op)?, timeout)
    }

    fn reduce_with<E: Element>(
        &self,
        root: u32,
        values: &mut [E],
        by: Reduction,
        timeout: Duration,
    ) -> Result<(), Error> {
        if self.rank == root {
            return self.run(Kind::Reduce, root, Some(by), values, timeout);
        }
        let mut partial = bytes_of(values).to_vec();
        self.run(Kind::Reduce, root, Some(by), &mut partial, timeout)
    }

    /// Collects the values of all members, one member's after another's by rank. Those of this
    /// member are at its place in `values` before the call; all have the same length.
    ///
    /// Errors: as [`Team::barrier`]; [`Error::TeamCall`] if the length of `values` is not a multiple
    /// of the number of members.
    pub fn all_gather<E: Element>(&self, values: &mut [E], timeout: Duration) -> Result<(), Error> {
        self.run(Kind::AllGather, 0, None, values, timeout)
    }

    /// Starts to combine these values over all members, and returns without waiting. Operations that
    /// are started are under way at the same time; they proceed within calls and on the team's thread.
    ///
    /// Errors: as [`Team::all_reduce`].
    pub fn start_all_reduce<E: Element>(&self, values: &[E], op: Op) -> Result<Pending<E>, Error> {
        let (kind, memory) = (Kind::AllReduce, bytes_of(values).to_vec());
        let bytes = memory.len() as u64;
        let by = Some(reduction(E::TYPE, op)?);
        let number =
            self.driver.begin(Operation { kind, root: 0, bytes, by }, Memory::Owned(memory))?;
        Ok(Pending { driver: Arc::clone(&self.driver), number, element: PhantomData })
    }

    /// Prepares an all-reduce of the elements in this memory, to be repeated: the memory is checked and registered with the
    /// network once.
    ///
    /// Errors: [`Error::TeamCall`] if the operator does not work on the type, or the memory is in use, read-only, in a file, or
    /// no whole number of elements; [`Error::Transport`] if the network refuses it.
    pub fn prepare_all_reduce(
        &self,
        region: Region,
        element: Type,
        op: Op,
    ) -> Result<Prepared, Error> {
        Prepared::new(Arc::clone(&self.driver), region, reduction(element, op)?)
    }

    /// Sets a function that a call which waits asks some ten times a second, on its own thread: whether it is to stop. If so,
    /// the team fails at all members. For programs whose signals are handled between two calls. Set once; later functions are
    /// ignored.
    pub fn stop_if(&self, should_stop: impl Fn() -> bool + Send + Sync + 'static) {
        self.driver.stop_if(Box::new(should_stop));
    }

    /// Makes the team fail at all members, for this reason and by this member. Calls of other threads that wait end with the
    /// failure.
    pub fn abort(&self, reason: &str) {
        self.driver.abort(reason);
    }

    /// Returns what calls [`Team::abort`] with a reason, also while [`Team::close`] blocks on another thread. It keeps the team's
    /// network until it is dropped.
    pub fn abort_handle(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let driver = Arc::clone(&self.driver);
        move |reason| driver.abort(reason)
    }

    /// Returns why the team has failed, if it has. `None` also while a call of another thread is in progress, which returns
    /// the failure then. Does not block.
    pub fn failure(&self) -> Option<TeamFailure> {
        self.driver.failure()
    }

    /// Returns what this member has done so far; while a call of another thread is in progress, what it had done before that.
    /// Does not block.
    pub fn counters(&self) -> TeamCounters {
        self.driver.counters()
    }

    /// Ends the team when all members have called this. Blocks until the timeout at most.
    ///
    /// Errors: as [`Team::barrier`]; [`Error::Timeout`]: the links did not close in time.
    pub fn close(mut self, timeout: Duration) -> Result<(), Error> {
        let outcome = self.driver.close(Deadline::after(timeout));
        self.is_closed = true;
        self.driver.shut_down(&self.threads);
        outcome
    }

    fn run<E: Element>(
        &self,
        kind: Kind,
        root: u32,
        by: Option<Reduction>,
        values: &mut [E],
        timeout: Duration,
    ) -> Result<(), Error> {
        let memory = bytes_of_mut(values);
        let mut bytes = memory.len() as u64;
        if kind == Kind::AllGather {
            bytes /= u64::from(self.members);
        }
        self.driver.call(Operation { kind, root, bytes, by }, memory, Deadline::after(timeout))
    }
}

impl<E: Element> Pending<E> {
    /// Returns whether the operation is complete at this member. Does not block for longer than other
    /// calls of the team.
    ///
    /// Errors: as [`Team::barrier`].
    pub fn is_complete(&self) -> Result<bool, Error> {
        self.driver.is_complete(self.number)
    }

    /// Waits until the operation is complete, and copies the result to `values`.
    ///
    /// Errors: as [`Team::barrier`].
    ///
    /// # Panics
    /// `values` has another length than those that the operation was started with.
    pub fn wait(self, values: &mut [E], timeout: Duration) -> Result<(), Error> {
        let result = self.driver.finish(self.number, Deadline::after(timeout))?;
        bytes_of_mut(values).copy_from_slice(&result);
        Ok(())
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if !self.is_closed {
            self.driver.shut_down(&self.threads);
        }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, rank, members, .. } = self;
        write!(f, "Team({number}, member {rank} of {members})")
    }
}

impl<E> fmt::Debug for Pending<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({})", self.number)
    }
}

fn reduction(element: Type, op: Op) -> Result<Reduction, Error> {
    Reduction::new(element, op).map_err(|error| Error::TeamCall(error.to_string()))
}
