//! Blocks in several messages: of any lengths, into memory of any lengths, through a member to another,
//! with several on their way.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use transport::{Arriving, Completion, EndpointId, Region, Token, Transport};
use transport_fabric::FabricTransport;

use crate::common::{Place, connect, start};

const PATIENCE: Duration = Duration::from_secs(60);

/// The memory of a block at the middle and at the last member, and its length.
#[derive(Clone, Copy, Debug)]
struct Block {
    middle: usize,
    last: usize,
    bytes: usize,
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let length = || prop_oneof![3 => 0..800_000_usize, 1 => 0..3_000_000_usize];
    let block = (length(), length(), 0..=100_usize).prop_map(|(middle, last, share)| {
        let shorter = middle.min(last);
        // Mostly a block is as long as its memory.
        let bytes = if share < 50 { shorter * share / 50 } else { shorter };
        Block { middle, last, bytes }
    });
    prop::collection::vec(block, 1..12)
}

fn contents(block: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (block as u8) << 4).collect()
}

/// Three members in a row; the middle sends on what arrives.
struct Row {
    members: [FabricTransport; 3],
    to_middle: EndpointId,
    from_first: EndpointId,
    to_last: EndpointId,
    from_middle: EndpointId,
    /// What each member has reported.
    seen: [Vec<Completion>; 3],
}

impl Row {
    fn start(place: &Place) -> Self {
        let [mut first, mut middle, mut last] = [0; 3].map(|_| start(place));
        let (to_middle, from_first) = connect(&mut first, &mut middle);
        let (to_last, from_middle) = connect(&mut middle, &mut last);
        let members = [first, middle, last];
        Self { members, to_middle, from_first, to_last, from_middle, seen: Default::default() }
    }

    fn poll(&mut self) {
        for (member, seen) in self.members.iter_mut().zip(&mut self.seen) {
            member.poll(seen, Duration::ZERO);
        }
    }

    /// Polls all until a member has reported this.
    fn wait(&mut self, member: usize, is_it: impl Fn(&Completion) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !self.seen[member].iter().any(&is_it) {
            assert!(Instant::now() < until, "{:?}", self.seen);
            self.poll();
        }
    }

    /// Posts all receives, and waits until their sources know of them.
    fn receive(&mut self, blocks: &[Block]) -> Vec<(Region, Arriving, Region)> {
        let mut posted = Vec::new();
        for (token, block) in (0..).map(Token).zip(blocks) {
            let (through, into) = (Region::zeroed(block.middle), Region::zeroed(block.last));
            let mut lease = through.write(0..block.middle).unwrap();
            let arriving = lease.arriving();
            self.members[1].post_receive(self.from_first, lease, token).unwrap();
            let lease = into.write(0..block.last).unwrap();
            self.members[2].post_receive(self.from_middle, lease, token).unwrap();
            posted.push((through, arriving, into));
        }
        self.members[1].write_control(self.from_first, b"go").unwrap();
        self.members[2].write_control(self.from_middle, b"go").unwrap();
        for member in [0, 1] {
            self.wait(member, |it| matches!(it, Completion::Control { .. }));
        }
        posted
    }
}

fn begins(block: usize) -> impl Fn(&Completion) -> bool {
    let wanted = Token(block as u64);
    move |it| match it {
        Completion::Arriving { token, .. } | Completion::Received { token, .. } => *token == wanted,
        _ => false,
    }
}

fn pass_through(row: &mut Row, blocks: &[Block]) {
    row.seen = Default::default();
    let posted = row.receive(blocks);
    for (number, block) in blocks.iter().enumerate() {
        let source = Region::from_vec(contents(number, block.bytes));
        let lease = source.read(0..block.bytes).unwrap();
        let immediate = number as u32;
        row.members[0].post_send(row.to_middle, lease, immediate, Token(number as u64)).unwrap();
    }
    for (number, block) in blocks.iter().enumerate() {
        row.wait(1, begins(number));
        let read = posted[number].1.read(block.bytes).unwrap();
        assert_eq!(read.arrived(), &contents(number, block.bytes)[..read.arrived().len()]);
        let sends = row.members[1].cut_through().unwrap();
        let token = Token(1_000 + number as u64);
        sends.post_cut_through_send(row.to_last, read, number as u32, token).unwrap();
    }
    for (number, block) in blocks.iter().enumerate() {
        for (member, endpoint) in [(1, row.from_first), (2, row.from_middle)] {
            let (bytes, immediate) = (block.bytes as u64, number as u32);
            let token = Token(number as u64);
            let whole = Completion::Received { endpoint, token, bytes, immediate };
            row.wait(member, |it| *it == whole);
        }
        let (endpoint, token) = (row.to_last, Token(1_000 + number as u64));
        row.wait(1, |it| *it == Completion::Sent { endpoint, token });
        let (endpoint, token) = (row.to_middle, Token(number as u64));
        row.wait(0, |it| *it == Completion::Sent { endpoint, token });
        let (through, arriving, into) = &posted[number];
        assert_eq!(arriving.read(block.middle).unwrap().arrived().len(), block.bytes);
        for memory in [through, into] {
            let read = memory.read(0..block.bytes).unwrap();
            assert!(read[..] == contents(number, block.bytes)[..], "{block:?}");
        }
    }
    let is_end =
        |it: &&Completion| !matches!(it, Completion::Arriving { .. } | Completion::Control { .. });
    let ends = row.seen.each_ref().map(|seen| seen.iter().filter(is_end).count());
    assert_eq!(ends, [blocks.len(), 2 * blocks.len(), blocks.len()]);
    posted.into_iter().for_each(|(through, arriving, into)| {
        drop(arriving);
        assert!(through.try_into_vec().is_ok() && into.try_into_vec().is_ok(), "a lease is out");
    });
}

/// Many cases over the same links.
fn check(place: &Place) {
    let row = std::cell::RefCell::new(Row::start(place));
    let config = ProptestConfig { cases: 40, max_shrink_iters: 0, ..ProptestConfig::default() };
    proptest!(config, |(blocks in blocks())| pass_through(&mut row.borrow_mut(), &blocks));
}

#[test]
fn blocks_of_any_lengths_pass_through_a_member() {
    check(&Place::here("tcp"));
}

#[test]
fn blocks_of_any_lengths_pass_through_a_member_by_copies_and_rails() {
    let devices = vec!["lo".into(); 2];
    check(&Place { devices, always_copies: true, ..Place::here("tcp") });
}

/// Where a block is one operation of the adapter, or stands for one.
#[test]
fn other_providers_keep_blocks_whole() {
    assert!(start(&Place::here("sockets")).cut_through().is_none());
    assert!(start(&Place::here("shm")).cut_through().is_none());
    assert_eq!(start(&Place::here("tcp")).cut_through().unwrap().block_bytes_min(), (64 << 10) + 1);
}
