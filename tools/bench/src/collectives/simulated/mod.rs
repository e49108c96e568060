//! Teams and send/receive in a simulated network, in virtual time: as many members as one likes, each with an adapter and
//! a processor of its own.

mod port;

use std::{cell::RefCell, cmp::Reverse, collections::BinaryHeap, rc::Rc, time::Duration};

use collective::{Kind, Op, Reduction, Thresholds, Type, WaySelection, model::WriteCosts};
use team::{Memory, Team, TeamSettings};
use transport_sim::SimNet;

use self::port::{Port, PortLink, Timers, ends, network};
use super::{
    cell::{Cell, Operation},
    two_sided::{Exchange, children},
};
use crate::{outcome::Outcome, report::mean};

/// Operations whose times are averaged; virtual time has no noise, but slots are freed only now and then.
const REPEATS: u32 = 4;
/// Few, as thousands of members share one memory.
const SLOTS: u32 = 4;

/// A member of a simulated group.
trait Simulated {
    fn start(&mut self, cell: Cell) -> Outcome<()>;

    /// Does what has become possible. Returns whether the operation is complete.
    fn progress(&mut self) -> Outcome<bool>;
}

struct TeamMember {
    team: Team<Port>,
    operation: u64,
}

impl Simulated for TeamMember {
    fn start(&mut self, cell: Cell) -> Outcome<()> {
        self.team.take(self.operation);
        let memory = Memory::Owned(vec![0; cell.bytes as usize]);
        self.operation = match cell.operation {
            Operation::Broadcast => {
                self.team.start(Kind::Broadcast, 0, cell.bytes, None, memory)?
            }
            Operation::AllReduce => {
                let sum = Reduction::new(Type::F32, Op::Sum)?;
                self.team.start(Kind::AllReduce, 0, cell.bytes, Some(sum), memory)?
            }
        };
        Ok(())
    }

    fn progress(&mut self) -> Outcome<bool> {
        self.team.progress(&mut [], Duration::ZERO);
        Ok(self.team.is_complete(self.operation)?)
    }
}

impl Simulated for Exchange<Port> {
    fn start(&mut self, cell: Cell) -> Outcome<()> {
        Exchange::start(self, cell)
    }

    fn progress(&mut self) -> Outcome<bool> {
        Exchange::progress(self, Duration::ZERO)?;
        Ok(self.is_complete())
    }
}

/// A group, by what its members communicate, in a network with the paper's costs.
pub struct World {
    net: SimNet,
    timers: Timers,
    members: Vec<Box<dyn Simulated>>,
}

impl World {
    /// A team whose slots hold this many bytes of a message, with one degree for all reductions.
    pub fn team(members: u32, block: u32, degree: u32, costs: &WriteCosts) -> Outcome<Self> {
        Self::team_with(members, costs, |settings| {
            // Trees through slots for every length, as in the paper.
            settings.core.ways = WaySelection::ByThresholds(Thresholds::trees(degree));
            settings.core.slot_bytes = block + collective::HEADER_BYTES as u32;
        })
    }

    /// A team with the library's settings, but for the number of slots and what `change` changes.
    fn team_with(
        members: u32,
        costs: &WriteCosts,
        change: impl Fn(&mut TeamSettings),
    ) -> Outcome<Self> {
        let settings = |rank| {
            let mut settings = TeamSettings::new(1, members, rank);
            settings.core.slots = SLOTS;
            change(&mut settings);
            settings
        };
        let links = |rank| settings(rank).links();
        Self::connected(members, 1, links, costs, |rank, port, links| {
            let links = links
                .into_iter()
                .flat_map(|(other, links)| links.into_iter().map(move |link| (other, link)));
            let team = Team::new(port, settings(rank), links)?;
            Ok(Box::new(TeamMember { team, operation: 0 }))
        })
    }

