//! The data plane in userspace, for places without eBPF: a learning bridge with packet sockets, which
//! copies groups' packets on the way.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mcrdma::{Port, Switch, Verdict};
use packet_socket::{Batch, Interface, InterfaceError, Offload};
use roce::{ETHERNET_BYTES, Mac};
use rustix::event::{PollFd, PollFlags, poll};

/// Nobody who has been silent for longer is known to be at a port.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// Stations that are known; beyond it frames for others go to all ports.
const STATIONS_MAX: usize = 65_536;
/// Room for frames that were not looked at yet at each port, if this process may have so much: what
/// several senders have on their way.
const ROOM_BYTES: usize = 8 << 20;
/// A stop is noticed within this time.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a switch has done besides what its tables count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarded {
    /// Frames that went on to one port or to all.
    pub frames: u64,
    /// Frames that a port would not take.
    pub refused: u64,
}

/// A switch in userspace. Its ports should have no addresses and be in no bridge: what comes in at
/// them is forwarded here.
pub struct UserspacePlane {
    ports: Vec<Interface>,
    switch: Arc<Mutex<Switch>>,
    stations: Arc<Mutex<Stations>>,
    forwarded: Forwarded,
    started: Instant,
}

/// Who was heard at which port, and when.
#[derive(Default)]
struct Stations(HashMap<Mac, (Port, Instant)>);

/// Puts groups into a switch while it runs, from other threads.
#[derive(Clone)]
pub struct UserspaceTables {
    switch: Arc<Mutex<Switch>>,
    stations: Arc<Mutex<Stations>>,
}

impl UserspaceTables {
    /// The switch, which stands still as long as this is held.
    pub fn lock(&self) -> MutexGuard<'_, Switch> {
        lock(&self.switch)
    }

    /// The port at which a station was heard within the last minutes.
    #[must_use]
    pub fn station(&self, mac: Mac) -> Option<Port> {
        lock(&self.stations).find(mac, Instant::now())
    }
}

impl Stations {
    fn find(&self, mac: Mac, now: Instant) -> Option<Port> {
        let heard = self.0.get(&mac);
        let (port, _) = heard.filter(|(_, at)| now.duration_since(*at) < FORGOTTEN_AFTER)?;
        Some(*port)
    }

    fn hear(&mut self, mac: Mac, port: Port, now: Instant) {
        if self.0.len() >= STATIONS_MAX {
            self.0.retain(|_, (_, heard)| now.duration_since(*heard) < FORGOTTEN_AFTER);
        }
        let has_room = self.0.len() < STATIONS_MAX || self.0.contains_key(&mac);
        if !is_for_many(mac) && has_room {
            self.0.insert(mac, (port, now));
        }
    }
}

const fn is_for_many(mac: Mac) -> bool {
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
                step: "make room for frames",
                source,
            };
            port.reserve(ROOM_BYTES).map_err(failed)?;
            Ok(port)
        };
        Ok(Self {
            ports: ports.into_iter().map(open).collect::<Result<_, InterfaceError>>()?,
            switch: Arc::default(),
            stations: Arc::default(),
            forwarded: Forwarded::default(),
            started: Instant::now(),
        })
    }

    /// What fills the tables.
    #[must_use]
    pub fn tables(&self) -> UserspaceTables {
        UserspaceTables { switch: Arc::clone(&self.switch), stations: Arc::clone(&self.stations) }
    }

    /// What it has forwarded.
    #[must_use]
    pub const fn forwarded(&self) -> Forwarded {
        self.forwarded
    }

    /// Forwards until it is told to stop. Blocks.
    ///
    /// Errors: it cannot wait for its ports. A port that is down or gone is left out of account; it
    /// is used again when it is back.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut batch = Batch::new();
        let mut frame = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let mut has_moved = false;
            for port in 0..self.ports.len() {
                // A port that is down says so once, and then has nothing.
                let received = self.ports[port].receive(&mut batch, Duration::ZERO);
                has_moved |= received.is_ok_and(|count| count > 0);
                self.forward(port, &batch, &mut frame);
            }
            if !has_moved {
                self.wait()?;
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut ports: Vec<PollFd<'_>> =
            self.ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
        let patience = PATIENCE.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut ports, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn forward(&mut self, port: usize, batch: &Batch, frame: &mut Vec<u8>) {
        let switch = Arc::clone(&self.switch);
        let mut switch = lock(&switch);
        for (offload, received) in batch.frames().filter(|(_, frame)| frame.len() >= ETHERNET_BYTES)
        {
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
                Verdict::Turn => self.send(port, Offload::NONE, frame),
                Verdict::Pass => self.bridge(port, offload, frame),
            }
        }
    }

    fn send(&mut self, port: usize, offload: Offload, frame: &[u8]) {
        match self.ports[port].send(offload, frame) {
            Ok(()) => self.forwarded.frames += 1,
            Err(_) => self.forwarded.refused += 1,
        }
    }

    /// Sends a frame on to where its station was last heard, or to all other ports.
    fn bridge(&mut self, from: usize, offload: Offload, frame: &[u8]) {
        let address = |at: usize| {
            let mut mac = Mac::default();
            mac.0.copy_from_slice(&frame[at..at + 6]);
            mac
        };
        let (target, source) = (address(0), address(6));
        // What bridges say to each other ends at each (IEEE 802.1Q, table 8-1).
        if target.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && target.0[5] < 16 {
            return;
        }
        let now = Instant::now();
        let known = {
            let mut stations = lock(&self.stations);
            stations.hear(source, self.ports[from].index(), now);
            stations.find(target, now).filter(|_| !is_for_many(target))
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

    /// Its ports' numbers, in the order in which they were opened.
    pub fn ports(&self) -> impl Iterator<Item = Port> {
        self.ports.iter().map(Interface::index)
    }
}
