//! TCP connections that send all they can from one host to another, as other programs do.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::{self, ChildStdin, ChildStdout, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use lab::Host;
use rustix::net::sockopt::set_tcp_congestion;

use crate::{
    clock::{ClockId, now_ns},
    outcome::Outcome,
    running::Running,
};

const PIECE_BYTES: usize = 64 << 10;

/// One end of a flow as a process, which ends with its standard input.
#[derive(Debug, clap::Args)]
pub struct FlowArgs {
    /// Receive at this address; answer each line with how many bytes came, and when
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to", required_unless_present = "to")]
    listen: Option<IpAddr>,
    /// Send to this address
    #[arg(long, value_name = "ADDRESS")]
    to: Option<SocketAddr>,
    #[command(flatten)]
    connections: Connections,
}

/// The connections of a flow.
#[derive(Clone, Debug, clap::Args)]
pub struct Connections {
    /// How many
    #[arg(long, default_value_t = 1)]
    pub count: u8,
    /// Their congestion control. Unless given: the host's
    #[arg(long)]
    pub congestion: Option<String>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { count: 1, congestion: None }
    }
}

pub fn run(args: &FlowArgs) -> Outcome<()> {
    match (args.listen, args.to) {
        (Some(address), _) => receive(address, args.connections.count),
        (_, Some(to)) => send(to, &args.connections),
        _ => Err("an end of a flow listens, or has a target".into()),
    }
}

fn receive(address: IpAddr, count: u8) -> Outcome<()> {
    let listener = TcpListener::bind((address, 0))?;
    println!("{}", listener.local_addr()?);
    let received = Arc::new(AtomicU64::new(0));
    for _ in 0..count {
        let (mut stream, received) = (listener.accept()?.0, Arc::clone(&received));
        thread::spawn(move || {
            let mut piece = vec![0; PIECE_BYTES];
            while let Ok(bytes @ 1..) = stream.read(&mut piece) {
                received.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
    }
    for line in io::stdin().lock().lines() {
        line?;
        println!("{} {}", received.load(Ordering::Relaxed), now_ns(ClockId::Monotonic));
    }
    Ok(())
}

fn send(to: SocketAddr, connections: &Connections) -> Outcome<()> {
    let mut streams = Vec::new();
    for _ in 0..connections.count {
        let stream = TcpStream::connect(to)?;
        if let Some(name) = &connections.congestion {
            set_tcp_congestion(&stream, name)?;
        }
        streams.push(stream);
    }
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        process::exit(0);
    });
    let pump = |mut stream: TcpStream| {
        // Until the other end is gone.
        let piece = vec![0; PIECE_BYTES];
        while stream.write_all(&piece).is_ok() {}
    };
    let threads: Vec<_> =
        streams.into_iter().map(|stream| thread::spawn(move || pump(stream))).collect();
    threads
        .into_iter()
        .try_for_each(thread::JoinHandle::join)
        .map_err(|_| "a flow's thread panicked")?;
    Ok(())
}

/// A running flow, ended when dropped.
pub struct Flow {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    _ends: [Running; 2],
}

/// What has come so far.
#[derive(Clone, Copy)]
pub struct Reading {
    bytes: u64,
    at_ns: u64,
}

impl Flow {
    pub fn start(from: &Host, to: &Host) -> Outcome<Self> {
        Self::start_with(from, to, &Connections::default())
    }

    /// [`Flow::start`] with several connections, whose bytes are counted together.
    pub fn start_with(from: &Host, to: &Host, connections: &Connections) -> Outcome<Self> {
        let count = connections.count.to_string();
        let congestion = connections.congestion.as_deref().map(|name| ["--congestion", name]);
        let program = std::env::current_exe()?;
        let mut command = to.command(&program);
        command.args(["flow", "--listen", &to.address.to_string(), "--count", &count]);
        let mut sink = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let pipes = sink.0.stdin.take().zip(sink.0.stdout.take());
        let (orders, output) = pipes.ok_or("a flow has no pipes")?;
        let (mut answers, mut address) = (BufReader::new(output), String::new());
        answers.read_line(&mut address)?;
        let mut command = from.command(&program);
        command.args(["flow", "--to", address.trim(), "--count", &count]);
        command.args(congestion.into_iter().flatten());
        let source = Running::start(command.stdin(Stdio::piped()))?;
        Ok(Self { orders, answers, _ends: [sink, source] })
    }

    pub fn read(&mut self) -> Outcome<Reading> {
        writeln!(self.orders)?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let (bytes, at_ns) = line.trim().split_once(' ').ok_or("a flow has ended")?;
        Ok(Reading { bytes: bytes.parse()?, at_ns: at_ns.parse()? })
    }
}

impl Reading {
    /// What came since another reading.
    pub fn mbit_since(self, before: Self) -> f64 {
        (self.bytes - before.bytes) as f64 * 8e3 / (self.at_ns - before.at_ns) as f64
    }
}
