//! A stand-in for MVICH: broadcast and allreduce by sends and receives along a binomial tree, over the same transport as
//! teams.

mod exchange;
mod steps;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

pub use exchange::Exchange;
pub use steps::{children, parent};

use super::{
    cell::{Cell, Operation},
    group::{Args, Collectives},
};
use crate::{outcome::Outcome, peers::meeting};

/// For connections, and for one operation.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long a member polls before it sleeps; as long as a team does.
const POLLING: Duration = Duration::from_micros(100);
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A member over TCP.
pub struct TwoSidedMember(Exchange<TcpTransport>);

impl TwoSidedMember {
    pub fn join(args: &Args, bytes_max: usize) -> Outcome<Self> {
        let links = connect(args)?;
        let transport = TcpTransport::new(TcpSettings::default())?;
        Ok(Self(Exchange::new(transport, args.rank, args.members, links, bytes_max)?))
    }

    fn wait(&mut self) -> Outcome<()> {
        let start = Instant::now();
        while !self.0.is_complete() {
            if start.elapsed() < POLLING {
                self.0.progress(Duration::ZERO)?;
                thread::yield_now();
                continue;
            }
            if start.elapsed() > TIMEOUT {
                return Err("a two-sided operation takes too long".into());
            }
            self.0.progress(SLEEP_MAX)?;
        }
        Ok(())
    }
}

/// Two connections to the parent, and two from each child.
fn connect(args: &Args) -> Outcome<Vec<(u32, [TcpLink; 2])>> {
    let listener = TcpListener::bind((args.address, 0))?;
    let name = |rank: u32| format!("two-sided-{rank}");
    meeting::publish(&args.meeting, &name(args.rank), listener.local_addr()?)?;
    let mut streams: Vec<(u32, Vec<TcpStream>)> = Vec::new();
    if let Some(parent) = parent(args.rank) {
        let mut own = Vec::new();
        for _ in 0..2 {
            let mut stream = meeting::connect_to(&args.meeting, &name(parent))?;
            stream.write_all(&args.rank.to_le_bytes())?;
            // The parent's answer: connections are in the same order at both ends.
            stream.read_exact(&mut [0])?;
            own.push(stream);
        }
        streams.push((parent, own));
    }
    let expected = 2 * children(args.rank, args.members).count();
    for _ in 0..expected {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut rank = [0; 4];
        stream.read_exact(&mut rank)?;
        stream.write_all(&[0])?;
        let rank = u32::from_le_bytes(rank);
        match streams.iter_mut().find(|(other, _)| *other == rank) {
            Some((_, of_peer)) => of_peer.push(stream),
            None => streams.push((rank, vec![stream])),
        }
    }
    let link = |(rank, streams): (u32, Vec<TcpStream>)| {
        let streams: [TcpStream; 2] =
            streams.try_into().map_err(|_| format!("member {rank} has not connected twice"))?;
        Ok((rank, streams.map(TcpLink::from)))
    };
    streams.into_iter().map(link).collect()
}

impl Collectives for TwoSidedMember {
    fn put(&mut self, contents: &[u8]) -> Outcome<()> {
        self.0.memory().write(0..contents.len())?.copy_from_slice(contents);
        Ok(())
    }

    fn get(&mut self, bytes: usize) -> Outcome<Vec<u8>> {
        Ok(self.0.memory().read(0..bytes)?.to_vec())
    }

    fn run(&mut self, cell: Cell) -> Outcome<()> {
        self.0.start(cell)?;
        self.wait()
    }

    /// An allreduce of one element, of 0 in the first bytes of the memory, which are kept.
    fn barrier(&mut self) -> Outcome<()> {
        let kept = self.get(4)?;
        self.put(&[0; 4])?;
        self.run(Cell { operation: Operation::AllReduce, bytes: 4 })?;
        self.put(&kept)
    }
}
