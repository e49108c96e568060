//! A member: its context and its team.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
    time::Duration,
};

use pyo3::prelude::*;
use rdmc::{
    Context, ContextSettings, Error, Fabric, Function, Op, Protection, Secret, Team, TeamSettings,
    Type,
};

use crate::{
    devices::{Devices, Operation, Place},
    errors::{invalid, raise, raise_of_device},
    guard::{Process, address_of, duration, interruptible, lock},
    memory::Memory,
    messages::{Messages, MessagesSettings},
    region::{Region, region_of},
};

/// A member of a team, in this process.
#[pyclass(frozen, module = "rdmc._rdmc")]
pub(crate) struct Endpoint {
    context: Mutex<Option<Arc<Context>>>,
    team: Mutex<Option<Arc<Team>>>,
    /// Makes the team fail, also while it is being closed.
    abort: Mutex<Option<Arc<Abort>>>,
    devices: Arc<Devices>,
    address: SocketAddr,
    /// Raised by a signal's handler while a call of this thread has waited.
    interrupted: Arc<Mutex<Option<(ThreadId, PyErr)>>>,
    process: Process,
}

const CLOSED: &str = "the group is closed";

type Abort = dyn Fn(&str) + Send + Sync;

/// 64 hexadecimal digits that all members of a group have to know.
#[pyfunction]
pub(crate) fn random_secret() -> PyResult<String> {
    Ok(Secret::random()?.to_hex().to_string())
}

fn type_and_operator(py: Python<'_>, codes: (usize, usize)) -> PyResult<(Type, Op)> {
    let found = Type::ALL.get(codes.0).copied().zip(Op::ALL.get(codes.1).copied());
    found.ok_or_else(|| invalid(py, "no such type or operator"))
}

/// The sum, which the caller divides afterwards, by a name of its own: it is another call than that of the sum.
///
/// Errors: as [`Function::new`].
fn mean_of(py: Python<'_>, element: Type) -> PyResult<Function> {
    let combine = move |acc: &mut [u8], other: &[u8]| {
        let folded = rdmc::fold(element, Op::Sum, acc, other);
        debug_assert!(folded.is_ok(), "sums of all types exist, and teams cut no element");
    };
    let named = Function::new(&format!("avg of {element}"), element.bytes(), combine);
    let function = named.map_err(|error| invalid(py, &error.to_string()))?;
    Ok(function.commutative())
}

/// Errors: what is no address, and one of two members, of which each would wait for the other.
fn addresses_of(py: Python<'_>, members: &[String]) -> PyResult<Vec<SocketAddr>> {
    let mut ranks = HashMap::new();
    let mut found = Vec::new();
    for (rank, member) in members.iter().enumerate() {
        let address = address_of(py, member)?;
        if let Some(other) = ranks.insert(address, rank) {
            let text = format!(
                "rank {other} and rank {rank} have the same address, {address}: give each its own"
            );
            return Err(invalid(py, &text));
        }
        found.push(address);
    }
    Ok(found)
}

impl Endpoint {
    /// Errors: the team is closed or was not joined; the process is a fork.
    fn team(&self, py: Python<'_>) -> PyResult<Arc<Team>> {
        self.process.check(py)?;
        lock(&self.team).clone().ok_or_else(|| invalid(py, CLOSED))
    }

    /// Errors: the endpoint is closed; the process is a fork.
    fn context(&self, py: Python<'_>) -> PyResult<Arc<Context>> {
        self.process.check(py)?;
        lock(&self.context).clone().ok_or_else(|| invalid(py, CLOSED))
    }

    /// The error that ends a call if another thread has closed the endpoint.
    fn end(&self) -> Option<Error> {
        lock(&self.context).is_none().then(|| Error::TeamCall(CLOSED.into()))
    }

    /// Calls an operation without holding the interpreter. Raises what a signal's handler has raised, if that has ended it.
    fn run(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&Team) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let team = self.team(py)?;
        let outcome = py.detach(|| operation(&team));
        self.outcome(outcome, |error| raise(py, error))
    }

    /// Raises what a signal's handler has raised during a call on this thread, whatever has come of that: the team has been
    /// told to fail.
    fn outcome<E>(&self, outcome: Result<(), E>, raise: impl FnOnce(&E) -> PyErr) -> PyResult<()> {
        let this = thread::current().id();
        match lock(&self.interrupted).take_if(|(thread, _)| *thread == this) {
            Some((_, interruption)) => Err(interruption),
            None => outcome.map_err(|error| raise(&error)),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // In a fork: the connections are the parent's.
            let abort = lock(&self.abort).take();
            std::mem::forget((lock(&self.team).take(), lock(&self.context).take(), abort));
            std::mem::forget(Arc::clone(&self.devices));
        }
    }
}