    /// Send/receive along a binomial tree.
    pub fn two_sided(members: u32, bytes_max: usize, costs: &WriteCosts) -> Outcome<Self> {
        let links = |rank| children(rank, members).collect();
        Self::connected(members, 2, links, costs, |rank, port, links| {
            let pair = |(other, links): (u32, Vec<PortLink>)| {
                let links: [PortLink; 2] = links.try_into().map_err(|_| "not two links")?;
                Ok((other, links))
            };
            let links = links.into_iter().map(pair).collect::<Outcome<Vec<_>>>()?;
            Ok(Box::new(Exchange::new(port, rank, members, links, bytes_max)?))
        })
    }

    /// Connects each member to those of `links` that have a greater rank, by this many links, and makes it.
    fn connected(
        members: u32,
        count: u32,
        links: impl Fn(u32) -> Vec<u32>,
        costs: &WriteCosts,
        make: impl Fn(u32, Port, Vec<(u32, Vec<PortLink>)>) -> Outcome<Box<dyn Simulated>>,
    ) -> Outcome<Self> {
        let net = SimNet::new(network(costs), 1);
        let timers: Timers = Rc::new(RefCell::new(BinaryHeap::new()));
        let transports = net.members(members as usize);
        let mut all: Vec<Vec<(u32, Vec<PortLink>)>> = (0..members).map(|_| Vec::new()).collect();
        for one in 0..members {
            for other in links(one).into_iter().filter(|&other| other > one) {
                let pairs = (0..count).map(|_| {
                    let (near, far) = net.connect(one as usize, other as usize);
                    ends(near, far)
                });
                let (near, far): (Vec<PortLink>, Vec<PortLink>) = pairs.unzip();
                all[one as usize].push((other, near));
                all[other as usize].push((one, far));
            }
        }
        let member = |((transport, links), rank): ((_, _), u32)| {
            let port = Port::new(transport, rank as usize, *costs, Rc::clone(&timers));
            make(rank, port, links)
        };
        let members =
            transports.into_iter().zip(all).zip(0..).map(member).collect::<Outcome<Vec<_>>>()?;
        let mut world = Self { net, timers, members };
        // Rings and receives are announced before the time starts.
        world.run(|_, _| ())?;
        Ok(world)
    }

    /// The mean time of an operation, in us: of a broadcast until the last member has it, of an allreduce the mean over
    /// members.
    pub fn measure(&mut self, cell: Cell) -> Outcome<f64> {
        let mut times = Vec::new();
        // The first is not counted: it may wait for receives that are being posted.
        for repeat in 0..=REPEATS {
            let start = self.net.now();
            let mut ends = vec![None; self.members.len()];
            for (end, member) in ends.iter_mut().zip(&mut self.members) {
                member.start(cell)?;
                if member.progress()? {
                    *end = Some(start);
                }
            }
            self.run(|member, now| {
                ends[member].get_or_insert(now);
            })?;
            let ends: Option<Vec<f64>> = ends
                .into_iter()
                .map(|end| end.map(|end: Duration| (end - start).as_secs_f64() * 1e6))
                .collect();
            let ends = ends.ok_or("a simulated operation does not end")?;
            let time = match cell.operation {
                Operation::Broadcast => ends.iter().copied().fold(0.0, f64::max),
                Operation::AllReduce => mean(&ends),
            };
            times.extend((repeat > 0).then_some(time));
        }
        Ok(mean(&times))
    }

