//! The recorded facts of a run, which the checks judge.

use rdmc::Failure;

use super::scenario::{Fault, GroupPlan, Scenario};
use crate::{counts::End, faults::InjectedFault};

/// All facts of one run.
#[derive(Debug)]
pub struct Book {
    /// Facts by index of the group.
    pub groups: Vec<GroupBook>,
    /// The injected faults, in the order of time.
    pub faults: Vec<InjectedFault<Fault>>,
    /// Violations. The first ends the run.
    pub violations: Vec<String>,
}

/// Facts of one group.
#[derive(Debug)]
pub struct GroupBook {
    /// Rank of the root.
    pub root: usize,
    /// Lengths of the messages that the root has sent.
    pub sent: Vec<usize>,
    /// Facts by rank of the member.
    pub members: Vec<MemberBook>,
}

/// Facts of one group at one member.
#[derive(Clone, Default, Debug)]
pub struct MemberBook {
    /// How many messages were announced to the application.
    pub incoming: u64,
    /// How many are whole here.
    pub received: u64,
    /// How many this member is done with.
    pub completed: u64,
    /// When its application aborted the group.
    pub aborted_ns: Option<u64>,
    /// When its application provided memory that was in use.
    pub in_use_ns: Option<u64>,
    /// How it ended, and when.
    pub end: Option<(u64, End<Failure>)>,
}

impl Book {
    /// Makes an empty book.
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

    /// Records a violation.
    pub fn violated(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Returns the faults that were injected until a moment.
    pub fn faults_until(&self, at_ns: u64) -> impl Iterator<Item = &InjectedFault<Fault>> {
        self.faults.iter().filter(move |fault| fault.at_ns <= at_ns)
    }
}

impl GroupBook {
    /// Returns how many messages, from the first, are in place at every member, and the first
    /// member that has no more.
    pub fn in_place(&self) -> (u64, usize) {
        let count = |(rank, member): (usize, &MemberBook)| {
            (if rank == self.root { self.sent.len() as u64 } else { member.received }, rank)
        };
        self.members.iter().enumerate().map(count).min().unwrap_or_default()
    }
}