#[pymethods]
impl Endpoint {
    /// Starts an endpoint that listens.
    #[new]
    #[pyo3(signature = (listen, secret, fabric=None, protection=None))]
    fn new(
        py: Python<'_>,
        listen: &str,
        secret: &str,
        fabric: Option<&str>,
        protection: Option<&str>,
    ) -> PyResult<Self> {
        let secret = Secret::from_hex(secret).map_err(|text| invalid(py, text))?;
        let mut settings = ContextSettings::new(address_of(py, listen)?, secret);
        if let Some(fabric) = fabric {
            settings =
                settings.fabric(fabric.parse::<Fabric>().map_err(|error| raise(py, &error))?);
        }
        if let Some(protection) = protection {
            let parsed = protection.parse::<Protection>().map_err(|error| raise(py, &error))?;
            settings = settings.protection(parsed);
        }
        let context = py.detach(|| Context::start(settings)).map_err(|error| raise(py, &error))?;
        let address = context.address();
        Ok(Self {
            context: Mutex::new(Some(Arc::new(context))),
            team: Mutex::default(),
            devices: Arc::default(),
            abort: Mutex::default(),
            address,
            interrupted: Arc::default(),
            process: Process::this(),
        })
    }

    /// Where others reach it.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Joins a team of these members within this many seconds.
    fn join(
        &self,
        py: Python<'_>,
        number: u64,
        members: Vec<String>,
        rank: u32,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let settings = TeamSettings::new(number, addresses_of(py, &members)?, rank)
            .connect_timeout(duration(timeout));
        let context = self.context(py)?;
        let team = interruptible(py, || self.end(), move || context.create_team(settings))?;
        let interrupted = Arc::clone(&self.interrupted);
        team.stop_if(move || {
            // Runs handlers on the main thread only, as Python does.
            let signals = Python::attach(|py| py.check_signals());
            let raised = signals.map_err(|error| (thread::current().id(), error));
            raised.map_err(|raised| *lock(&interrupted) = Some(raised)).is_err()
        });
        *lock(&self.abort) = Some(Arc::new(team.abort_handle()));
        *lock(&self.team) = Some(Arc::new(team));
        Ok(())
    }

    /// Joins a group whose root sends messages, within this many seconds.
    fn messages(
        &self,
        py: Python<'_>,
        number: u64,
        members: Vec<String>,
        rank: u32,
        settings: MessagesSettings,
        timeout: Option<f64>,
    ) -> PyResult<Messages> {
        let settings = settings
            .of_group(py, number, addresses_of(py, &members)?, rank)?
            .connect_timeout(duration(timeout));
        let (context, team) = (self.context(py)?, self.team(py)?);
        // Members that are lost do not come.
        let failure = || team.failure().map(Error::TeamFailed);
        Ok(Messages::new(interruptible(py, failure, move || context.create_group(settings))?))
    }

