//! The data plane in userspace: a learning bridge on packet sockets that copies groups' packets.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mcrdma::{GroupKey, Port, Switch, Verdict};
use packet_socket::{Batch, Interface, InterfaceError, Offload};
use roce::{ETHERNET_BYTES, Mac};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Ageing time of learnt addresses (IEEE 802.1Q).
const AGEING: Duration = Duration::from_secs(300);
/// Learnt addresses; frames to others are flooded.
const STATIONS_MAX: usize = 65_536;
/// Receive buffer of each port, if this process may have so much: the windows of several senders.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// A stop is noticed within this time.
const PATIENCE: Duration = Duration::from_millis(100);

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
    forwarded: Forwarded,
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
            forwarded: Forwarded::default(),
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
    pub const fn forwarded(&self) -> Forwarded {
        self.forwarded
    }

    /// Forwards until `stop` is set. Blocks.
    ///
    /// Errors: `poll` fails. A port that is down is skipped until it is up again.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut batch = Batch::new();
        let mut frame = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let mut has_moved = false;
            for port in 0..self.ports.len() {
                // A port that is down reports an error once, and then has nothing.
                let received = self.ports[port].receive(&mut batch, Duration::ZERO);
                has_moved |= received.is_ok_and(|count| count > 0);
                self.forward(port, &batch, &mut frame);
            }
            if !has_moved {
                self.wait()?;
            }
            self.handle_due(&mut frame);
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut ports: Vec<PollFd<'_>> =
            self.ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
        ports.push(PollFd::new(&self.due.wake, PollFlags::IN));
        let patience = PATIENCE.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut ports, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn handle_due(&mut self, frame: &mut Vec<u8>) {
        let due = {
            let mut frames = lock(&self.due.frames);
            if frames.is_empty() {
                return;
            }
            let _ = rustix::io::read(&self.due.wake, &mut [0; 8]);
            std::mem::take(&mut *frames)
        };
        let switch = Arc::clone(&self.switch);
        for (number, due) in due {
            let port = self.ports.iter().position(|port| port.index() == number);
            if let Some(port) = port {
                self.handle(&mut lock(&switch), port, (Offload::NONE, &due), frame);
            }
        }
    }

    fn forward(&mut self, port: usize, batch: &Batch, frame: &mut Vec<u8>) {
        let switch = Arc::clone(&self.switch);
        let mut switch = lock(&switch);
        for received in batch.frames().filter(|(_, frame)| frame.len() >= ETHERNET_BYTES) {
            self.handle(&mut switch, port, received, frame);
        }
    }

    fn handle(
        &mut self,
        switch: &mut Switch,
        port: usize,
        (offload, received): (Offload, &[u8]),
        frame: &mut Vec<u8>,
    ) {
        frame.clear();
        frame.extend_from_slice(received);
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let ports = &self.ports;
        let at = self.ports[port].index();
        let verdict = switch.handle(now_ns, at, frame, |to: Port, copy| {
            let port = ports.iter().find(|port| port.index() == to);
            port.is_some_and(|port| port.send(Offload::NONE, copy).is_ok())
        });
        match verdict {
            Verdict::Drop => {}
            Verdict::Reflect => self.send(port, Offload::NONE, frame),
            Verdict::Pass => self.bridge(port, offload, frame),
        }
    }

    fn send(&mut self, port: usize, offload: Offload, frame: &[u8]) {
        match self.ports[port].send(offload, frame) {
            Ok(()) => self.forwarded.frames += 1,
            Err(_) => self.forwarded.refused += 1,
        }
    }

    /// Forwards a frame to the port where its destination was learnt, or floods it.
    fn bridge(&mut self, from: usize, offload: Offload, frame: &[u8]) {
        let address = |at: usize| {
            let mut mac = Mac::default();
            mac.0.copy_from_slice(&frame[at..at + 6]);
            mac
        };
        let (target, source) = (address(0), address(6));
        // Reserved addresses, such as those of spanning tree, are not forwarded (IEEE 802.1Q, table 8-1).
        if target.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && target.0[5] < 16 {
            return;
        }
        let now = Instant::now();
        let known = {
            let mut stations = lock(&self.stations);
            stations.learn(source, self.ports[from].index(), now);
            stations.find(target, now).filter(|_| !is_multicast(target))
        };
        let place = known.and_then(|port| self.ports.iter().position(|p| p.index() == port));
        match place {
            Some(to) if to == from => {}
            Some(to) => self.send(to, offload, frame),
            None => (0..self.ports.len())
                .filter(|&port| port != from)
                .for_each(|port| self.send(port, offload, frame)),
        }
    }

    /// Interface indices of its ports, in the order in which they were opened.
    pub fn ports(&self) -> impl Iterator<Item = Port> {
        self.ports.iter().map(Interface::index)
    }
}
