//! The data plane in userspace: a learning bridge on packet sockets that copies groups' packets.

use std::{
    io,
    net::IpAddr,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use mcrdma::{GroupKey, Port, Switch};
use packet_socket::{Interface, InterfaceError};
use roce::Mac;

use bridge::{Bridge, Due, Stations, lock};
use worker::Worker;

pub use bridge::Forwarded;

mod bridge;
mod worker;

/// Receive buffer of each port, if this process may have this much: the windows of several senders.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// A switch in userspace. Its ports should have no addresses and be in no bridge, so that the kernel does
/// not forward their frames too.
pub struct UserspacePlane(Bridge);

/// Changes the groups of a running switch, from other threads.
#[derive(Clone)]
pub struct UserspaceTables {
    switch: Arc<Mutex<Switch>>,
    stations: Arc<Mutex<Stations>>,
    due: Arc<Due>,
}

impl UserspaceTables {
    /// No longer waits for a member's answers. Whether it was one, and not the last. If the group advances by that, the
    /// sender is notified at once.
    pub fn remove_member(&self, key: GroupKey, member: IpAddr) -> bool {
        let (was_member, told) = self.lock().remove_member(key, member);
        if let Some((port, frame)) = told {
            self.due.add(port, frame);
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
        let ports = ports.into_iter().map(open).collect::<Result<_, InterfaceError>>()?;
        let bridge = Bridge::new(ports).map_err(|error| {
            let (name, step) = ("of the switch".to_owned(), "make its event descriptor");
            InterfaceError { name, step, source: error.into() }
        })?;
        Ok(Self(bridge))
    }

    /// A handle of the tables.
    #[must_use]
    pub fn tables(&self) -> UserspaceTables {
        UserspaceTables {
            switch: Arc::clone(&self.0.switch),
            stations: Arc::clone(&self.0.stations),
            due: Arc::clone(&self.0.due),
        }
    }

    /// Frames forwarded so far.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        self.0.forwarded()
    }

    /// Forwards until `stop` is set. Blocks. Ports are served in parallel, by as many threads as there are ports or
    /// processors; frames of one port are sent on in their order.
    ///
    /// Errors: `poll` fails, or a thread cannot be started. A port that is down is skipped until it is up again.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let count = self.0.ports.len().min(processors).max(1);
        let (bridge, ended) = (&self.0, AtomicBool::new(false));
        let is_stopped = || stop.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed);
        let serve = |first| {
            let result = Worker::new(bridge, first, count).run(&is_stopped);
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
        self.0.ports.iter().map(Interface::index)
    }
}
