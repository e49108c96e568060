//! A schedule's transfers in the form that `simgrid/replay.cpp` reads.
//!
//! Numbers are little-endian: `rdmcplan`, members and blocks (32 bits each), bytes of a block and of
//! the last (64 bits each). Then for each member how many blocks it sends, and for each of these, in
//! order, the target, the block, and its place among what the target receives (32 bits each).

use std::io::{self, Write};

use schedule::{Schedule, Transfer};

use crate::member::blocks;

/// All transfers of one message, by source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    blocks: u32,
    block_bytes: u64,
    last_bytes: u64,
    sends: Vec<Vec<Send>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Send {
    target: u32,
    block: u32,
    place: u32,
}

impl Plan {
    /// The transfers of a message of `bytes` bytes, at least 1, from rank 0.
    pub fn new(schedule: &Schedule, bytes: u64, block_bytes: u64) -> Self {
        let blocks = blocks(bytes, block_bytes);
        let ranks = 0..schedule.members();
        let places: Vec<Vec<u32>> = ranks
            .clone()
            .map(|rank| {
                let mut places = vec![0; blocks as usize];
                let next = |from| schedule.next_receive(rank, from, blocks);
                for (place, transfer) in (0..).zip(in_order(next)) {
                    places[transfer.block as usize] = place;
                }
                places
            })
            .collect();
        let send = |Transfer { target, block, .. }| {
            let place = places[target as usize][block as usize];
            Send { target, block, place }
        };
        let sends_of = |rank| {
            in_order(|from| schedule.next_send(rank, from, blocks)).map(send).collect::<Vec<_>>()
        };
        let last_bytes = bytes - u64::from(blocks - 1) * block_bytes;
        Self { blocks, block_bytes, last_bytes, sends: ranks.map(sends_of).collect() }
    }

    /// Writes it in the form that the module describes. Errors are those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"rdmcplan")?;
        out.write_all(&(self.sends.len() as u32).to_le_bytes())?;
        out.write_all(&self.blocks.to_le_bytes())?;
        out.write_all(&self.block_bytes.to_le_bytes())?;
        out.write_all(&self.last_bytes.to_le_bytes())?;
        for sends in &self.sends {
            out.write_all(&(sends.len() as u32).to_le_bytes())?;
            for send in sends {
                for number in [send.target, send.block, send.place] {
                    out.write_all(&number.to_le_bytes())?;
                }
            }
        }
        Ok(())
    }
}

fn in_order(next: impl Fn(u64) -> Option<Transfer>) -> impl Iterator<Item = Transfer> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let transfer = next(from)?;
        from = transfer.step + 1;
        Some(transfer)
    })
}

#[cfg(test)]
mod tests {
    use schedule::Algorithm;

    use super::*;
    use crate::sim;

    /// The reverse of [`Plan::write`].
    fn read(mut bytes: &[u8]) -> Plan {
        fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
            let (head, rest) = bytes.split_first_chunk().expect("not at the end");
            *bytes = rest;
            *head
        }
        let number = |bytes: &mut &[u8]| u32::from_le_bytes(take(bytes));
        assert_eq!(&take::<8>(&mut bytes), b"rdmcplan");
        let (members, blocks) = (number(&mut bytes), number(&mut bytes));
        let block_bytes = u64::from_le_bytes(take(&mut bytes));
        let last_bytes = u64::from_le_bytes(take(&mut bytes));
        let mut sends = Vec::new();
        for _ in 0..members {
            let count = number(&mut bytes);
            let mut send = |_| Send {
                target: number(&mut bytes),
                block: number(&mut bytes),
                place: number(&mut bytes),
            };
            sends.push((0..count).map(&mut send).collect());
        }
        assert!(bytes.is_empty());
        Plan { blocks, block_bytes, last_bytes, sends }
    }

    #[test]
    fn a_plan_has_the_transfers_of_the_schedule() {
        for algorithm in Algorithm::ALL {
            for members in [1, 2, 3, 8, 13, 33] {
                let schedule = sim::schedule(algorithm, members, 16).unwrap();
                let plan = Plan::new(&schedule, 1000, 96);
                assert_eq!((plan.blocks, plan.last_bytes), (11, 40));
                let mut text = Vec::new();
                plan.write(&mut text).unwrap();
                assert_eq!(read(&text), plan);
                agrees(&plan, &schedule);
            }
        }
    }

    /// Every transfer of the schedule is in the plan, in its place, and nothing else.
    fn agrees(plan: &Plan, schedule: &Schedule) {
        let (mut sent, members) = (vec![0; plan.sends.len()], schedule.members());
        let mut received = vec![0; plan.sends.len()];
        for step in 0..schedule.steps(plan.blocks) {
            for rank in 0..members {
                let Some(transfer) = schedule.send_at(rank, step, plan.blocks) else { continue };
                let send = plan.sends[rank as usize][sent[rank as usize]];
                assert_eq!((send.target, send.block), (transfer.target, transfer.block));
                assert_eq!(send.place, received[transfer.target as usize]);
                sent[rank as usize] += 1;
                received[transfer.target as usize] += 1;
            }
        }
        assert!(plan.sends.iter().zip(sent).all(|(sends, sent)| sends.len() == sent));
        assert!(received.iter().skip(1).all(|&count| count == plan.blocks));
    }
}
