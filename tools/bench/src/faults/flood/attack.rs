//! The hostile host: unauthenticated connections to every port that it is given.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, BufRead, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use rdmc::{
    Secret,
    bootstrap::{Channel, Deadline, PROTOCOL_VERSION},
};
use rustix::{net::sockopt::set_socket_linger, process::nice};

use crate::{outcome::Outcome, random::Random};

/// Threads for each port, and connections that each of them holds: together twice the limit of a listener.
const THREADS: u64 = 2;
const HELD_MAX: usize = 128;
/// Connections that are made before those that are held are polled again.
const BATCH: usize = 16;
const TICK: Duration = Duration::from_millis(5);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two bytes of slow connections.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);
/// An attack ends then even if the process that started it is killed.
const TIME_MAX: Duration = Duration::from_secs(300);
/// The lowest priority: the cost for the victims is measured, not that of the attack.
const NICENESS: i32 = 19;

/// As many as the other hosts have with four receivers: five of contexts, the root's, and three of
/// receivers that listen.
pub const BYSTANDER_PORTS: std::ops::Range<u16> = 7000..7009;

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// They send nothing, to a host that takes no part: what the attack costs by running on this machine
    Elsewhere,
    /// They send nothing
    Silent,
    /// A byte of the greeting in each second
    SlowGreeting,
    /// The greeting, then a byte of a TLS hello in each second
    SlowHello,
    /// The greeting, then half of a TLS hello
    HalfHello,
    /// They are closed at once
    ConnectAndClose,
    /// Random bytes
    Garbage,
    /// A whole handshake, with another secret
    WrongSecret,
}

#[derive(Debug, clap::Args)]
pub struct AttackArgs {
    #[arg(long)]
    kind: Kind,
}

/// Attacks each `IP:PORT` that is read from standard input, until that ends; then prints how many
/// connections there were.
pub fn attack(args: &AttackArgs) -> Outcome<()> {
    nice(NICENESS)?;
    let attack = Arc::new(Attack::new(args.kind));
    let mut targets = BTreeSet::new();
    for line in io::stdin().lock().lines() {
        let target: SocketAddr = line?.trim().parse()?;
        if targets.insert(target) {
            for number in 0..THREADS {
                let attack = Arc::clone(&attack);
                thread::Builder::new().spawn(move || attack.run(target, number))?;
            }
        }
    }
    // The threads end with this process.
    attack.is_over.store(true, Ordering::Relaxed);
    println!("{}", attack.connections.load(Ordering::Relaxed));
    Ok(())
}

/// A host that takes no part: accepts connections, and closes the oldest of more than [`HELD_MAX`],
/// until standard input ends.
pub fn bystand() -> Outcome<()> {
    for port in BYSTANDER_PORTS {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        thread::Builder::new().spawn(move || {
            let mut open = VecDeque::new();
            for stream in listener.incoming().flatten() {
                open.push_back(stream);
                if open.len() > HELD_MAX {
                    open.pop_front();
                }
            }
        })?;
    }
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// What all threads of an attack share.
struct Attack {
    kind: Kind,
    /// What each connection sends.
    payload: Vec<u8>,
    deadline: Instant,
    is_over: AtomicBool,
    connections: AtomicU64,
}

struct Connection {
    stream: TcpStream,
    sent: usize,
    next_send: Instant,
}

impl Attack {
    fn new(kind: Kind) -> Self {
        let mut greeting = b"RDMC".to_vec();
        greeting.extend(PROTOCOL_VERSION.to_le_bytes());
        let payload = match kind {
            Kind::Elsewhere | Kind::Silent | Kind::ConnectAndClose | Kind::WrongSecret => {
                Vec::new()
            }
            Kind::SlowGreeting => greeting,
            Kind::SlowHello => [greeting, hello()].concat(),
            Kind::HalfHello => [&greeting[..], &hello()[..256]].concat(),
            Kind::Garbage => {
                let mut random = Random::new(5);
                (0..2048).flat_map(|_| random.bits().to_le_bytes()).collect()
            }
        };
        Self {
            kind,
            payload,
            deadline: Instant::now() + TIME_MAX,
            is_over: AtomicBool::new(false),
            connections: AtomicU64::new(0),
        }
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && Instant::now() < self.deadline
    }

    fn run(&self, target: SocketAddr, number: u64) {
        match self.kind {
            Kind::ConnectAndClose => self.connect_and_close(target),
            Kind::WrongSecret => self.use_wrong_secret(target, number),
            _ => self.hold(target),
        }
    }

    /// Holds [`HELD_MAX`] connections, and replaces those that the peer closes.
    fn hold(&self, target: SocketAddr) {
        let mut held: Vec<Connection> = Vec::new();
        while self.is_running() {
            held.retain_mut(|connection| self.poll(connection));
            let room = HELD_MAX - held.len();
            held.extend((0..room.min(BATCH)).map_while(|_| self.connect(target)));
            thread::sleep(TICK);
        }
    }

    fn connect(&self, target: SocketAddr) -> Option<Connection> {
        let stream = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).ok()?;
        stream.set_nonblocking(true).ok()?;
        self.connections.fetch_add(1, Ordering::Relaxed);
        Some(Connection { stream, sent: 0, next_send: Instant::now() })
    }

    /// Sends what is next, and discards what was received. Answers whether the connection is still open.
    fn poll(&self, connection: &mut Connection) -> bool {
        let is_slow = matches!(self.kind, Kind::SlowGreeting | Kind::SlowHello);
        let now = Instant::now();
        while connection.sent < self.payload.len() && now >= connection.next_send {
            let left = &self.payload[connection.sent..];
            let part = if is_slow { &left[..1] } else { left };
            match (&connection.stream).write(part) {
                Ok(count) => connection.sent += count,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            if is_slow {
                connection.next_send = now + SLOW_INTERVAL;
            }
        }
        loop {
            match (&connection.stream).read(&mut [0; 256]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    fn connect_and_close(&self, target: SocketAddr) {
        while self.is_running() {
            let Some(connection) = self.connect(target) else { continue };
            // By a reset, so that this host does not run out of ports.
            let _ = set_socket_linger(&connection.stream, Some(Duration::ZERO));
        }
    }

    fn use_wrong_secret(&self, target: SocketAddr, number: u64) {
        let secret = Secret::from_bytes([number as u8; 32]);
        while self.is_running() {
            // The error is expected: authentication fails at both ends.
            let _ = Channel::connect(target, &secret, Deadline::after(CONNECT_TIMEOUT));
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A TLS record of 512 bytes that begins as a hello does (RFC 8446, sections 4 and 5).
fn hello() -> Vec<u8> {
    let mut record = vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    record.resize(5 + 512, 7);
    record
}
