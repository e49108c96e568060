//! What the provider is given of what was posted.

use std::time::{Duration, Instant};

use transport::{Completion, EndpointId, Region, Token, Transport};
use transport_fabric::FabricTransport;

use crate::common::{Place, connect, start};

const PATIENCE: Duration = Duration::from_secs(20);

/// Posts receives for this many blocks of this length, and returns once the sender knows of all of them.
fn announce(
    receiver: &mut FabricTransport,
    to_sender: EndpointId,
    sender: &mut FabricTransport,
    to_receiver: EndpointId,
    blocks: usize,
    block_bytes: usize,
) -> Region {
    let into = Region::zeroed(blocks * block_bytes);
    for block in 0..blocks {
        let range = block * block_bytes..(block + 1) * block_bytes;
        receiver.post_receive(to_sender, into.write(range).unwrap(), Token(block as u64)).unwrap();
        receiver.write_control(to_sender, b"credit").unwrap();
    }
    let (deadline, mut completions) = (Instant::now() + PATIENCE, Vec::new());
    while completions.len() < blocks {
        assert!(Instant::now() < deadline, "no credits came");
        receiver.poll(&mut Vec::new(), Duration::ZERO);
        sender.poll(&mut completions, Duration::from_millis(1));
    }
    let is_credit = |done: &Completion| matches!(done, Completion::Control { endpoint, .. } if *endpoint == to_receiver);
    assert!(completions.iter().all(is_credit), "{completions:?}");
    into
}

/// Returns how many of this many sends a close takes back, if no send has completed before.
fn taken_back(place: &Place, blocks: usize, block_bytes: usize) -> usize {
    let (mut sender, mut receiver) = (start(place), start(place));
    let (to_receiver, to_sender) = connect(&mut sender, &mut receiver);
    let into = announce(&mut receiver, to_sender, &mut sender, to_receiver, blocks, block_bytes);
    let from = Region::zeroed(block_bytes);
    for block in 0..blocks {
        let lease = from.read(0..block_bytes).unwrap();
        sender.post_send(to_receiver, lease, 0, Token(block as u64)).unwrap();
    }
    // Posts what can be posted, and reads no completions.
    sender.flush();
    sender.close(to_receiver);
    let mut completions = Vec::new();
    sender.poll(&mut completions, Duration::ZERO);
    let last: Vec<u64> = completions
        .iter()
        .filter_map(|done| match done {
            Completion::Cancelled { token, .. } => Some(token.0),
            _ => None,
        })
        .collect();
    let first = blocks - last.len();
    assert_eq!(last, (first as u64..blocks as u64).collect::<Vec<_>>(), "the last are taken back");
    drop((sender, receiver));
    assert!(from.try_into_vec().is_ok() && into.try_into_vec().is_ok(), "a lease is still out");
    last.len()
}

#[test]
fn a_close_takes_back_all_but_what_keeps_a_link_busy() {
    let place = Place::here("tcp");
    assert_eq!(taken_back(&place, 40, 1_000), 0, "short sends are posted by their bytes");
    assert_eq!(taken_back(&place, 40, 32 << 10), 40 - 8);
    assert_eq!(taken_back(&place, 12, 200_000), 12 - 4, "long ones are posted by their number");
    let rails = Place { devices: vec!["lo".into(); 2], ..Place::here("tcp") };
    assert_eq!(taken_back(&rails, 40, 32 << 10), 40 - 2 * 8);
    assert_eq!(taken_back(&rails, 12, 200_000), 12 - 2 * 4);
}
