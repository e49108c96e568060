//! Whole groups of real engines, pushes, teams, creations, copies and the TCP wire in virtual time, with everything that can go
//! wrong.
//!
//! Each is a [`Subject`]: a scenario of it is drawn from a seed, plain data of what there is and of the faults that are
//! injected. Equal scenarios give equal runs. [`Campaign`] runs many seeds, and [`shrink`] makes a scenario that fails smaller.
//! A planted bug ([`Subject::Canary`]) shows that the checks can fail.

#![forbid(unsafe_code)]

mod agenda;
mod campaign;
mod clock;
mod copies;
mod counts;
mod creations;
mod dice;
mod driver;
mod faults;
mod groups;
mod member_fault;
mod network;
mod node;
mod options;
mod panics;
mod push;
mod queue;
mod shrink;
mod smaller;
mod subject;
mod teams;
mod trace;
mod wires;

pub use campaign::Campaign;
pub use clock::Clock;
pub use copies::{
    CopyCanary, CopyCounts, CopyFault, CopyScenario, CopySessionPlan, PlannedCopyFault, Thing, What,
};
pub use counts::{Basics, Blame, Counts, End, Ends, Kinds, Most, Slowest, Sum, Tally};
pub use creations::{
    ContextPlan, CreationCanary, CreationCounts, CreationPlan, CreationScenario, DeathPlan,
    Linking, SeatPlan,
};
pub use faults::PlannedFault;
pub use groups::{
    Answer, ApplicationPlan, Canary, Fault, GroupCounts, GroupPlan, MemberPlan, Reported, Scenario,
    SendPlan, Told,
};
pub use member_fault::MemberFault;
pub use network::{NetworkPlan, SlowLink};
pub use options::Options;
pub use panics::caught;
pub use push::{
    HostFaults, HostScenario, ManyHosts, ManyReport, PushCanary, PushCounts, PushEnd, PushFault,
    PushScenario, SourceFaults, StreamPlan, Traffic,
};
pub use shrink::shrink;
pub use smaller::Smaller;
pub use subject::{Limits, Outcome, OutcomeOf, Subject, canary, name_of};
pub use teams::{
    CallKind, CallPlan, FoldPlan, FunctionPlan, OtherCall, TeamCanary, TeamCounts, TeamFault,
    TeamMemberPlan, TeamScenario,
};
pub use wires::{
    ChannelPlan, ConnectionPlan, FlowPlan, MessagePlan, PlannedWireFault, Protection, WireCanary,
    WireCounts, WireEndPlan, WireFault, WireNetworkPlan, WireScenario, WritePlan,
};
