//! One member as a process: it meets the others, runs all cells by the rule, checks results, and prints its times.

use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::{
    cell::{Cell, Operation},
    group::{Args, Collectives, Way},
    team_member::TeamMember,
    times::{Repeats, line},
    two_sided::TwoSidedMember,
};
use crate::{
    clock::{ClockId, now_ns},
    outcome::Outcome,
};

/// Runs all cells, and prints the times in the end: printing takes processor time, which others need.
pub fn run(args: &Args) -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let bytes_max = args.cells.iter().map(|cell| cell.bytes).max().unwrap_or(4) as usize;
    let mut group: Box<dyn Collectives> = match args.way {
        Way::Team => Box::new(TeamMember::join(args, bytes_max)?),
        Way::TwoSided => Box::new(TwoSidedMember::join(args, bytes_max)?),
    };
    let measured: Vec<Repeats> =
        args.cells.iter().map(|&cell| measure(&mut *group, args, cell)).collect::<Outcome<_>>()?;
    group.barrier()?;
    for (index, repeats) in measured.iter().enumerate() {
        println!("{}", line(index, args.rank, repeats));
    }
    // Others may still need the connections.
    group.barrier()
}

/// OSU's rules: warm-up, then repeats with a barrier before each.
fn measure(group: &mut dyn Collectives, args: &Args, cell: Cell) -> Outcome<Repeats> {
    let mut elapsed_ns = check(group, args, cell)?;
    let warm_up = args.rule.warm_up(cell.bytes, Duration::from_nanos(elapsed_ns));
    let warm_up = agree(group, args, warm_up)?;
    group.put(&vec![0; cell.bytes as usize])?;
    for _ in 0..warm_up {
        let start_ns = now_ns(ClockId::Monotonic);
        group.barrier()?;
        group.run(cell)?;
        elapsed_ns = now_ns(ClockId::Monotonic) - start_ns;
    }
    let count = agree(group, args, args.rule.repeats(Duration::from_nanos(elapsed_ns)))?;
    let mut repeats = Repeats::with_capacity(count as usize);
    for _ in 0..count {
        group.barrier()?;
        let start_ns = now_ns(ClockId::Monotonic);
        group.run(cell)?;
        repeats.push((start_ns, now_ns(ClockId::Monotonic)));
    }
    check(group, args, cell)?;
    Ok(repeats)
}

/// Rank 0's number.
fn agree(group: &mut dyn Collectives, args: &Args, number: u32) -> Outcome<u32> {
    let own = if args.rank == 0 { number } else { 0 };
    group.put(&own.to_le_bytes())?;
    group.run(Cell { operation: Operation::Broadcast, bytes: 4 })?;
    let bytes: [u8; 4] = group.get(4)?.try_into().map_err(|_| "a count of 4 bytes")?;
    group.put(&[0; 4])?;
    Ok(u32::from_le_bytes(bytes))
}

/// Runs the operation once on contents that differ by place and by member, and compares all of the result. Returns how
/// long it took, in ns.
fn check(group: &mut dyn Collectives, args: &Args, cell: Cell) -> Outcome<u64> {
    let count = cell.bytes / 4;
    let contents =
        |factor: u32| (0..count).flat_map(|index| element(index, factor).to_le_bytes()).collect();
    let (own, sum) = match cell.operation {
        Operation::Broadcast => (u32::from(args.rank == 0), 1),
        Operation::AllReduce => (args.rank + 1, args.members * (args.members + 1) / 2),
    };
    let own: Vec<u8> = contents(own);
    group.put(&own)?;
    let start_ns = now_ns(ClockId::Monotonic);
    group.run(cell)?;
    let elapsed_ns = now_ns(ClockId::Monotonic) - start_ns;
    let expected: Vec<u8> = contents(sum);
    if group.get(cell.bytes as usize)? == expected {
        Ok(elapsed_ns)
    } else {
        Err(format!("member {} has a wrong result of {cell}", args.rank).into())
    }
}

/// Small whole numbers, whose sums are exact in `f32`. The programs in C have the same.
fn element(index: u64, factor: u32) -> f32 {
    ((index % 61 + 1) as u32 * factor) as f32
}
