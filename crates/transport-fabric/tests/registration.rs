//! Registration of memory ahead of posts.

use std::{fs::File, sync::mpsc, thread, time::Duration};

use transport::{Completion, EndpointId, Region, Token, Transport};
use transport_fabric::FabricTransport;

use crate::common::{Place, connect, start};

/// Blocks pass through copies, which are registered whatever the provider needs.
fn registering() -> FabricTransport {
    start(&Place { always_copies: true, ..Place::here("tcp") })
}

fn pieces(region: &Region) -> usize {
    region.memory().0.attachments().len()
}

/// A sender and a receiver, connected.
struct Pair {
    sender: FabricTransport,
    receiver: FabricTransport,
    to_receiver: EndpointId,
    to_sender: EndpointId,
}

impl Pair {
    fn new() -> Self {
        let (mut sender, mut receiver) = (registering(), registering());
        let (to_receiver, to_sender) = connect(&mut sender, &mut receiver);
        Self { sender, receiver, to_receiver, to_sender }
    }

    /// Sends a block of 1000 bytes.
    fn exchange(&mut self, from: &Region, into: &Region) {
        let into = into.write(0..1000).unwrap();
        self.receiver.post_receive(self.to_sender, into, Token(1)).unwrap();
        self.receiver.write_control(self.to_sender, b"posted").unwrap();
        let is_word = |done: &Completion| matches!(done, Completion::Control { .. });
        poll_until(&mut self.sender, &mut self.receiver, is_word);
        self.sender.post_send(self.to_receiver, from.read(0..1000).unwrap(), 0, Token(2)).unwrap();
        let is_block = |done: &Completion| matches!(done, Completion::Received { bytes: 1000, .. });
        poll_until(&mut self.receiver, &mut self.sender, is_block);
    }
}

/// Polls until the first of them reports this.
fn poll_until(
    transport: &mut FabricTransport,
    other: &mut FabricTransport,
    is_it: impl Fn(&Completion) -> bool,
) {
    let mut completions = Vec::new();
    while !completions.iter().any(&is_it) {
        let broken = |done: &Completion| matches!(done, Completion::Broken { .. });
        assert!(!completions.iter().any(broken), "{completions:?}");
        transport.poll(&mut completions, Duration::from_millis(1));
        other.poll(&mut Vec::new(), Duration::ZERO);
    }
}

#[test]
fn registered_memory_stays_registered_and_is_used() {
    let mut pair = Pair::new();
    let (from, into) = (Region::from_vec(vec![7; 1000]), Region::allocate(1000).unwrap());
    assert_eq!((pieces(&from), pieces(&into)), (0, 0));
    pair.sender.register(&from.slice(100..300).unwrap()).unwrap();
    pair.receiver.register(&into).unwrap();
    pair.receiver.register(&into).unwrap();
    assert_eq!((pieces(&from), pieces(&into)), (1, 1), "again changes nothing");
    pair.exchange(&from, &into);
    assert_eq!((pieces(&from), pieces(&into)), (1, 1), "nothing was registered for the block");
    assert_eq!(into.read(0..1000).unwrap()[..], [7; 1000]);
}

/// What is registered is found without the lock of the region, which another transport may hold while it
/// registers a piece.
#[test]
fn posts_of_memory_that_was_used_before_take_no_lock() {
    let (from, into) = (Region::from_vec(vec![7; 1000]), Region::allocate(1000).unwrap());
    let mut pair = Pair::new();
    pair.exchange(&from, &into);
    let (there, back) = mpsc::channel();
    let locked = [from.clone(), into.clone()];
    let (memories, _): (Vec<_>, Vec<_>) = locked.iter().map(Region::memory).unzip();
    let guards: Vec<_> = memories.iter().map(|memory| memory.attachments()).collect();
    let exchange = thread::spawn(move || {
        pair.exchange(&from, &into);
        there.send(()).unwrap();
        pair
    });
    let outcome = back.recv_timeout(Duration::from_secs(20));
    drop(guards);
    drop(exchange.join().unwrap());
    assert!(outcome.is_ok(), "a post waited for the lock");
}

#[test]
fn files_and_empty_regions_need_no_registration() {
    let mut transport = registering();
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    transport.register(&Region::from_file(&file, 3).unwrap()).unwrap();
    transport.register(&Region::from_vec(Vec::new())).unwrap();
}
