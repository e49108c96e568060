//! Fault injection: what a bad network does to packets.

use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// Without options, as packets of RoCEv2 are.
const IPV4_BYTES: usize = 20;

/// Probabilities, from 0 to 1, of faults of a packet, in both directions.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// It is lost.
    pub loss: f64,
    /// It is duplicated.
    pub duplicate: f64,
    /// It is delivered after the next.
    pub reorder: f64,
    /// One of its bits is flipped.
    pub corrupt: f64,
    /// It is marked as by a congested queue (ECN).
    pub mark: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Injects faults into packets; by default none.
#[derive(Default)]
pub(crate) struct Injector {
    faults: Faults,
    random: Option<ChaCha8Rng>,
    late: Option<Vec<u8>>,
}

impl Injector {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, random: Some(ChaCha8Rng::seed_from_u64(faults.seed)), late: None }
    }

    /// Whether it injects any.
    pub(crate) const fn is_active(&self) -> bool {
        self.random.is_some()
    }

    /// Applies faults to a frame: `pass` gets each frame to deliver. Returns the number of faults.
    pub(crate) fn apply(&mut self, frame: &[u8], mut pass: impl FnMut(&[u8])) -> u64 {
        let Faults { loss, duplicate, reorder, corrupt, mark, .. } = self.faults;
        let Some(random) = &mut self.random else {
            pass(frame);
            return 0;
        };
        let mut happens = |probability: f64| random.random_bool(probability);
        if happens(loss) {
            return 1;
        }
        let (is_doubled, is_late, is_damaged) =
            (happens(duplicate), happens(reorder), happens(corrupt));
        let mut own;
        let mut frame = frame;
        let mut marked_frame;
        // Drawn only if it is used, so that seeds of tests without marks keep their faults.
        let is_marked = mark > 0.0 && random.random_bool(mark);
        if is_marked {
            marked_frame = frame.to_vec();
            mark_ecn(&mut marked_frame);
            frame = &marked_frame;
        }
        if is_damaged && frame.len() > roce::ETHERNET_BYTES {
            own = frame.to_vec();
            // A corrupt Ethernet header would not be delivered.
            let at = random.random_range(roce::ETHERNET_BYTES..own.len());
            own[at] ^= 1 << random.random_range(0..8);
            frame = &own;
        }
        if is_late && self.late.is_none() {
            self.late = Some(frame.to_vec());
            return 1;
        }
        pass(frame);
        if is_doubled {
            pass(frame);
        }
        if let Some(late) = self.late.take() {
            pass(&late);
        }
        u64::from(is_doubled) + u64::from(is_damaged) + u64::from(is_marked)
    }
}

/// Sets both bits of ECN (RFC 3168), which the ICRC does not cover.
fn mark_ecn(frame: &mut [u8]) {
    let Some((ethernet, packet)) = frame.split_at_mut_checked(roce::ETHERNET_BYTES) else {
        return;
    };
    match (&ethernet[12..], packet) {
        ([8, 0], packet) if packet.len() >= IPV4_BYTES => {
            packet[1] |= 3;
            packet[10..12].fill(0);
            let checksum = roce::internet_checksum([&packet[..IPV4_BYTES]]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        ([0x86, 0xdd], [_, class, ..]) => *class |= 0x30,
        _ => {}
    }
}
