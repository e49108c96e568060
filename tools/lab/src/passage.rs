//! One direction of a long link, as a pure model: a queue, a rate, a delay and losses. Time is an argument.

use std::time::Duration;

/// What an idle rate may make up for at once: how late its owner may look, without losing any of the rate.
const LATENESS: Duration = Duration::from_millis(2);

/// What a long link does to packets, in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// How long each packet takes, in addition to its time in the queue and to its own length at the rate: half the
    /// round trip.
    pub delay: Duration,
    /// The longest wait in the queue in front of the link; a packet that would wait longer is dropped. With the round
    /// trip here it holds one bandwidth-delay product.
    pub queue: Duration,
    /// Which part of all packets is lost on the link, each independently of others.
    pub loss: f64,
    /// Of the generator that chooses the lost packets.
    pub seed: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives at this time.
    Arrives(Duration),
    /// It is sent, and lost.
    Lost,
    /// The queue is full.
    Dropped,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Passage {
    distance: Distance,
    bits_per_s: u64,
    /// When all that was accepted will have been sent.
    free_at: Duration,
    random: u64,
}

impl Passage {
    pub(crate) fn new(distance: &Distance, bits_per_s: u64) -> Self {
        let (free_at, random) = (Duration::ZERO, distance.seed);
        Self { distance: *distance, bits_per_s, free_at, random }
    }

    /// Offers a packet. `now` counts from any instant and does not go back.
    pub(crate) fn offer(&mut self, now: Duration, bytes: usize) -> Fate {
        if self.free_at.saturating_sub(now) > self.distance.queue {
            return Fate::Dropped;
        }
        let length = Duration::from_nanos(bytes as u64 * 8_000_000_000 / self.bits_per_s);
        self.free_at = self.free_at.max(now.saturating_sub(LATENESS)) + length;
        if self.is_next_lost() {
            return Fate::Lost;
        }
        Fate::Arrives(self.free_at.max(now) + self.distance.delay)
    }

    /// SplitMix64.
    fn is_next_lost(&mut self) -> bool {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) as f64 / (1_u64 << 53) as f64) < self.distance.loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// At 8 Mbit/s this takes 1 ms.
    const PACKET: usize = 1_000;
    const BITS_PER_S: u64 = 8_000_000;

    fn distance(loss: f64, seed: u64) -> Distance {
        Distance { delay: 10 * MS, queue: 20 * MS, loss, seed }
    }

    fn passage(loss: f64) -> Passage {
        Passage::new(&distance(loss, 7), BITS_PER_S)
    }

    #[test]
    fn packets_arrive_in_order_at_the_rate_after_the_delay() {
        let mut passage = passage(0.0);
        let start = 100 * MS;
        let arrivals: Vec<Fate> = (0..10).map(|_| passage.offer(start, PACKET)).collect();
        // The first ones make up for idle time; the others follow each other at the rate.
        let expected = |index: u32| start + 10 * MS + (index * MS + MS).saturating_sub(LATENESS);
        for (index, fate) in (0..).zip(arrivals) {
            assert_eq!(fate, Fate::Arrives(expected(index)), "{index}");
        }
    }

    #[test]
    fn the_queue_holds_one_bandwidth_delay_product_and_drops_the_rest() {
        let mut passage = passage(0.0);
        let start = 100 * MS;
        let accepted = |passage: &mut Passage, now| {
            (0..100).take_while(|_| passage.offer(now, PACKET) != Fate::Dropped).count()
        };
        // 20 ms are 20 packets; one more is being sent, and idle time is worth two.
        assert_eq!(accepted(&mut passage, start), 23);
        assert_eq!(accepted(&mut passage, start + 5 * MS), 5);
        assert_eq!(accepted(&mut passage, start + 100 * MS), 23);
    }

    #[test]
    fn an_overloaded_link_carries_its_rate() {
        let mut passage = passage(0.0);
        // Offered every half millisecond: twice the rate.
        let fates = (0..20_000).map(|index| passage.offer(100 * MS + index * MS / 2, PACKET));
        let arrived = fates.filter(|fate| matches!(fate, Fate::Arrives(_))).count();
        assert!((10_000..=10_023).contains(&arrived), "{arrived}");
    }

    #[test]
    fn losses_are_as_frequent_as_told_and_the_same_with_the_same_seed() {
        let lost = |loss, seed| {
            let mut passage = Passage::new(&distance(loss, seed), BITS_PER_S);
            (0..100_000_u32)
                .filter(|&index| passage.offer(index * MS, PACKET) == Fate::Lost)
                .collect::<Vec<u32>>()
        };
        assert!(lost(0.0, 1).is_empty());
        assert_eq!(lost(1.0, 1).len(), 100_000);
        // Six standard deviations, which are 31 and 10.
        for (loss, expected) in [(0.01, 814..1_187), (0.001, 40..160)] {
            let lost = lost(loss, 7);
            assert!(expected.contains(&lost.len()), "{loss}: {}", lost.len());
        }
        assert_eq!(lost(0.01, 7), lost(0.01, 7));
        assert_ne!(lost(0.01, 7), lost(0.01, 8));
    }

    #[test]
    fn losses_are_independent_of_each_other() {
        let mut passage = passage(0.1);
        let is_lost: Vec<bool> =
            (0..100_000).map(|index| passage.offer(index * MS, PACKET) == Fate::Lost).collect();
        let pairs = is_lost.windows(2).filter(|pair| pair[0] && pair[1]).count();
        // A hundredth of all pairs; six standard deviations, at most 36 each since pairs overlap.
        assert!((784..1_216).contains(&pairs), "{pairs}");
    }
}
