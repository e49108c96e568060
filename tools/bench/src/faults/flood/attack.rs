//! The hostile host: strangers at every port that it is told of.

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

/// Threads at each port, and connections that each of them holds: twice what a listener lets in.
const THREADS: u64 = 2;
const HELD_MAX: usize = 128;
/// Connections that are made before those that are held are looked after again.
const BATCH: usize = 16;
const TICK: Duration = Duration::from_millis(5);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two bytes of those who are slow.
const SLOW: Duration = Duration::from_secs(1);
/// No attack is longer, whatever becomes of the one who wanted it.
const TIME_MAX: Duration = Duration::from_secs(300);
/// The lowest priority: what the victims pay is to be measured, not what the attack costs.
const NICENESS: i32 = 19;

/// As many as the others have in all with four receivers: five of contexts, the root's and three of
/// receivers that listen.
pub const BYSTANDER_PORTS: std::ops::Range<u16> = 7000..7009;

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// They say nothing, at a host that takes no part: what the attack itself takes from the others
    Elsewhere,
    /// They say nothing
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

impl Kind {
    /// As arguments have it.
    pub fn argument(self) -> String {
        self.name().replace(' ', "-")
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::Silent => "silent",
            Self::SlowGreeting => "slow greeting",
            Self::SlowHello => "slow hello",
            Self::HalfHello => "half hello",
            Self::ConnectAndClose => "connect and close",
            Self::Garbage => "garbage",
            Self::WrongSecret => "wrong secret",
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct AttackArgs {
    #[arg(long)]
    kind: Kind,
}

/// Attacks each `IP:PORT` that comes on standard input, until that ends; then says on standard
/// output how many connections there were.
pub fn attack(args: &AttackArgs) -> Outcome<()> {
    nice(NICENESS)?;
    let siege = Arc::new(Siege::new(args.kind));
    let mut targets = BTreeSet::new();
    for line in io::stdin().lock().lines() {
        let target: SocketAddr = line?.trim().parse()?;
        if targets.insert(target) {
            for number in 0..THREADS {
                let siege = Arc::clone(&siege);
                thread::Builder::new().spawn(move || siege.lay_to(target, number))?;
            }
        }
    }
    // The threads end with this process.
    siege.is_over.store(true, Ordering::Relaxed);
    println!("{}", siege.connections.load(Ordering::Relaxed));
    Ok(())
}

/// A host that takes no part, attacked in the place of the others: lets everybody in and the first
/// of too many go, with as little work as that takes. Until standard input ends.
pub fn stand_by() -> Outcome<()> {
    for port in BYSTANDER_PORTS {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        thread::Builder::new().spawn(move || {
            let mut inside = VecDeque::new();
            for stream in listener.incoming().flatten() {
                inside.push_back(stream);
                if inside.len() > HELD_MAX {
                    inside.pop_front();
                }
            }
        })?;
    }
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// What all threads of an attack share.
struct Siege {
    kind: Kind,
    /// What each connection says.
    speech: Vec<u8>,
    until: Instant,
    is_over: AtomicBool,
    connections: AtomicU64,
}

/// One hostile connection.
struct Caller {
    stream: TcpStream,
    said: usize,
    next: Instant,
}

impl Siege {
    fn new(kind: Kind) -> Self {
        let mut greeting = b"RDMC".to_vec();
        greeting.extend(PROTOCOL_VERSION.to_le_bytes());
        let speech = match kind {
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
            speech,
            until: Instant::now() + TIME_MAX,
            is_over: AtomicBool::new(false),
            connections: AtomicU64::new(0),
        }
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && Instant::now() < self.until
    }

    fn lay_to(&self, target: SocketAddr, number: u64) {
        match self.kind {
            Kind::ConnectAndClose => self.come_and_go(target),
            Kind::WrongSecret => self.pretend(target, number),
            _ => self.hold(target),
        }
    }

    /// Holds as many connections as it may, and makes new ones for those that are hung up on.
    fn hold(&self, target: SocketAddr) {
        let mut callers: Vec<Caller> = Vec::new();
        while self.goes_on() {
            callers.retain_mut(|caller| self.go_on(caller));
            let room = HELD_MAX - callers.len();
            callers.extend((0..room.min(BATCH)).map_while(|_| self.call(target)));
            thread::sleep(TICK);
        }
    }

    fn call(&self, target: SocketAddr) -> Option<Caller> {
        let stream = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).ok()?;
        stream.set_nonblocking(true).ok()?;
        self.connections.fetch_add(1, Ordering::Relaxed);
        Some(Caller { stream, said: 0, next: Instant::now() })
    }

    /// Says what is next. Whether the connection is still there.
    fn go_on(&self, caller: &mut Caller) -> bool {
        let is_slow = matches!(self.kind, Kind::SlowGreeting | Kind::SlowHello);
        let now = Instant::now();
        while caller.said < self.speech.len() && now >= caller.next {
            let left = &self.speech[caller.said..];
            let part = if is_slow { &left[..1] } else { left };
            match (&caller.stream).write(part) {
                Ok(count) => caller.said += count,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            if is_slow {
                caller.next = now + SLOW;
            }
        }
        loop {
            match (&caller.stream).read(&mut [0; 256]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    fn come_and_go(&self, target: SocketAddr) {
        while self.goes_on() {
            let Some(caller) = self.call(target) else { continue };
            // By a reset, so that this host does not run out of ports.
            let _ = set_socket_linger(&caller.stream, Some(Duration::ZERO));
        }
    }

    fn pretend(&self, target: SocketAddr, number: u64) {
        let secret = Secret::from_bytes([number as u8; 32]);
        while self.goes_on() {
            // Both ends find out; that is the error.
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
