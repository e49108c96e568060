//! Planted bugs: each imitates a mistake in the library, and the checks must detect it. They sit
//! between a member's engine and its network.

use clap::ValueEnum;
use transport::{ArrivingRead, Completion, EndpointId, ReadLease};

use crate::{
    dice::Dice,
    node::{Bug, lease_of},
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 3;

// The first byte of control words, as in crates/engine/src/words.rs.
const GRANT: u8 = 2;
const FAILED: u8 = 3;
const CLOSING: u8 = 4;
const DELIVERED: u8 = 5;
const MOVING: u8 = 10;
const HELD: u8 = 11;
const COUNTED: u8 = 12;
const HAS: u8 = 15;
const DIGEST: u8 = 16;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Canary {
    /// A completion is reported twice.
    CompletesTwice,
    /// A completion is never reported.
    LosesCompletion,
    /// A block's bytes arrive one byte further on than they should.
    MisplacesBlock,
    /// A neighbour is granted one receive more than is posted.
    GrantsTooMuch,
    /// Neighbours are not notified of a failure.
    DropsNotice,
    /// The notice of a failure names another member.
    BlamesAnother,
    /// The end of a connection is never reported.
    MissesEnds,
    /// Members of this one's subtree count as having all messages before they do.
    ClosesEarly,
    /// Memory is returned while it is still leased.
    KeepsMemory,
    /// Deadlines are not kept.
    MissesDeadlines,
    /// Members report one message more than is in place.
    CountsTooMuch,
    /// Members report one message less than is in place after a failure.
    CountsTooLittle,
    /// Bytes of a block are sent on that have not arrived.
    SendsTooSoon,
    /// Neighbours are not told of progress, as if checks for stalls were put off for ever.
    HidesProgress,
    /// Memory that is in use is not noticed.
    IgnoresMemoryInUse,
    /// Members say, while the group runs, that they have one message more than they do.
    ReportsTooMuch,
    /// Members never say, while the group runs, how many messages they have.
    LosesReports,
    /// The root's digests are not passed on.
    LosesDigests,
    /// Members get another digest than the root's.
    ChangesDigests,
}

/// A canary at one member.
#[derive(Debug)]
pub struct Planted {
    canary: Canary,
    members: u32,
    dice: Dice,
    kept: Vec<ReadLease>,
    /// Words that no member has written.
    forged: Vec<Completion>,
}

impl Planted {
    /// Makes the bug for a member of a group of `members`.
    pub fn new(canary: Canary, members: u32, seed: u64, member: u32) -> Self {
        let dice = Dice::new(seed ^ u64::from(member) << 48, PURPOSE);
        Self { canary, members, dice, kept: Vec::new(), forged: Vec::new() }
    }

    /// Returns `true` in one case of twenty.
    fn fires(&mut self) -> bool {
        self.dice.percent(5)
    }
}

impl Bug for Planted {
    fn send(&mut self, from: ReadLease) -> ReadLease {
        let applies = matches!(self.canary, Canary::MisplacesBlock | Canary::KeepsMemory);
        if !applies || from.bytes() < 2 || !self.fires() {
            return from;
        }
        let mut bytes = from.to_vec();
        if self.canary == Canary::MisplacesBlock {
            bytes.rotate_right(1);
        } else {
            self.kept.push(from);
        }
        lease_of(bytes)
    }

    fn cut_through(&mut self, from: &ArrivingRead) -> Option<ReadLease> {
        if self.canary != Canary::SendsTooSoon || from.arrived().len() == from.bytes() {
            return None;
        }
        let mut bytes = from.arrived().to_vec();
        bytes.resize(from.bytes(), 0);
        Some(lease_of(bytes))
    }

    fn word(&mut self, endpoint: EndpointId, word: &[u8]) -> Option<Vec<u8>> {
        let mut word = word.to_vec();
        match (self.canary, word[0]) {
            (Canary::GrantsTooMuch, GRANT) if self.fires() => word[1] += 1,
            (Canary::DropsNotice, FAILED)
            | (Canary::HidesProgress, MOVING | HELD)
            | (Canary::LosesReports, HAS)
            | (Canary::LosesDigests, DIGEST) => return None,
            (Canary::ChangesDigests, DIGEST) if self.fires() => word[20] ^= 1,
            (Canary::ReportsTooMuch, HAS) => change_count(&mut word[1..], 1),
            (Canary::CountsTooMuch, GRANT) => change_count(&mut word[5..], 1),
            (Canary::CountsTooMuch, COUNTED) => change_count(&mut word[1..], 1),
            (Canary::CountsTooLittle, COUNTED) => change_count(&mut word[1..], -1),
            (Canary::BlamesAnother, FAILED) => {
                let member = u32::from_le_bytes([word[2], word[3], word[4], word[5]]);
                word[2..6].copy_from_slice(&(member.wrapping_add(1) % self.members).to_le_bytes());
            }
            (Canary::ClosesEarly, CLOSING) => {
                self.forged.push(Completion::Control { endpoint, word: vec![DELIVERED] });
            }
            _ => {}
        }
        Some(word)
    }

    fn completion(&mut self, completion: Completion) -> Vec<Completion> {
        let mut reported = std::mem::take(&mut self.forged);
        match (self.canary, &completion) {
            (Canary::CompletesTwice, Completion::Sent { .. } | Completion::Received { .. })
                if self.fires() =>
            {
                reported.push(completion.clone());
            }
            (Canary::LosesCompletion, Completion::Sent { .. } | Completion::Cancelled { .. })
                if self.fires() =>
            {
                return reported;
            }
            (Canary::MissesEnds, Completion::Broken { .. }) => return reported,
            // The real one would be out of turn.
            (Canary::ClosesEarly, Completion::Control { word, .. }) if word[0] == DELIVERED => {
                return reported;
            }
            _ => {}
        }
        reported.push(completion);
        reported
    }
}

/// Changes the count at the end of a word.
fn change_count(bytes: &mut [u8], by: i64) {
    let bytes: &mut [u8; 8] = bytes.try_into().expect("a count has 8 bytes");
    *bytes = u64::from_le_bytes(*bytes).saturating_add_signed(by).to_le_bytes();
}