    /// Lets time pass until nothing happens any more; calls `complete` with each member that has nothing under way.
    fn run(&mut self, mut complete: impl FnMut(usize, Duration)) -> Outcome<()> {
        loop {
            let next = self.timers.borrow().peek().map(|Reverse(next)| *next);
            let member = match next {
                Some((at, member)) => self.net.run_until(at).unwrap_or_else(|| {
                    self.timers.borrow_mut().pop();
                    member
                }),
                None => match self.net.step() {
                    Some(member) => member,
                    None => return Ok(()),
                },
            };
            if self.members[member].progress()? {
                complete(member, self.net.now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use collective::{
        Partners,
        model::{Bounds, broadcast_us, circulant_us, exchange_us, reduce_us, ring_allreduce_us},
    };

    use super::*;

    const COSTS: WriteCosts = WriteCosts::PAPER;

    fn cell(operation: Operation, bytes: u64) -> Cell {
        Cell { operation, bytes }
    }

    #[test]
    fn a_short_broadcast_takes_what_the_model_says() {
        for members in [2, 8, 32] {
            let mut world = World::team(members, 3072, 3, &COSTS).unwrap();
            let taken = world.measure(cell(Operation::Broadcast, 4)).unwrap();
            // The header is sent, too.
            let with_header = broadcast_us(members, 4 + 48, 3072, &COSTS);
            assert!((taken / with_header - 1.0).abs() < 0.02, "{members}: {taken} {with_header}");
        }
    }

    #[test]
    fn a_greater_degree_waits_for_its_adapter() {
        let time = |degree| {
            let mut world = World::team(16, 3072, degree, &COSTS).unwrap();
            world.measure(cell(Operation::AllReduce, 4)).unwrap()
        };
        let [one, three, fifteen] = [1, 3, 15].map(time);
        assert!(three < one && three < fifteen, "{one} {three} {fifteen}");
        let (model_one, model_three) = (reduce_us(16, 1, 4, &COSTS), reduce_us(16, 3, 4, &COSTS));
        assert!(model_three.worst_us < model_one.worst_us);
    }

    #[test]
    fn an_exchange_takes_what_the_model_says() {
        for members in [2, 4, 16, 64] {
            for bytes in [4, 1024, 16 << 10] {
                let mut world = World::team_with(members, &COSTS, |settings| {
                    let thresholds =
                        Thresholds { exchange_bytes: u64::MAX, ..Thresholds::default() };
                    settings.core.ways = WaySelection::ByThresholds(thresholds);
                })
                .unwrap();
                let taken = world.measure(cell(Operation::AllReduce, bytes)).unwrap();
                let partners = Partners::new(members, true);
                let with_header = exchange_us(partners, bytes + 48, 32 << 10, &COSTS);
                assert!(
                    (taken / with_header - 1.0).abs() < 0.02,
                    "{members} {bytes}: {taken} {with_header}"
                );
            }
        }
    }

    /// Long messages are not copied.
    #[test]
    fn blocks_take_what_the_models_say() {
        const NO_COPIES: WriteCosts = WriteCosts { copy_us_per_byte: 0.0, ..COSTS };
        for members in [2, 3, 8, 13] {
            for (bytes, block) in [(128 << 10, 128 << 10), (1 << 20, 128 << 10), (64 << 10, 1024)] {
                let long_bytes = 64 << 10;
                let mut world = World::team_with(members, &NO_COPIES, |settings| {
                    let thresholds =
                        Thresholds { long_bytes, block_bytes: block, ..Thresholds::default() };
                    settings.core.ways = WaySelection::ByThresholds(thresholds);
                })
                .unwrap();
                let block = block.into();
                for (operation, Bounds { best_us, worst_us }) in [
                    (Operation::Broadcast, circulant_us(members, bytes, block, &NO_COPIES)),
                    (Operation::AllReduce, ring_allreduce_us(members, bytes, block, &NO_COPIES)),
                ] {
                    let taken = world.measure(cell(operation, bytes)).unwrap();
                    // Grants are a little faster in the simulated network, and blocks overlap less than at best.
                    assert!(
                        0.99 * best_us < taken && taken < 1.1 * worst_us,
                        "{} {members} {bytes} {block}: {taken}, {best_us} to {worst_us}",
                        operation.name()
                    );
                }
            }
        }
    }

    #[test]
    fn send_and_receive_has_the_sum_and_costs_more_for_several_pieces() {
        let mut world = World::two_sided(5, 8192, &COSTS).unwrap();
        let [short, long, rendezvous] =
            [4, 4096, 8192].map(|bytes| world.measure(cell(Operation::AllReduce, bytes)).unwrap());
        assert!(short < long && long < rendezvous, "{short} {long} {rendezvous}");
    }
}
