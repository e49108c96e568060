//! One member as a process: it meets the others, runs all cells by the rule, checks results, and prints its times.

use std::{path::Path, time::Duration};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::{
    bare_memory::BareMember,
    barrier::{SharedBarrier, Words},
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
    let words = |path: &Path| Words::open(path, args.rank, args.members);
    let group: Box<dyn Collectives> = match args.way {
        Way::Team => Box::new(TeamMember::join(args, bytes_max)?),
        Way::TwoSided => Box::new(TwoSidedMember::join(args, bytes_max)?),
        Way::BareMemory => {
            let path = args.barrier.as_deref().ok_or("bare memory needs that of the barrier")?;
            Box::new(BareMember::new(words(path)?))
        }
    };
    let barrier = args.barrier.as_deref().map(words).transpose()?.map(SharedBarrier::new);
    let mut member = Member { args, group, barrier };
    let measured: Vec<Repeats> =
        args.cells.iter().map(|&cell| member.measure(cell)).collect::<Outcome<_>>()?;
    member.start_together()?;
    for (index, repeats) in measured.iter().enumerate() {
        println!("{}", line(index, args.rank, repeats));
    }
    // Others may still need the connections.
    member.group.barrier()
}

struct Member<'a> {
    args: &'a Args,
    group: Box<dyn Collectives>,
    barrier: Option<SharedBarrier>,
}

impl Member<'_> {
    /// OSU's rules: warm-up, then repeats with a barrier before each.
    fn measure(&mut self, cell: Cell) -> Outcome<Repeats> {
        let rule = &self.args.rule;
        let mut elapsed_ns = self.check(cell)?;
        let warm_up = self.agree(rule.warm_up(cell.bytes, Duration::from_nanos(elapsed_ns)))?;
        self.group.put(&vec![0; cell.bytes as usize])?;
        for _ in 0..warm_up {
            let start_ns = now_ns(ClockId::Monotonic);
            self.start_together()?;
            self.group.run(cell)?;
            elapsed_ns = now_ns(ClockId::Monotonic) - start_ns;
        }
        let count = self.agree(rule.repeats(Duration::from_nanos(elapsed_ns)))?;
        let mut repeats = Repeats::with_capacity(count as usize);
        for _ in 0..count {
            self.start_together()?;
            let start_ns = now_ns(ClockId::Monotonic);
            self.group.run(cell)?;
            repeats.push((start_ns, now_ns(ClockId::Monotonic)));
        }
        self.check(cell)?;
        Ok(repeats)
    }

    fn start_together(&mut self) -> Outcome<()> {
        self.group.barrier()?;
        self.barrier.as_mut().map_or(Ok(()), SharedBarrier::pass)
    }

    /// Rank 0's number.
    fn agree(&mut self, number: u32) -> Outcome<u32> {
        let own = if self.args.rank == 0 { number } else { 0 };
        self.group.put(&own.to_le_bytes())?;
        self.start_together()?;
        self.group.run(Cell { operation: Operation::Broadcast, bytes: 4 })?;
        let bytes: [u8; 4] = self.group.get(4)?.try_into().map_err(|_| "a count of 4 bytes")?;
        self.group.put(&[0; 4])?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Runs the operation once on contents that differ by place and by member, and compares all of the result. Returns
    /// how long it took, in ns.
    fn check(&mut self, cell: Cell) -> Outcome<u64> {
        let Args { rank, members, .. } = *self.args;
        let count = cell.bytes / 4;
        let contents = |factor: u32| {
            (0..count).flat_map(|index| element(index, factor).to_le_bytes()).collect()
        };
        let (own, sum) = match cell.operation {
            Operation::Broadcast => (u32::from(rank == 0), 1),
            Operation::AllReduce => (rank + 1, members * (members + 1) / 2),
        };
        let own: Vec<u8> = contents(own);
        self.group.put(&own)?;
        self.start_together()?;
        let start_ns = now_ns(ClockId::Monotonic);
        self.group.run(cell)?;
        let elapsed_ns = now_ns(ClockId::Monotonic) - start_ns;
        let expected: Vec<u8> = contents(sum);
        if self.group.get(cell.bytes as usize)? == expected {
            Ok(elapsed_ns)
        } else {
            Err(format!("member {rank} has a wrong result of {cell}").into())
        }
    }
}

/// Small whole numbers, whose sums are exact in `f32`. The programs in C have the same.
fn element(index: u64, factor: u32) -> f32 {
    ((index % 61 + 1) as u32 * factor) as f32
}
