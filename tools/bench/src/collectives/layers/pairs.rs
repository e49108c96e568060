//! What is measured beside a transport's own writes: sockets, the crate below the library, and the library.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::Duration,
};

use collective::{Kind, Op, Reduction, Type};
use team::{Memory, Team};

use super::pair::{Counted, FRAME_BYTES, Pair, TIMEOUT, Wait};
use crate::outcome::Outcome;

/// A message each way.
pub struct Sockets {
    stream: TcpStream,
    polls: bool,
}

impl Sockets {
    pub fn new(stream: TcpStream, polls: bool) -> Outcome<Self> {
        stream.set_nonblocking(polls)?;
        Ok(Self { stream, polls })
    }
}

impl Pair for Sockets {
    fn operate(&mut self) -> Outcome<()> {
        let mut frame = [0; FRAME_BYTES];
        self.stream.write_all(&frame)?;
        if !self.polls {
            return Ok(self.stream.read_exact(&mut frame)?);
        }
        let mut done = 0;
        Wait::Yielding.until(|| {
            match self.stream.read(&mut frame[done..]) {
                Ok(0) => return Err("the other member is gone".into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            Ok(done == FRAME_BYTES)
        })
    }
}

/// An allreduce of the crate below the library.
pub struct TeamPair<T: Counted> {
    pub team: Team<T>,
    pub wait: Wait,
}

impl<T: Counted> Pair for TeamPair<T> {
    fn operate(&mut self) -> Outcome<()> {
        let mut memory = [0; 4];
        let by = Some(Reduction::new(Type::F32, Op::Sum)?);
        let Self { team, wait } = self;
        let lent = Memory::Lent(&mut memory);
        let operation = team.start(Kind::AllReduce, 0, 4, by, lent)?;
        wait.until(|| {
            if team.is_complete(operation)? {
                return Ok(true);
            }
            team.progress(&mut memory, Duration::ZERO);
            Ok(team.is_complete(operation)?)
        })?;
        team.take(operation);
        Ok(())
    }

    fn progress(&mut self) {
        self.team.progress(&mut [], Duration::ZERO);
    }

    fn counts(self: Box<Self>) -> Vec<u64> {
        self.team.into_transport().counts()
    }
}

/// An allreduce of the library. The context lives as long as the team.
pub struct LibraryPair {
    team: rdmc::Team,
    _context: rdmc::Context,
}

impl LibraryPair {
    pub fn new(context: rdmc::Context, settings: rdmc::TeamSettings) -> Outcome<Self> {
        Ok(Self { team: context.create_team(settings)?, _context: context })
    }
}

impl Pair for LibraryPair {
    fn operate(&mut self) -> Outcome<()> {
        Ok(self.team.all_reduce(&mut [0.0_f32], rdmc::Op::Sum, TIMEOUT)?)
    }
}
