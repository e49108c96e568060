//! The recorded facts of a run, which the checkers judge.

use rdmc::Failure;

use crate::scenario::{Fault, GroupPlan, Scenario};

/// All facts of one run.
#[derive(Debug)]
pub struct Book {
    /// By index of the group.
    pub groups: Vec<GroupBook>,
    /// What was done to members, in the order of time.
    pub faults: Vec<Done>,
    /// What must not have happened. The first ends the run.
    pub violations: Vec<String>,
}

/// One group.
#[derive(Debug)]
pub struct GroupBook {
    /// Rank of the root.
    pub root: usize,
    /// Lengths of the messages that the root has given.
    pub sent: Vec<usize>,
    /// By rank.
    pub members: Vec<MemberBook>,
}

/// One group at one member.
#[derive(Clone, Default, Debug)]
pub struct MemberBook {
    /// How many messages were announced to the application.
    pub incoming: u64,
    /// How many are whole here.
    pub received: u64,
    /// How many this member is done with.
    pub completed: u64,
    /// When its application gave the group up.
    pub aborted_ns: Option<u64>,
    /// How it ended, and when.
    pub end: Option<(u64, End)>,
}

/// How a group ends at a member.
#[derive(Clone, PartialEq, Debug)]
pub enum End {
    /// With success.
    Closed,
    /// With the first cause that this member learned of.
    Failed(Failure),
}

/// Faults that were injected.
#[derive(Clone, Debug)]
pub struct Done {
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: Fault,
}

impl Book {
    /// Nothing has happened.
    pub fn new(scenario: &Scenario) -> Self {
        let members = vec![MemberBook::default(); scenario.members.len()];
        let group = |plan: &GroupPlan| GroupBook {
            root: plan.root as usize,
            sent: Vec::new(),
            members: members.clone(),
        };
        Self {
            groups: scenario.groups.iter().map(group).collect(),
            faults: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// Something that must not happen has happened.
    pub fn violated(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Faults that were injected before a moment.
    pub fn faults_until(&self, at_ns: u64) -> impl Iterator<Item = &Done> {
        self.faults.iter().filter(move |fault| fault.at_ns <= at_ns)
    }
}

impl GroupBook {
    /// How many messages, from the first, are in place at every member, and the first member that has
    /// no more.
    pub fn in_place(&self) -> (u64, usize) {
        let count = |(rank, member): (usize, &MemberBook)| {
            (if rank == self.root { self.sent.len() as u64 } else { member.received }, rank)
        };
        self.members.iter().enumerate().map(count).min().unwrap_or_default()
    }
}
