//! One member in Rust, which does what `tools/bench/peers/python_member.py` does.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use rdmc::{Context, ContextSettings, Op, Protection, Secret, Team, TeamSettings, Type};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::work::{Operation, Work};
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
        args.works.iter().map(|&work| measure(&team, work)).collect::<Outcome<_>>()?;
    team.barrier(TIMEOUT)?;
    for (index, repeats) in measured.iter().enumerate() {
        println!("{}", line(index, args.rank, repeats));
    }
    // Others may still need the connections.
    Ok(team.barrier(TIMEOUT)?)
}

fn measure(team: &Team, work: Work) -> Outcome<Repeats> {
    let operation = |array: &mut [u8]| match work.operation {
        Operation::Broadcast => team.broadcast(0, array, TIMEOUT),
        Operation::AllReduce => team.all_reduce_bytes(array, Type::F32, Op::Sum, TIMEOUT),
    };
    let check = match work.operation {
        Operation::Broadcast => check,
        Operation::AllReduce => check_sums,
    };
    let length = usize::try_from(work.bytes)?;
    let mut arrays: Vec<Vec<u8>> = (0..work.count).map(|_| vec![0; length]).collect();
    check(team, &mut arrays)?;
    let mut repeats = Repeats::with_capacity(work.repeats as usize);
    for _ in 0..work.repeats {
        team.barrier(TIMEOUT)?;
        let start_ns = now_ns(ClockId::Monotonic);
        for array in &mut arrays {
            operation(array)?;
        }
        repeats.push((start_ns, now_ns(ClockId::Monotonic)));
    }
    check(team, &mut arrays)?;
    Ok(repeats)
}

/// A prime: no block of a message is a multiple of it, so that one at another's place is noticed.
const PERIOD: usize = 1_000_003;

/// Broadcasts contents once that differ by place and by array, and compares all of it.
fn check(team: &Team, arrays: &mut [Vec<u8>]) -> Outcome<()> {
    let rank = team.rank();
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

/// Sums contents once that differ by place, by array and by member, and compares all of it; leaves zeros.
fn check_sums(team: &Team, arrays: &mut [Vec<u8>]) -> Outcome<()> {
    let (rank, members) = (team.rank(), team.members());
    let value = |index: usize, place: usize| ((place * 7 + index) % 1000) as f32;
    for (index, array) in arrays.iter_mut().enumerate() {
        for (place, float) in array.chunks_exact_mut(4).enumerate() {
            float.copy_from_slice(&(value(index, place) + rank as f32).to_ne_bytes());
        }
        team.all_reduce_bytes(array, Type::F32, Op::Sum, TIMEOUT)?;
        let ranks = (members * (members - 1) / 2) as f32;
        let sum = |place| value(index, place) * members as f32 + ranks;
        let mut floats = array.chunks_exact(4).enumerate();
        if !floats.all(|(place, float)| *float == sum(place).to_ne_bytes()) {
            return Err(format!("member {rank} has wrong sums in array {index}").into());
        }
        array.fill(0);
    }
    Ok(())
}
