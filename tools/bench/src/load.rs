//! Load of members' ports and racks' uplinks by schedules, in copies of the message.

use std::ops::AddAssign;

use rdmc::Schedule;

/// Load of one full-duplex link, in copies of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Copies {
    /// Out of the member or the rack.
    pub leaving: f64,
    /// Into it.
    pub entering: f64,
}

impl Copies {
    /// In the busier direction.
    fn most(self) -> f64 {
        self.leaving.max(self.entering)
    }
}

/// Load of the busiest of some links, in its busier direction.
pub fn busiest(copies: &[Copies]) -> f64 {
    copies.iter().map(|copies| copies.most()).fold(0.0, f64::max)
}

/// All transfers of one message, or of several at the same time.
#[derive(Clone, Debug)]
pub struct Load {
    /// By member.
    pub ports: Vec<Copies>,
    /// By rack, without transfers inside it.
    pub uplinks: Vec<Copies>,
}

impl Load {
    /// Of a message of this many blocks; `racks` has the rack of each member.
    pub fn of(schedule: &Schedule, racks: &[u32], blocks: u32) -> Self {
        let count = racks.iter().max().map_or(0, |&last| last as usize + 1);
        let mut load = Self {
            ports: vec![Copies::default(); racks.len()],
            uplinks: vec![Copies::default(); count],
        };
        let copies = 1.0 / f64::from(blocks);
        for target in 0..schedule.members() {
            for block in 0..blocks {
                let Some(step) = schedule.received_at(target, block, blocks) else { continue };
                let Some(transfer) = schedule.receive_at(target, step, blocks) else { continue };
                let [from, to] = [transfer.source as usize, target as usize];
                load.ports[from].leaving += copies;
                load.ports[to].entering += copies;
                if racks[from] != racks[to] {
                    load.uplinks[racks[from] as usize].leaving += copies;
                    load.uplinks[racks[to] as usize].entering += copies;
                }
            }
        }
        load
    }

    /// The least time that it takes, in the time in which a member's link carries one copy.
    /// `uplink_rate` is that of an uplink, in rates of a member's link.
    pub fn least_time(&self, uplink_rate: f64) -> f64 {
        busiest(&self.ports).max(busiest(&self.uplinks) / uplink_rate)
    }
}

impl AddAssign<&Self> for Load {
    /// For the same members in the same racks.
    fn add_assign(&mut self, other: &Self) {
        let pairs = |own: &mut Vec<Copies>, others: &[Copies]| {
            for (own, other) in own.iter_mut().zip(others) {
                own.leaving += other.leaving;
                own.entering += other.entering;
            }
        };
        pairs(&mut self.ports, &other.ports);
        pairs(&mut self.uplinks, &other.uplinks);
    }
}

#[cfg(test)]
mod tests {
    use rdmc::Algorithm;

    use super::*;

    fn load(algorithm: Algorithm) -> Load {
        let racks: Vec<u32> = (0..16).map(|rank| rank / 4).collect();
        Load::of(&Schedule::with_racks(algorithm, &racks, 0).unwrap(), &racks, 100)
    }

    #[test]
    fn a_chain_enters_and_leaves_each_rack_once() {
        let chain = load(Algorithm::Chain);
        let sums = |one: fn(&Copies) -> f64| {
            chain.uplinks.iter().map(|copies| one(copies).round()).collect::<Vec<f64>>()
        };
        assert_eq!(sums(|copies| copies.leaving), [1.0, 1.0, 1.0, 0.0]);
        assert_eq!(sums(|copies| copies.entering), [0.0, 1.0, 1.0, 1.0]);
        assert!((chain.least_time(1.0) - 1.0).abs() < 1e-9);
        assert!((chain.least_time(0.25) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn nested_pipelines_halve_the_load_of_uplinks_and_double_that_of_ports() {
        let nested = load(Algorithm::NestedPipelines);
        assert!((busiest(&nested.uplinks) - 1.0).abs() < 0.1, "{nested:?}");
        assert!((busiest(&nested.ports) - 2.0).abs() < 0.1, "{nested:?}");
        // Two of a member's four dimensions leave its rack.
        let plain = load(Algorithm::BinomialPipeline);
        assert!((busiest(&plain.uplinks) - 2.0).abs() < 0.1, "{plain:?}");
        assert!((busiest(&plain.ports) - 1.0).abs() < 0.1, "{plain:?}");
    }

    #[test]
    fn loads_add_up() {
        let mut all = load(Algorithm::Chain);
        all += &load(Algorithm::Chain);
        assert!((busiest(&all.ports) - 2.0).abs() < 1e-9);
        assert!((busiest(&all.uplinks) - 2.0).abs() < 1e-9);
    }
}