    /// Registers the memory of an object with the network; `writable`: also to receive into.
    fn register(
        &self,
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        writable: bool,
    ) -> PyResult<Region> {
        let (context, region) = (self.context(py)?, region_of(object, writable)?);
        let register = move || context.register(&region).map(|()| region);
        interruptible(py, || self.end(), register).map(Region::new)
    }

    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, |team| team.barrier(duration(timeout)))
    }

    /// Replaces the bytes of an array by those of the root, where it may be read-only.
    fn broadcast(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        root: u32,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let is_root = lock(&self.team).as_ref().is_some_and(|team| team.rank() == root);
        let mut memory = if is_root { Memory::to_read(array)? } else { Memory::of(array)? };
        // SAFETY: `Group` documents that the array is not used during the operation. A broadcast writes nothing to the
        // memory of its root.
        let bytes = unsafe { memory.bytes() };
        let outcome = self.run(py, |team| team.broadcast(root, bytes, duration(timeout)));
        memory.release(py);
        outcome
    }

    /// Replaces a member's part by that of the root's array, which has the parts of all members and may be read-only.
    fn scatter(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        root: u32,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let is_root = lock(&self.team).as_ref().is_some_and(|team| team.rank() == root);
        let mut memory = if is_root { Memory::to_read(array)? } else { Memory::of(array)? };
        // SAFETY: as for broadcast; a scatter writes nothing to the memory of its root.
        let bytes = unsafe { memory.bytes() };
        let outcome = self.run(py, |team| team.scatter(root, bytes, duration(timeout)));
        memory.release(py);
        outcome
    }

    /// Collects the parts of all members in the root's array; those of others may be read-only.
    fn gather(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        root: u32,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let is_root = lock(&self.team).as_ref().is_some_and(|team| team.rank() == root);
        let mut memory = if is_root { Memory::of(array)? } else { Memory::to_read(array)? };
        // SAFETY: as for broadcast; a gather writes to the memory of its root only.
        let bytes = unsafe { memory.bytes() };
        let outcome = self.run(py, |team| team.gather(root, bytes, duration(timeout)));
        memory.release(py);
        outcome
    }

    /// Replaces the elements of an array, of the type with the first of these codes, by their combination over all members; with a root only there.
    /// `is_mean`: by their sum, whatever the operator; other members have to say so, too. `scatters`: only this member's part; the rest
    /// is undefined.
    fn reduce(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        codes: (usize, usize),
        is_mean: bool,
        root: Option<u32>,
        scatters: bool,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (element, op) = type_and_operator(py, codes)?;
        let mut memory = Memory::of(array)?;
        if memory.item_size() != element.bytes() && memory.item_size() != 1 {
            let text = format!(
                "the array's elements have {} bytes, not {}",
                memory.item_size(),
                element.bytes()
            );
            return Err(invalid(py, &text));
        }
        // SAFETY: as for broadcast.
        let bytes = unsafe { memory.bytes() };
        let timeout = duration(timeout);
        let mean = if is_mean { Some(mean_of(py, element)?) } else { None };
        let outcome = self.run(py, |team| match (root, &mean) {
            (_, None) if scatters => team.reduce_scatter_bytes(bytes, element, op, timeout),
            (_, Some(mean)) if scatters => team.reduce_scatter_by(bytes, mean, timeout),
            (None, None) => team.all_reduce_bytes(bytes, element, op, timeout),
            (Some(root), None) => team.reduce_bytes(root, bytes, element, op, timeout),
            (None, Some(mean)) => team.all_reduce_by(bytes, mean, timeout),
            (Some(root), Some(mean)) => team.reduce_by(root, bytes, mean, timeout),
        });
        memory.release(py);
        outcome
    }

    /// As broadcast (with a root) or all-reduce (with codes), of an array in memory of a GPU. `library`: the driver's, if not
    /// the machine's.
    #[pyo3(signature = (place, root, codes, timeout, library=None))]
    fn on_device(
        &self,
        py: Python<'_>,
        place: Place,
        root: Option<u32>,
        codes: Option<(usize, usize)>,
        timeout: Option<f64>,
        library: Option<PathBuf>,
    ) -> PyResult<()> {
        let operation = match (root, codes) {
            (Some(root), None) => Operation::Broadcast { root },
            (None, Some(codes)) => {
                let (element, op) = type_and_operator(py, codes)?;
                Operation::AllReduce { element, op }
            }
            _ => return Err(invalid(py, "a root or codes are needed")),
        };
        let (team, timeout) = (self.team(py)?, duration(timeout));
        // SAFETY: `Group` holds on to the array during the operation, and documents its order afterwards.
        let outcome =
            py.detach(|| unsafe { self.devices.run(&team, library, place, operation, timeout) });
        self.outcome(outcome, |error| raise_of_device(py, error))
    }

    /// Collects the parts of all members.
    fn all_gather(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let mut memory = Memory::of(array)?;
        // SAFETY: as for broadcast.
        let bytes = unsafe { memory.bytes() };
        let outcome = self.run(py, |team| team.all_gather(bytes, duration(timeout)));
        memory.release(py);
        outcome
    }

    /// Operations that are complete, and bytes sent to and received from others, also as messages.
    fn counters(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let (team, context) = (self.team(py)?, self.context(py)?);
        let arrays = team.counters();
        let messages = py.detach(|| context.counters()).map_err(|error| raise(py, &error))?;
        let sent = arrays.bytes_sent + messages.bytes_sent;
        Ok((arrays.operations, sent, arrays.bytes_received + messages.bytes_received))
    }

    /// Makes the team fail at all members. Calls of other threads end, also joining and `close`.
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.process.check(py)?;
        let abort = lock(&self.abort).clone().ok_or_else(|| invalid(py, CLOSED))?;
        py.detach(|| abort(reason));
        Ok(())
    }

    /// Ends the team when all members have called this, and the endpoint. Nothing happens in a fork, or the second time.
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let (team, context) = (lock(&self.team).take(), lock(&self.context).take());
        if !self.process.is_this() {
            std::mem::forget((team, context));
            return Ok(());
        }
        let close = || {
            self.devices.close();
            let closed = team.map_or(Ok(()), |team| match Arc::try_unwrap(team) {
                Ok(team) => team.close(duration(timeout)),
                // A call of another thread has it, and ends it.
                Err(team) => {
                    team.abort("its group was closed during an operation");
                    Err(Error::TeamCall("an operation of the group is in progress".into()))
                }
            });
            // A call that still joins by it, after an interruption, closes it.
            let context = context.and_then(Arc::into_inner);
            let ended = context.map_or(Ok(()), |context| context.close(Duration::from_secs(5)));
            lock(&self.abort).take();
            closed.and(ended)
        };
        let outcome = py.detach(close);
        self.outcome(outcome, |error| raise(py, error))
    }

    /// Ends everything without waiting for others, to whom that is a failure. Calls of other threads end.
    fn drop(&self, py: Python<'_>) {
        let (team, context) = (lock(&self.team).take(), lock(&self.context).take());
        if !self.process.is_this() {
            return std::mem::forget((team, context));
        }
        let abort = lock(&self.abort).take();
        py.detach(|| {
            if let Some(abort) = abort {
                abort("it dropped the group");
            }
            drop((team, context));
            self.devices.close();
        });
    }
}
