//! An application's handle to a team.

use std::{
    fmt,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use collective::{Element, Function, Kind, Op, Reduction, Type, bytes_of, bytes_of_mut};
use session::{Deadline, Threads};
use team::{Counters as TeamCounters, Failure as TeamFailure, Memory};
use transport::Region;

use crate::{
    Error, Prepared, TeamSettings,
    team_driver::{Driver, Operation},
};

/// A fixed, ordered list of members that call operations together: broadcast, scatter, gather, reductions, and operations
/// composed of these, for messages of 4 bytes to a few MiB, where the number of steps dominates.
///
/// All members have to make the same calls in the same order; the i-th call at each member belongs to the same
/// operation. Different calls fail the team, and the error names them.
///
/// # Blocking and threads
/// A call blocks until this member's part is done; the calling thread drives the team's
/// network. A broadcast returns at the root once the message is on its way. Concurrent calls are
/// serialized. Between calls a
/// background thread of the team sends heartbeats, so
/// that a member in a long computation is not considered lost. Contexts with
/// [`crate::Progress::Caller`] have no such thread: a member that makes no call for
/// [`crate::TcpSettings::silence_timeout`] is considered lost.
///
/// # Failures
/// The team fails if a member's process ends, a member falls silent, or a call waits for a member beyond
/// its timeout. All calls at all members then return [`Error::TeamFailed`] with the member and the reason, and
/// the values passed to an operation in progress are undefined.
///
/// # Closing
/// [`Team::close`] ends a team in order. Dropping a team without closing it fails the team at all other
/// members. A team outlives its context.
pub struct Team {
    settings: TeamSettings,
    /// The linked members with whom this one shares memory.
    shared: Vec<u32>,
    /// How often it was split.
    splits: AtomicU64,
    driver: Arc<Driver>,
    threads: Threads,
    is_closed: bool,
}

/// An operation in progress, started by [`Team::start_all_reduce`].
#[must_use = "the result is lost with it"]
pub struct Pending<E> {
    driver: Arc<Driver>,
    number: u64,
    element: PhantomData<E>,
}

impl Team {
    /// `settings` are valid.
    pub(crate) fn new(
        settings: TeamSettings,
        shared: Vec<u32>,
        driver: Arc<Driver>,
        threads: Threads,
    ) -> Self {
        Self { settings, shared, splits: AtomicU64::new(0), driver, threads, is_closed: false }
    }

    /// Returns the ranks of the members to whom this one's links go through shared memory, as they do by default between
    /// processes of one user on one machine. Its other links go through the fabric.
    pub fn shares_memory_with(&self) -> &[u32] {
        &self.shared
    }

    /// Returns the team's number.
    pub fn number(&self) -> u64 {
        self.settings.number
    }

    /// Returns this member's rank.
    pub fn rank(&self) -> u32 {
        self.settings.rank
    }

    /// Returns the number of members.
    pub fn members(&self) -> u32 {
        // The cast is lossless: a team has at most 65,536.
        self.settings.members.len() as u32
    }

    /// Waits until all members have called `barrier`.
    ///
    /// # Errors
    /// [`Error::TeamFailed`], also if the timeout expires; the team is closed.
    pub fn barrier(&self, timeout: Duration) -> Result<(), Error> {
        self.run::<u8>(Kind::Barrier, 0, None, &mut [], timeout)
    }

    /// Replaces `values` at all members by those of the root.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::TeamCall`] if `root` is not a rank of the team.
    pub fn broadcast<E: Element>(
        &self,
        root: u32,
        values: &mut [E],
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::Broadcast, root, None, values, timeout)
    }

    /// Reduces `values` element by element over all members, and replaces them at all members by the
    /// result, which is bitwise identical at all members.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::TeamCall`] if the operator does not support the type.
    pub fn all_reduce<E: Element>(
        &self,
        values: &mut [E],
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::AllReduce, 0, Some(reduction(E::TYPE, op)?), values, timeout)
    }

    /// Reduces as [`Team::all_reduce`] does, by a user-defined function; `bytes` is a whole number of its
    /// elements. Members are folded in rank order.
    ///
    /// # Errors
    /// As for [`Team::all_reduce`].
    pub fn all_reduce_by(
        &self,
        bytes: &mut [u8],
        function: &Function,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::AllReduce, 0, Some(function.clone().into()), bytes, timeout)
    }

    /// Reduces as [`Team::all_reduce`] does, with an element type chosen at run time; `bytes` may have any alignment.
    ///
    /// # Errors
    /// As for [`Team::all_reduce`]; [`Error::TeamCall`] if `bytes` is not a whole number of elements.
    pub fn all_reduce_bytes(
        &self,
        bytes: &mut [u8],
        element: Type,
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::AllReduce, 0, Some(reduction(element, op)?), bytes, timeout)
    }

    /// Reduces `values` element by element over all members, and replaces them at the root by the result.
    /// At the other members `values` do not change.
    ///
    /// # Errors
    /// As for [`Team::all_reduce`].
    pub fn reduce<E: Element>(
        &self,
        root: u32,
        values: &mut [E],
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.reduce_with(root, values, reduction(E::TYPE, op)?, timeout)
    }

    /// Reduces as [`Team::reduce`] does, by a user-defined function: see [`Team::all_reduce_by`].
    ///
    /// # Errors
    /// As for [`Team::all_reduce`].
    pub fn reduce_by(
        &self,
        root: u32,
        bytes: &mut [u8],
        function: &Function,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.reduce_with(root, bytes, function.clone().into(), timeout)
    }

    /// Reduces as [`Team::reduce`] does, with an element type chosen at run time: see [`Team::all_reduce_bytes`].
    ///
    /// # Errors
    /// As for [`Team::all_reduce_bytes`].
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
        if self.rank() == root {
            return self.run(Kind::Reduce, root, Some(by), values, timeout);
        }
        let mut partial = bytes_of(values).to_vec();
        self.run(Kind::Reduce, root, Some(by), &mut partial, timeout)
    }

    /// Collects the values of all members, in rank order. `values` has one part of equal length per member;
    /// before the call each member stores its own values in the part of its rank.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::TeamCall`] if the length of `values` is not a multiple
    /// of the number of members.
    pub fn all_gather<E: Element>(&self, values: &mut [E], timeout: Duration) -> Result<(), Error> {
        self.run(Kind::AllGather, 0, None, values, timeout)
    }

    /// Reduces as [`Team::all_reduce`] does, but each member gets only its part of the result: in about half of the time, where the
    /// values are long. `values` has one part of equal length per member, in rank order. Afterwards the part of this member's rank
    /// is that of the result, and the other parts are undefined.
    ///
    /// # Errors
    /// As for [`Team::all_reduce`]; [`Error::TeamCall`] if the length of `values` is not a multiple of the number of members.
    ///
    /// # Examples
    /// ```
    /// # fn sum(team: &rdmc::Team, gradients: &mut [f32]) -> Result<(), rdmc::Error> {
    /// let timeout = std::time::Duration::from_secs(10);
    /// team.reduce_scatter(gradients, rdmc::Op::Sum, timeout)?;
    /// let part = gradients.len() / team.members() as usize;
    /// let mine = &gradients[team.rank() as usize * part..][..part];
    /// # let _ = mine;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce_scatter<E: Element>(
        &self,
        values: &mut [E],
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::ReduceScatter, 0, Some(reduction(E::TYPE, op)?), values, timeout)
    }

    /// Reduces as [`Team::reduce_scatter`] does, by a user-defined function: see [`Team::all_reduce_by`].
    ///
    /// # Errors
    /// As for [`Team::reduce_scatter`].
    pub fn reduce_scatter_by(
        &self,
        bytes: &mut [u8],
        function: &Function,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::ReduceScatter, 0, Some(function.clone().into()), bytes, timeout)
    }

    /// Reduces as [`Team::reduce_scatter`] does, with an element type chosen at run time: see [`Team::all_reduce_bytes`].
    ///
    /// # Errors
    /// As for [`Team::reduce_scatter`] and [`Team::all_reduce_bytes`].
    pub fn reduce_scatter_bytes(
        &self,
        bytes: &mut [u8],
        element: Type,
        op: Op,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::ReduceScatter, 0, Some(reduction(element, op)?), bytes, timeout)
    }

    /// Sends each member its part of the root's values. At the root `values` has one part of equal length per member, in rank order,
    /// and does not change. At the other members it has the length of one part, and is replaced by the member's own.
    ///
    /// Other members may need memory for the parts of members to which they pass them on.
    ///
    /// # Errors
    /// As for [`Team::broadcast`]; [`Error::TeamCall`] if the length of `values` at the root is not a multiple of the number of
    /// members.
    ///
    /// # Examples
    /// ```
    /// # fn hand_out(team: &rdmc::Team, whole: Vec<u64>) -> Result<(), rdmc::Error> {
    /// let timeout = std::time::Duration::from_secs(10);
    /// let mut values = if team.rank() == 0 { whole } else { vec![0; 1000] };
    /// team.scatter(0, &mut values, timeout)?;
    /// // Back again, with this member's part in its place.
    /// team.gather(0, &mut values, timeout)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scatter<E: Element>(
        &self,
        root: u32,
        values: &mut [E],
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::Scatter, root, None, values, timeout)
    }

    /// Collects the values of all members at the root, in rank order: [`Team::scatter`] backwards. At the root `values` has one part
    /// of equal length per member, its own in its place before the call. At the other members it is the member's part, and does not
    /// change.
    ///
    /// # Errors
    /// As for [`Team::scatter`].
    pub fn gather<E: Element>(
        &self,
        root: u32,
        values: &mut [E],
        timeout: Duration,
    ) -> Result<(), Error> {
        self.run(Kind::Gather, root, None, values, timeout)
    }

    /// Tells the other members a color and a key. Returns the settings of the team of those with the same color, if this member has
    /// one.
    ///
    /// Errors: as [`Team::all_gather`].
    pub(crate) fn agree(
        &self,
        color: Option<u32>,
        key: i64,
        timeout: Duration,
    ) -> Result<Option<TeamSettings>, Error> {
        // Of each member whether it has a color, the color and the key.
        let mut told = vec![[0; 3]; self.members() as usize];
        told[self.rank() as usize] = [color.is_some().into(), color.unwrap_or(0).into(), key];
        self.all_gather(told.as_flattened_mut(), timeout)?;
        let split = self.splits.fetch_add(1, Ordering::Relaxed);
        let Some(color) = color else { return Ok(None) };
        let same = |told: &[i64; 3]| told[..2] == [1, color.into()];
        let of_color = (0..).zip(&told).filter(|(_, told)| same(told));
        let mut chosen: Vec<(i64, u32)> = of_color.map(|(rank, told)| (told[2], rank)).collect();
        chosen.sort_unstable();
        let rank = chosen.iter().position(|&(_, rank)| rank == self.rank());
        let address = |&(_, rank): &(i64, u32)| self.settings.members[rank as usize];
        Ok(Some(TeamSettings {
            number: derived_number(self.number(), split, color),
            members: chosen.iter().map(address).collect(),
            rank: rank.map_or(0, |rank| rank as u32),
            ..self.settings.clone()
        }))
    }

    /// Starts an all-reduce of `values`, and returns without waiting. Several operations may be in progress
    /// at once; they advance within calls and on the team's thread.
    ///
    /// # Errors
    /// As for [`Team::all_reduce`].
    pub fn start_all_reduce<E: Element>(&self, values: &[E], op: Op) -> Result<Pending<E>, Error> {
        let (kind, memory) = (Kind::AllReduce, bytes_of(values).to_vec());
        let bytes = memory.len() as u64;
        let by = Some(reduction(E::TYPE, op)?);
        let number =
            self.driver.begin(Operation { kind, root: 0, bytes, by }, Memory::Owned(memory))?;
        Ok(Pending { driver: Arc::clone(&self.driver), number, element: PhantomData })
    }

    /// Prepares an all-reduce of the elements in `region` that can be repeated: the memory is checked and registered with the
    /// network once.
    ///
    /// # Errors
    /// [`Error::TeamCall`] if the operator does not support the type, or if the memory is in use, read-only, in a file, or
    /// not a whole number of elements; [`Error::Transport`] if the network refuses the memory.
    pub fn prepare_all_reduce(
        &self,
        region: Region,
        element: Type,
        op: Op,
    ) -> Result<Prepared, Error> {
        Prepared::new(Arc::clone(&self.driver), region, reduction(element, op)?)
    }

    /// Sets a function that waiting calls poll on their own thread, about ten times a second. If it returns true, the call
    /// stops and the team fails at all members. For programs that handle signals between calls. Can be set once; later
    /// functions are ignored.
    pub fn stop_if(&self, should_stop: impl Fn() -> bool + Send + Sync + 'static) {
        self.driver.stop_if(Box::new(should_stop));
    }

    /// Fails the team at all members, for this reason and with this member as the cause. Calls that wait on other threads
    /// return the failure.
    pub fn abort(&self, reason: &str) {
        self.driver.abort(reason);
    }

    /// Returns a function that calls [`Team::abort`] with a reason, even while [`Team::close`] blocks on another thread. The
    /// team's network exists until the function is dropped.
    pub fn abort_handle(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let driver = Arc::clone(&self.driver);
        move |reason| driver.abort(reason)
    }

    /// Returns why the team has failed, if it has. Returns `None` while a call is in progress on another thread; that call
    /// then returns the failure. Does not block.
    pub fn failure(&self) -> Option<TeamFailure> {
        self.driver.failure()
    }

    /// Returns this member's counters; while a call is in progress on another thread, those from before the call.
    /// Does not block.
    pub fn counters(&self) -> TeamCounters {
        self.driver.counters()
    }

    /// Closes the team once all members have called `close`. Blocks until the timeout at most.
    ///
    /// # Errors
    /// As for [`Team::barrier`]; [`Error::Timeout`] if the links do not close in time.
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
        if kind.has_parts() && (!kind.has_parts_at_root() || root == self.rank()) {
            bytes /= u64::from(self.members());
        }
        self.driver.call(Operation { kind, root, bytes, by }, memory, Deadline::after(timeout))
    }
}

