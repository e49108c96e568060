//! The data plane in userspace: a learning bridge on packet sockets that copies groups' packets.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    num::NonZeroUsize,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use mcrdma::{GroupKey, Port, Switch};
use packet_socket::{Interface, InterfaceError};
use roce::Mac;
use rustix::event::{EventfdFlags, eventfd};

use worker::Worker;

mod worker;

/// Ageing time of learnt addresses (IEEE 802.1Q).
const AGEING: Duration = Duration::from_secs(300);
/// Learnt addresses; frames to others are flooded.
const STATIONS_MAX: usize = 65_536;
/// Receive buffer of each port, if this process may have so much: the windows of several senders.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Counters of the bridge, besides those of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarded {
    /// Frames that were sent by a port.
    pub frames: u64,
    /// Frames that a port did not take.
    pub refused: u64,
}

/// A switch in userspace. Its ports should have no addresses and be in no bridge, so that the kernel does
/// not forward their frames too.
pub struct UserspacePlane {
    ports: Vec<Interface>,
    switch: Arc<Mutex<Switch>>,
    stations: Arc<Mutex<Stations>>,
    due: Arc<Due>,
    frames: AtomicU64,
    refused: AtomicU64,
    started: Instant,
}

/// Frames to be handled as if ports had received them.
struct Due {
    frames: Mutex<Vec<(Port, Vec<u8>)>>,
    /// Readable exactly when there are some: both change under the lock.
    wake: OwnedFd,
}

/// Learnt addresses: port, and time of the last frame.
#[derive(Default)]
struct Stations(HashMap<Mac, (Port, Instant)>);

/// Changes the groups of a running switch, from other threads.
#[derive(Clone)]
pub struct UserspaceTables {
    switch: Arc<Mutex<Switch>>,
    stations: Arc<Mutex<Stations>>,
    due: Arc<Due>,
}

impl UserspaceTables {
    /// No longer waits for a member's answers. Whether it was one, and not the last. If the group advances by that, the
    /// sender is told at once.
    pub fn remove_member(&self, key: GroupKey, member: IpAddr) -> bool {
        let (was_member, told) = self.lock().remove_member(key, member);
        if let Some(told) = told {
            let mut frames = lock(&self.due.frames);
            frames.push(told);
            // It fails only if it is readable already.
            let _ = rustix::io::write(&self.due.wake, &1_u64.to_ne_bytes());
        }
        was_member
    }

    /// Locks the switch, which forwards nothing meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Switch> {
        lock(&self.switch)
    }

    /// The port at which an address was learnt.
    #[must_use]
    pub fn station(&self, mac: Mac) -> Option<Port> {
        lock(&self.stations).find(mac, Instant::now())
    }
}

impl Stations {
    fn find(&self, mac: Mac, now: Instant) -> Option<Port> {
        let learnt = self.0.get(&mac);
        let (port, _) = learnt.filter(|(_, at)| now.duration_since(*at) < AGEING)?;
        Some(*port)
    }

    fn learn(&mut self, mac: Mac, port: Port, now: Instant) {
        if self.0.len() >= STATIONS_MAX {
            self.0.retain(|_, (_, at)| now.duration_since(*at) < AGEING);
        }
        let has_capacity = self.0.len() < STATIONS_MAX || self.0.contains_key(&mac);
        if !is_multicast(mac) && has_capacity {
            self.0.insert(mac, (port, now));
        }
    }
}

const fn is_multicast(mac: Mac) -> bool {
    mac.0[0] & 1 == 1
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UserspacePlane {
    /// Opens the ports. Nothing is forwarded yet. Needs CAP_NET_RAW.
    pub fn open<'a>(ports: impl IntoIterator<Item = &'a str>) -> Result<Self, InterfaceError> {
        let open = |name| {
            let port = Interface::open(name, true)?;
            let failed = |source| InterfaceError {
                name: name.to_owned(),
                step: "set its receive buffer",
                source,
            };
            port.reserve(RECEIVE_BUFFER_BYTES).map_err(failed)?;
            Ok(port)
        };
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|error| {
            let (name, step) = ("of the switch".to_owned(), "make its event descriptor");
            InterfaceError { name, step, source: error.into() }
        })?;
        Ok(Self {
            ports: ports.into_iter().map(open).collect::<Result<_, InterfaceError>>()?,
            switch: Arc::default(),
            stations: Arc::default(),
            due: Arc::new(Due { frames: Mutex::default(), wake }),
            frames: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            started: Instant::now(),
        })
    }

    /// A handle of the tables.
    #[must_use]
    pub fn tables(&self) -> UserspaceTables {
        let (switch, stations) = (Arc::clone(&self.switch), Arc::clone(&self.stations));
        UserspaceTables { switch, stations, due: Arc::clone(&self.due) }
    }

    /// Frames forwarded so far.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Forwarded { frames: read(&self.frames), refused: read(&self.refused) }
    }

    /// Forwards until `stop` is set. Blocks. Ports are served in parallel, by as many threads as there are ports or
    /// processors; frames of one port are sent on in their order.
    ///
    /// Errors: `poll` fails, or a thread cannot be started. A port that is down is skipped until it is up again.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let count = self.ports.len().min(processors).max(1);
        let (plane, ended) = (&*self, AtomicBool::new(false));
        let is_stopped = || stop.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed);
        let serve = |first| {
            let result = Worker::new(plane, first, count).run(&is_stopped);
            // All end with the first that fails.
            ended.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let serve = &serve;
        thread::scope(|scope| {
            let start = |first| {
                let name = format!("switch-{first}");
                let started =
                    thread::Builder::new().name(name).spawn_scoped(scope, move || serve(first));
                started.inspect_err(|_| ended.store(true, Ordering::Relaxed))
            };
            let others = (1..count).map(start).collect::<Vec<_>>();
            let own = serve(0);
            others.into_iter().fold(own, |result, thread| {
                let other = thread.and_then(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                });
                result.and(other)
            })
        })
    }

    /// Interface indices of its ports, in the order in which they were opened.
    pub fn ports(&self) -> impl Iterator<Item = Port> {
        self.ports.iter().map(Interface::index)
    }
}
