//! Whole groups of real engines, pushes, teams and the TCP wire in virtual time, with everything that can go wrong.
//!
//! A [`Scenario`] is drawn from a seed: plain data of the network, the members, the groups and
//! their applications, and of the faults that are injected at each step. [`run`] runs it over a
//! simulated network ([`transport_sim`]), one step after another, so that equal scenarios give
//! equal runs. Applications record events ([`Book`]) and check memory when it is returned;
//! [`checks`] judges the recorded facts alone.
//!
//! A [`Canary`] is a planted bug that shows that the checks can fail.

#![forbid(unsafe_code)]

mod actor;
mod application;
mod beside;
mod book;
mod campaign;
mod canary;
pub mod checks;
mod clock;
mod copies;
mod creations;
mod dice;
mod draw;
mod member_fault;
mod memory;
mod node;
mod options;
mod panics;
mod push;
mod report;
mod scenario;
mod shrink;
mod smaller;
mod subject;
mod tally;
mod teams;
mod wires;
mod world;

pub use actor::{Actor, Here, MemberEngine, Order};
pub use book::{Book, Done, End, GroupBook, MemberBook};
pub use campaign::Campaign;
pub use canary::Canary;
pub use clock::Clock;
pub use copies::{
    CopyCanary, CopyFault, CopyOutcome, CopyScenario, CopySessionPlan, CopyTally, PlannedCopyFault,
    Thing, What, draw_copies, run_copies,
};
pub use creations::{
    ContextPlan, CreationCanary, CreationOutcome, CreationScenario, CreationTally, DeathPlan,
    GroupPlan as CreationPlan, Linking, SeatPlan, draw_creations, run_creations,
};
pub use dice::Dice;
pub use draw::draw;
pub use member_fault::MemberFault;
pub use node::{Bug, Node, Watch};
pub use options::Options;
pub use panics::caught;
pub use push::{
    Fault as PushFault, HostFaults, HostScenario, InjectedPushFault, ManyHosts, ManyReport,
    PlannedFault as PlannedPushFault, PushCanary, PushEnd, PushOutcome, PushScenario, PushTally,
    SourceFaults, StreamPlan, Traffic, draw_push, run_push,
};
pub use report::Report;
pub use scenario::*;
pub use shrink::shrink;
pub use subject::{Copies, Creations, Groups, Pushes, Subject, Teams, Wires};
pub use tally::Tally;
pub use teams::{
    CallKind, CallPlan, FoldPlan, FunctionPlan, InjectedTeamFault, OtherCall, PlannedTeamFault,
    TeamBlame, TeamCanary, TeamEnd, TeamFault, TeamMemberPlan, TeamOutcome, TeamScenario,
    TeamTally, draw_team, run_team,
};
pub use wires::{
    ChannelPlan, ConnectionPlan, FlowPlan, MessagePlan, PlannedWireFault, Protection, WireCanary,
    WireEndPlan, WireFault, WireNetworkPlan, WireOutcome, WireScenario, WireTally, WritePlan,
    draw_wires, run_wires,
};
pub use world::run;
