//! An allreduce of the crate below the library.

use std::time::Duration;

use collective::{Kind, Op, Reduction, Type};
use team::{Memory, Team, TeamSettings, WriteEnds};
use transport::Transport;
use transport_tcp::TcpCounters;

use super::{
    pair::{Pair, Wait},
    writes::Counted,
};
use crate::outcome::Outcome;

pub struct TeamPair<T: Transport> {
    team: Team<T>,
    wait: Wait,
}

impl<T: Transport> TeamPair<T> {
    pub fn new(
        transport: T,
        link: T::Link,
        rank: u32,
        ends: WriteEnds,
        wait: Wait,
    ) -> Outcome<Self> {
        let mut settings = TeamSettings::new(1, 2, rank);
        settings.ends = ends;
        Ok(Self { team: Team::new(transport, settings, [(1 - rank, link)])?, wait })
    }
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

    fn counters(self: Box<Self>) -> Option<TcpCounters> {
        self.team.into_transport().counted()
    }
}
