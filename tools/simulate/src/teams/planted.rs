//! The effects of planted bugs between a member and its network.

use collective::HEADER_BYTES;
use transport::{Completion, EndpointId, ReadLease};

use super::{canary::TeamCanary, scenario::TeamScenario};
use crate::{
    dice::Dice,
    node::{Bug, lease_of},
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 22;

// The first byte of control words, as in crates/team/src/words.rs.
const FREED: u8 = 2;
const WAITS: u8 = 3;
const FAILED: u8 = 5;
const BYE: u8 = 6;
const GRANT: u8 = 9;

/// A canary at one member.
pub(super) struct Planted {
    canary: TeamCanary,
    members: u32,
    slot_bytes: u64,
    ring_bytes: u64,
    /// Contents of the last write or block.
    last: Vec<u8>,
    dice: Dice,
}

impl Planted {
    /// Makes the bug for a member.
    pub(super) fn new(canary: TeamCanary, scenario: &TeamScenario, rank: usize) -> Self {
        let slot_bytes = u64::from(scenario.slot_bytes);
        Self {
            canary,
            members: scenario.size(),
            slot_bytes,
            ring_bytes: slot_bytes * u64::from(scenario.slots),
            last: Vec::new(),
            dice: Dice::new(scenario.seed ^ (rank as u64) << 48, PURPOSE),
        }
    }

    /// Returns `true` in one case of twenty.
    fn fires(&mut self) -> bool {
        self.dice.percent(5)
    }

    /// Replaces a rank by another.
    fn rename(&self, rank: &mut [u8]) {
        let rank: &mut [u8; 4] = rank.try_into().expect("a rank has 4 bytes");
        *rank = (u32::from_le_bytes(*rank).wrapping_add(1) % self.members).to_le_bytes();
    }
}

impl Bug for Planted {
    fn send(&mut self, from: ReadLease) -> ReadLease {
        if self.canary != TeamCanary::SendsOldBlocks {
            return from;
        }
        let before = std::mem::replace(&mut self.last, from.to_vec());
        if before.len() != from.bytes() || !self.fires() {
            return from;
        }
        lease_of(before)
    }

    fn write(&mut self, from: ReadLease, offset: &mut u64) -> ReadLease {
        let canary = self.canary;
        match canary {
            TeamCanary::MisplacesWrite if self.ring_bytes > self.slot_bytes && self.fires() => {
                *offset = (*offset + self.slot_bytes) % self.ring_bytes;
                from
            }
            TeamCanary::SendsTooEarly => {
                let mut bytes = from.to_vec();
                let length = bytes.len().saturating_sub(HEADER_BYTES);
                let contents = bytes[..length].to_vec();
                let before = std::mem::replace(&mut self.last, contents);
                if before.len() != length || !self.fires() {
                    return from;
                }
                bytes[..length].copy_from_slice(&before);
                lease_of(bytes)
            }
            _ => from,
        }
    }

    fn word(&mut self, _endpoint: EndpointId, word: &[u8]) -> Option<Vec<u8>> {
        let mut word = word.to_vec();
        let canary = self.canary;
        match (canary, word[0]) {
            (TeamCanary::KeepsSlots, FREED) if self.fires() => return None,
            (TeamCanary::GrantsTooMany, GRANT) if self.fires() => {
                word[1] = word[1].wrapping_add(1);
            }
            (TeamCanary::ReusesSlots, FREED) if self.fires() => word[2] = word[2].wrapping_add(1),
            (TeamCanary::DropsNotice, FAILED)
            | (TeamCanary::ForgetsBye, BYE)
            | (TeamCanary::NeverAsks, WAITS) => return None,
            (TeamCanary::BlamesAnother, FAILED) => self.rename(&mut word[2..6]),
            (TeamCanary::AwaitsAnother, WAITS) => self.rename(&mut word[1..5]),
            _ => {}
        }
        Some(word)
    }

    fn completion(&mut self, completion: Completion) -> Vec<Completion> {
        let canary = self.canary;
        match (canary, &completion) {
            (TeamCanary::ReportsTwice, Completion::Written { .. })
            | (TeamCanary::CompletesTwice, Completion::Sent { .. })
                if self.fires() =>
            {
                vec![completion.clone(), completion]
            }
            (TeamCanary::LosesWrite, Completion::Written { .. })
            | (TeamCanary::LosesCompletion, Completion::Sent { .. })
                if self.fires() =>
            {
                Vec::new()
            }
            (TeamCanary::MissesEnds, Completion::Broken { .. }) => Vec::new(),
            _ => vec![completion],
        }
    }
}
