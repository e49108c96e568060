//! A member of a team of the library.

use std::{
    env,
    net::SocketAddr,
    time::{Duration, Instant},
};

use collective::bytes_of_mut;
use rdmc::{
    Context, ContextSettings, Op, Protection, Secret, Team, TeamSettings, Thresholds, WaySelection,
};

use super::{
    cell::{Cell, Operation},
    group::{Args, Collectives},
};
use crate::{outcome::Outcome, peers::meeting};

/// The environment variable with the secret, 64 hexadecimal digits.
pub const SECRET: &str = "RDMC_SECRET";

const TIMEOUT: Duration = Duration::from_secs(120);

/// A member of a team, and its memory. The context lives as long as the team.
pub struct TeamMember {
    team: Team,
    _context: Context,
    values: Vec<f32>,
}

impl TeamMember {
    pub fn join(args: &Args, bytes_max: usize) -> Outcome<Self> {
        let secret = Secret::from_hex(&env::var(SECRET)?)?;
        let mut settings = ContextSettings::new((args.address, 0).into(), secret);
        settings.fabric = args.fabric.clone();
        settings.tcp.direct_copies = !args.through_sockets;
        // What is measured beside it does not protect what it sends either.
        settings.protection = Some(Protection::None);
        let context = Context::start(settings)?;
        let name = |rank: u32| format!("member-{rank}");
        meeting::publish(&args.meeting, &name(args.rank), context.address())?;
        let deadline = Instant::now() + TIMEOUT;
        let addresses = (0..args.members)
            .map(|rank| meeting::find(&args.meeting, &name(rank), deadline))
            .collect::<Outcome<Vec<SocketAddr>>>()?;
        let mut settings = TeamSettings::new(1, addresses, args.rank);
        if let Some(bytes) = args.slot_bytes {
            settings.slot_bytes = bytes;
        }
        if args.degree.is_some() || args.slot_bytes.is_some() {
            // Trees through slots for every length, as in the paper.
            let degree = args.degree.unwrap_or(Thresholds::default().degree);
            settings.ways = Some(WaySelection::ByThresholds(Thresholds::trees(degree)));
        }
        let team = context.create_team(settings)?;
        Ok(Self { team, _context: context, values: vec![0.0; bytes_max.div_ceil(4)] })
    }
}

impl Collectives for TeamMember {
    fn put(&mut self, contents: &[u8]) -> Outcome<()> {
        bytes_of_mut(&mut self.values)[..contents.len()].copy_from_slice(contents);
        Ok(())
    }

    fn get(&mut self, bytes: usize) -> Outcome<Vec<u8>> {
        Ok(bytes_of_mut(&mut self.values)[..bytes].to_vec())
    }

    fn run(&mut self, cell: Cell) -> Outcome<()> {
        let values = &mut self.values[..cell.bytes as usize / 4];
        match cell.operation {
            Operation::Broadcast => self.team.broadcast(0, values, TIMEOUT)?,
            Operation::AllReduce => self.team.all_reduce(values, Op::Sum, TIMEOUT)?,
        }
        Ok(())
    }

    fn barrier(&mut self) -> Outcome<()> {
        Ok(self.team.barrier(TIMEOUT)?)
    }
}
