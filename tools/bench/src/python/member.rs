//! One member in Rust, which does what `tools/bench/peers/python_member.py` does.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use rdmc::{Context, ContextSettings, Protection, Secret, Team, TeamSettings};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::work::Work;
use crate::{
    clock::{ClockId, now_ns},
    collectives::{
        SECRET,
        times::{Repeats, line},
    },
    outcome::Outcome,
    peers::meeting,
};

const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    rank: u32,
    members: u32,
    /// Where this member listens
    address: IpAddr,
    /// The directory in which members find each other
    meeting: PathBuf,
    works: Vec<Work>,
}

/// Runs all works, and prints the times in the end.
pub fn run(args: &Args) -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let secret = Secret::from_hex(&env::var(SECRET)?)?;
    let mut settings = ContextSettings::new((args.address, 0).into(), secret);
    settings.protection = Protection::None;
    let context = Context::start(settings)?;
    let name = |rank: u32| format!("member-{rank}");
    meeting::publish(&args.meeting, &name(args.rank), context.address())?;
    let deadline = Instant::now() + TIMEOUT;
    let addresses = (0..args.members)
        .map(|rank| meeting::find(&args.meeting, &name(rank), deadline))
        .collect::<Outcome<Vec<SocketAddr>>>()?;
    let team = context.create_team(TeamSettings::new(1, addresses, args.rank))?;
    let measured: Vec<Repeats> =
        args.works.iter().map(|&work| measure(&team, args.rank, work)).collect::<Outcome<_>>()?;
    team.barrier(TIMEOUT)?;
    for (index, repeats) in measured.iter().enumerate() {
        println!("{}", line(index, args.rank, repeats));
    }
    // Others may still need the connections.
    Ok(team.barrier(TIMEOUT)?)
}

fn measure(team: &Team, rank: u32, work: Work) -> Outcome<Repeats> {
    let length = usize::try_from(work.bytes)?;
    let mut arrays: Vec<Vec<u8>> = (0..work.count).map(|_| vec![0; length]).collect();
    check(team, rank, &mut arrays)?;
    let mut repeats = Repeats::with_capacity(work.repeats as usize);
    for _ in 0..work.repeats {
        team.barrier(TIMEOUT)?;
        let start_ns = now_ns(ClockId::Monotonic);
        for array in &mut arrays {
            team.broadcast(0, array, TIMEOUT)?;
        }
        repeats.push((start_ns, now_ns(ClockId::Monotonic)));
    }
    check(team, rank, &mut arrays)?;
    Ok(repeats)
}

/// A prime: no block of a message is a multiple of it, so that one at another's place is noticed.
const PERIOD: usize = 1_000_003;

/// Broadcasts contents once that differ by place and by array, and compares all of it.
fn check(team: &Team, rank: u32, arrays: &mut [Vec<u8>]) -> Outcome<()> {
    let byte = |place: usize| ((place as u64).wrapping_mul(2_654_435_761) >> 7) as u8;
    let pattern = |index: usize| -> Vec<u8> {
        (0..PERIOD).map(|place| byte(place).wrapping_add(index as u8)).collect()
    };
    for (index, array) in arrays.iter_mut().enumerate() {
        let pattern = pattern(index);
        for piece in array.chunks_mut(PERIOD) {
            match rank {
                0 => piece.copy_from_slice(&pattern[..piece.len()]),
                _ => piece.fill(0),
            }
        }
    }
    for array in &mut *arrays {
        team.broadcast(0, array, TIMEOUT)?;
    }
    for (index, array) in arrays.iter().enumerate() {
        let pattern = pattern(index);
        if !array.chunks(PERIOD).all(|piece| piece == &pattern[..piece.len()]) {
            return Err(format!("member {rank} has wrong bytes in array {index}").into());
        }
    }
    Ok(())
}
