//! Plain TCP without a library: copies to all members at once, or a chain.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use super::{
    meeting::{connect_to, publish},
    transfer::{Args, Transfer, Way},
};
use crate::{
    clock::{ClockId, now_ns},
    outcome::Outcome,
};

/// A member of the chain reads at most this before it writes it.
const PIECE_BYTES: usize = 64 << 10;

/// One member's connections.
pub struct Sockets {
    source: Option<TcpStream>,
    targets: Vec<TcpStream>,
}

impl Sockets {
    /// Connects to the members to which this one sends, and accepts the one that sends to it.
    pub fn connect(args: &Args) -> Outcome<Self> {
        let name = |rank: u32| format!("member-{rank}");
        let listener = TcpListener::bind((args.address, 0))?;
        publish(&args.meeting, &name(args.rank), listener.local_addr()?)?;
        let targets = match (args.way, args.rank) {
            (Way::Chain, rank) => rank + 1..(rank + 2).min(args.members),
            (_, 0) => 1..args.members,
            _ => 0..0,
        };
        let targets = targets
            .map(|rank| connect_to(&args.meeting, &name(rank)))
            .collect::<Outcome<Vec<_>>>()?;
        let source = if args.rank > 0 { Some(listener.accept()?.0) } else { None };
        Ok(Self { source, targets })
    }
}

impl Transfer for Sockets {
    fn transfer(&mut self, object: &mut [u8]) -> Outcome<u64> {
        let started_ns = now_ns(ClockId::Monotonic);
        match &mut self.source {
            None => write_to_all(&mut self.targets, object)?,
            Some(source) => pass_on(source, &mut self.targets, object)?,
        }
        Ok(started_ns)
    }

    fn cpu_ns(&self) -> Outcome<u64> {
        Ok(now_ns(ClockId::ProcessCPUTime))
    }
}

fn write_to_all(targets: &mut [TcpStream], object: &[u8]) -> Outcome<()> {
    thread::scope(|scope| {
        let writers: Vec<_> = targets
            .iter_mut()
            .map(|target| scope.spawn(move || target.write_all(object)))
            .collect();
        for writer in writers {
            writer.join().map_err(|_| "a copying thread panicked")??;
        }
        Ok(())
    })
}

fn pass_on(source: &mut TcpStream, targets: &mut [TcpStream], object: &mut [u8]) -> Outcome<()> {
    let mut done = 0;
    while done < object.len() {
        let end = object.len().min(done + PIECE_BYTES);
        let read = source.read(&mut object[done..end])?;
        if read == 0 {
            return Err(format!("the source ended after {done} bytes").into());
        }
        for target in &mut *targets {
            target.write_all(&object[done..done + read])?;
        }
        done += read;
    }
    Ok(())
}
