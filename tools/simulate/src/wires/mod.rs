//! The TCP transport without sockets and clock: two ends of [`transport_tcp::Connections`] over streams of bytes that are cut
//! anywhere, delayed, lost and altered.
//!
//! A [`WireScenario`] is drawn from a seed. [`run_wires`] runs it. [`line`] is one direction of a stream, and [`pipe`] an end of it;
//! [`application`] is what uses a channel at one end, [`end`] a transport with its applications; [`facts`] is what they record;
//! [`world`] advances time and injects faults.

mod agenda;
mod application;
mod canary;
mod draw;
mod end;
mod facts;
mod fault;
mod line;
mod outcome;
mod pipe;
mod scenario;
mod shrink;
mod tally;
mod world;

pub use canary::WireCanary;
pub use draw::draw as draw_wires;
pub use fault::{PlannedWireFault, WireFault};
pub use outcome::WireOutcome;
pub use scenario::{
    ChannelPlan, ConnectionPlan, FlowPlan, MessagePlan, Protection, WireEndPlan, WireNetworkPlan,
    WireScenario, WritePlan,
};
pub use shrink::smaller_wires;
pub use tally::WireTally;
pub use world::run as run_wires;
