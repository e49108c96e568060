//! Contexts and the groups that they create, as plain data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Contexts that create groups with each other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CreationScenario {
    /// Random choices during the run.
    pub seed: u64,
    /// How long a message takes, without jitter.
    pub latency_ns: u64,
    /// The longest jitter of anything.
    pub jitter_ns: u64,
    /// The contexts.
    pub contexts: Vec<ContextPlan>,
    /// The groups, by number from 1.
    pub groups: Vec<GroupPlan>,
    /// When a shared connection is lost, if there is one.
    pub losses_ns: Vec<u64>,
    /// Which shared connections cannot be used at one of their ends, for a reason of its host: by the order in which they are
    /// made.
    pub unusable: Vec<u64>,
}

/// A context.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ContextPlan {
    /// When it starts to listen.
    pub start_ns: u64,
    /// When it ends unexpectedly.
    pub death: Option<DeathPlan>,
}

/// The end of a context, after which another one starts at its address.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeathPlan {
    /// When it ends.
    pub at_ns: u64,
    /// When the other one starts, after that.
    pub pause_ns: u64,
}

/// A group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupPlan {
    /// Its members' contexts, by rank.
    pub members: Vec<usize>,
    /// Who is a neighbour.
    pub linking: Linking,
    /// Whether links may be channels of shared connections.
    pub is_shared: bool,
    /// What each member does, by rank.
    pub seats: Vec<SeatPlan>,
}

/// Which members are neighbours.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Linking {
    /// Each and the next.
    Chain,
    /// Each and the next, also the last and the first.
    Ring,
    /// All members.
    All,
}

/// What a member of a group does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeatPlan {
    /// When it begins to create the group, at the earliest.
    pub start_ns: u64,
    /// Its first timeouts; later ones are long.
    pub patience_ns: Vec<u64>,
    /// In how many first attempts it has other settings than the others.
    pub differs: u32,
    /// Whether it leaves open what the root, rank 0, has chosen, and asks for it. Of no effect at the root.
    #[serde(default)]
    pub is_open: bool,
}

impl GroupPlan {
    /// Returns the neighbours of a member.
    pub fn neighbours(&self, rank: u32) -> Vec<u32> {
        let size = self.members.len() as u32;
        let is_next = |a: u32, b: u32| a.abs_diff(b) == 1;
        let is_around = |a: u32, b: u32| a.abs_diff(b) == size - 1;
        (0..size)
            .filter(|&other| match self.linking {
                _ if other == rank => false,
                Linking::Chain => is_next(rank, other),
                Linking::Ring => is_next(rank, other) || is_around(rank, other),
                Linking::All => true,
            })
            .collect()
    }
}

impl CreationScenario {
    /// Errors: what cannot be run.
    pub fn check(&self) -> Result<(), String> {
        for (index, group) in self.groups.iter().enumerate() {
            let mut members = group.members.clone();
            members.sort_unstable();
            members.dedup();
            let known = members.iter().all(|&context| context < self.contexts.len());
            let complete = members.len() == group.members.len() && !members.is_empty();
            if !known || !complete || group.seats.len() != group.members.len() {
                return Err(format!("group {} has no such members", index + 1));
            }
        }
        Ok(())
    }
}

impl fmt::Display for CreationScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, latency_ns, jitter_ns, contexts, groups, losses_ns, unusable } = self;
        writeln!(f, "seed {seed}, latency {latency_ns} ns, jitter {jitter_ns} ns")?;
        writeln!(f, "losses at {losses_ns:?} ns, unusable connections {unusable:?}")?;
        for (index, context) in contexts.iter().enumerate() {
            writeln!(f, "context {index}: {context:?}")?;
        }
        for (index, group) in groups.iter().enumerate() {
            let GroupPlan { members, linking, is_shared, seats } = group;
            let number = index + 1;
            writeln!(f, "group {number}: contexts {members:?}, {linking:?}, shared: {is_shared}")?;
            for (rank, seat) in seats.iter().enumerate() {
                writeln!(f, "  member {rank}: {seat:?}")?;
            }
        }
        Ok(())
    }
}
