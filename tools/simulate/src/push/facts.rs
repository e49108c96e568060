//! The recorded facts of a push, which the checks judge.

use files::machines::Step;

use super::{
    counts::PushCounts,
    scenario::{Fault, PushScenario},
    traffic::Traffic,
};
use crate::faults::InjectedFault;

/// An injected fault.
pub(super) type Injected = InjectedFault<Fault>;

/// How one push has ended.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct PushEnd {
    /// The error, if it failed.
    pub error: Option<String>,
    /// The last step of each host of the scenario; `None` if it never connected to the root.
    pub steps: Vec<Option<Step>>,
    /// When each host's copy was published, since the push began.
    pub published_ns: Vec<Option<u64>>,
    /// When groups were started for the first time, since the push began.
    pub first_round_ns: Option<u64>,
    /// Messages on control connections, of the first push if they were counted.
    pub traffic: Traffic,
}

/// All facts of one run.
#[derive(Default, Debug)]
pub(super) struct Facts {
    pub(super) violations: Vec<String>,
    pub(super) faults: Vec<Injected>,
    pub(super) hosts: Vec<HostFacts>,
    pub(super) ends: Vec<PushEnd>,
    /// When groups were first started in the current push, since it began.
    pub(super) first_round_ns: Option<u64>,
    /// When hosts that the command names have connected for the first time in the current push, since it began; ascending.
    pub(super) connected_ns: Vec<u64>,
    /// How many pushes were started.
    pub(super) pushes: u32,
    pub(super) counts: PushCounts,
    /// Of the first push.
    pub(super) traffic: Traffic,
}

/// Facts of one host in the current push.
#[derive(Clone, Default, Debug)]
pub(super) struct HostFacts {
    /// Bytes that were received although they were in place.
    pub(super) bytes_again: u64,
    /// Whether it has connected to the root.
    pub(super) has_connected: bool,
    /// Whether its copy was published.
    pub(super) has_published: bool,
    /// Whether it has stored a verified copy.
    pub(super) has_stored: bool,
    /// When its copy was published, since the push began.
    pub(super) published_ns: Option<u64>,
    /// When the root learned that its copy is verified, since the push began.
    pub(super) verified_ns: Option<u64>,
}

impl Facts {
    pub(super) fn new(scenario: &PushScenario) -> Self {
        Self { hosts: vec![HostFacts::default(); scenario.hosts.len()], ..Self::default() }
    }

    pub(super) fn violated(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }
}
