//! Long blocks that are copied out of the memory of the peer's process: by ordinary users only.

use std::time::{Duration, Instant};

use rustix::process::geteuid;
use testing::{run_as_ordinary_user, skipped};
use transport::{Cause, Completion, EndpointId, Region, Token, Transport};
use transport_shm::{ShmSettings, ShmTransport};

use crate::common::{PATIENCE, links, settings, start};

const BLOCK_BYTES: usize = 3_000_001;
const SENT: Token = Token(1);
const RECEIVED: Token = Token(2);

/// Two ends, of which one sends blocks to the other.
struct Two {
    sender: ShmTransport,
    to: EndpointId,
    receiver: ShmTransport,
    from: EndpointId,
}

impl Two {
    fn new(settings: [ShmSettings; 2]) -> Self {
        let (near, far) = links();
        let [mut sender, mut receiver] = settings.map(start);
        let (to, from) = (sender.open(near).unwrap(), receiver.open(far).unwrap());
        Self { sender, to, receiver, from }
    }

    /// Returns two ends that know whether they may read each other. `None`, and says so, if they may not.
    fn that_copy() -> Option<Self> {
        let mut two = Self::new([settings(), settings()]);
        two.settle();
        if two.refers() {
            return Some(two);
        }
        if !geteuid().is_root() {
            skipped("direct copies: this system does not let processes read each other's memory");
        }
        None
    }

    /// Lets them say to each other what they have to before the first block.
    fn settle(&mut self) {
        for _ in 0..10 {
            self.sender.poll(&mut Vec::new(), Duration::from_millis(2));
            self.receiver.poll(&mut Vec::new(), Duration::from_millis(2));
        }
    }

    fn post_receive(&mut self, bytes: usize) -> Region {
        let region = Region::zeroed(bytes);
        let into = region.write(0..bytes).unwrap();
        self.receiver.post_receive(self.from, into, RECEIVED).unwrap();
        region
    }

    fn post_send(&mut self, region: &Region) {
        let from = region.read(0..region.len()).unwrap();
        self.sender.post_send(self.to, from, 7, SENT).unwrap();
    }

    /// Returns whether a block that fits into the ring is sent only once the peer has copied it.
    fn refers(&mut self) -> bool {
        let region = Region::from_vec(vec![3; 100_000]);
        let received = self.post_receive(100_000);
        self.post_send(&region);
        let mut completions = Vec::new();
        self.sender.poll(&mut completions, Duration::from_millis(2));
        let refers = completions.is_empty();
        let completion = completion_of(&mut self.receiver);
        let (endpoint, token, immediate) = (self.from, RECEIVED, 7);
        let expected = Completion::Received { endpoint, token, bytes: 100_000, immediate };
        assert_eq!(completion, expected);
        assert_eq!(received.try_into_vec().unwrap(), region.read(0..100_000).unwrap()[..]);
        if refers {
            let sent = Completion::Sent { endpoint: self.to, token: SENT };
            assert_eq!(completion_of(&mut self.sender), sent);
        }
        refers
    }
}

/// Polls until something has completed.
fn completion_of(transport: &mut ShmTransport) -> Completion {
    let deadline = Instant::now() + PATIENCE;
    let mut completions = Vec::new();
    while completions.is_empty() {
        assert!(Instant::now() < deadline, "nothing completes");
        transport.poll(&mut completions, Duration::from_millis(20));
    }
    assert_eq!(completions.len(), 1, "{completions:?}");
    completions.remove(0)
}

#[test]
fn long_blocks_are_copied_and_short_ones_overtake_them() {
    let Some(mut two) = Two::that_copy() else { return };
    let long = Region::from_vec((0..BLOCK_BYTES).map(|at| (at % 251) as u8).collect());
    let (first, second) = (two.post_receive(BLOCK_BYTES), two.post_receive(10));
    two.post_send(&long);
    two.post_send(&Region::from_vec(vec![9; 10]));
    two.sender.write_control(two.to, b"word").unwrap();
    let deadline = Instant::now() + PATIENCE;
    let (mut lengths, mut words, mut completions) = (Vec::new(), 0, Vec::new());
    while lengths.len() < 2 {
        assert!(Instant::now() < deadline, "{lengths:?}");
        two.sender.poll(&mut Vec::new(), Duration::ZERO);
        two.receiver.poll(&mut completions, Duration::ZERO);
        for completion in completions.drain(..) {
            match completion {
                Completion::Received { bytes, .. } => lengths.push(bytes),
                Completion::Control { .. } => words += usize::from(lengths.len() < 2),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((lengths, words), (vec![10, BLOCK_BYTES as u64], 1));
    assert_eq!(second.try_into_vec().unwrap(), [9; 10]);
    assert_eq!(first.try_into_vec().unwrap(), long.read(0..BLOCK_BYTES).unwrap()[..]);
}

/// The memory is given back when the sender's link ends; what the receiver copies from then on does not count.
#[test]
fn a_block_whose_sender_has_gone_is_not_received() {
    for closes in [false, true] {
        let Some(mut two) = Two::that_copy() else { return };
        let region = Region::from_vec(vec![5; BLOCK_BYTES]);
        let into = two.post_receive(BLOCK_BYTES);
        two.post_send(&region);
        if closes {
            two.sender.close(two.to);
            let mut completions = Vec::new();
            while !completions.contains(&Completion::Closed { endpoint: two.to }) {
                two.sender.poll(&mut completions, Duration::from_millis(5));
            }
            let cancelled = Completion::Cancelled { endpoint: two.to, token: SENT };
            assert!(completions.contains(&cancelled), "{completions:?}");
        } else {
            drop(two.sender);
        }
        let mut memory = region.try_into_vec().expect("it was given back");
        memory.fill(6);
        let mut ends = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while ends.len() < 2 {
            assert!(Instant::now() < deadline, "{ends:?}");
            two.receiver.poll(&mut ends, Duration::from_millis(20));
        }
        let endpoint = two.from;
        let cause = if closes {
            Cause::ClosedByPeer
        } else {
            Cause::Lost("its process has ended, or has released the link".into())
        };
        let cancelled = Completion::Cancelled { endpoint, token: RECEIVED };
        assert_eq!(ends, [cancelled, Completion::Broken { endpoint, cause }]);
        drop(into);
    }
}

#[test]
fn an_end_that_wants_no_copies_neither_makes_any_nor_lets_its_memory_be_read() {
    for off in 0..2 {
        let mut both = [settings(), settings()];
        both[off] = settings().direct_copies(false);
        let mut two = Two::new(both);
        two.settle();
        assert!(!two.refers());
    }
}

/// Runs these tests, those of the contract and those with killed processes once more if this is root.
#[test]
fn copies_are_tested_as_an_ordinary_user() {
    if !geteuid().is_root() {
        return;
    }
    let filters = ["direct_copies::", "contract::direct::", "killed::"];
    let Some(said) = run_as_ordinary_user(&filters) else { return };
    for test in ["direct_copies::long_blocks_are_copied_and_short_ones_overtake_them", "killed::"] {
        assert!(said.text.contains(&format!("test {test}")), "{}", said.text);
    }
}