impl<E: Element> Pending<E> {
    /// Returns whether the operation is complete at this member. Blocks only while other calls of the
    /// team are in progress.
    ///
    /// # Errors
    /// As for [`Team::barrier`].
    pub fn is_complete(&self) -> Result<bool, Error> {
        self.driver.is_complete(self.number)
    }

    /// Waits until the operation is complete, and copies the result to `values`.
    ///
    /// # Errors
    /// As for [`Team::barrier`].
    ///
    /// # Panics
    /// If the length of `values` differs from that passed to [`Team::start_all_reduce`].
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
        write!(f, "Team({}, member {} of {})", self.number(), self.rank(), self.members())
    }
}

impl<E> fmt::Debug for Pending<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({})", self.number)
    }
}

/// Returns the number of a part of a team: a hash of what tells it apart from others.
fn derived_number(number: u64, split: u64, color: u32) -> u64 {
    let parts = [number, split, color.into()].map(u64::to_le_bytes);
    let mut derived = [0; 8];
    blake3::Hasher::new().update(parts.as_flattened()).finalize_xof().fill(&mut derived);
    u64::from_le_bytes(derived)
}

fn reduction(element: Type, op: Op) -> Result<Reduction, Error> {
    Reduction::new(element, op).map_err(|error| Error::TeamCall(error.to_string()))
}
