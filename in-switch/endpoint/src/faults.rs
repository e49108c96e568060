//! Faults on purpose: what a bad network does to packets.

use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// Without options, as packets of RoCEv2 are.
const IPV4_BYTES: usize = 20;

/// How often what happens to a packet, in both directions: probabilities from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// It is lost.
    pub lost: f64,
    /// It comes twice.
    pub doubled: f64,
    /// It comes behind the next.
    pub late: f64,
    /// One of its bits is turned.
    pub damaged: f64,
    /// It met congestion: a queue on its way has marked it (ECN).
    pub marked: f64,
    /// The same seed injects the same faults.
    pub seed: u64,
}

/// Injects faults into packets; at first none.
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

    /// What becomes of a frame: `pass` gets what goes on. How many faults there were.
    pub(crate) fn apply(&mut self, frame: &[u8], mut pass: impl FnMut(&[u8])) -> u64 {
        let Faults { lost, doubled, late, damaged, marked, .. } = self.faults;
        let Some(random) = &mut self.random else {
            pass(frame);
            return 0;
        };
        let mut happens = |probability: f64| random.random_bool(probability);
        if happens(lost) {
            return 1;
        }
        let (is_doubled, is_late, is_damaged) = (happens(doubled), happens(late), happens(damaged));
        let mut own;
        let mut frame = frame;
        let mut marked_frame;
        // Not drawn where nobody asks for it: the same seed goes on to inject the same faults.
        let is_marked = marked > 0.0 && random.random_bool(marked);
        if is_marked {
            marked_frame = frame.to_vec();
            mark(&mut marked_frame);
            frame = &marked_frame;
        }
        if is_damaged && frame.len() > roce::ETHERNET_BYTES {
            own = frame.to_vec();
            // What is wrong in an Ethernet header reaches nobody.
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

/// Sets both bits of ECN, as a queue does (RFC 3168); the CRC leaves them out.
fn mark(frame: &mut [u8]) {
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
