//! The TCP transport without sockets and clock: two ends of [`transport_tcp::Connections`] over streams of bytes that are cut
//! anywhere, delayed, lost and altered.
//!
//! [`line`] is one direction of a stream, and [`pipe`] an end of it; [`application`] is what uses a channel at one end, [`end`] a
//! transport with its applications, whose streams [`threads`] serve; [`facts`] is what they record; [`world`] advances time and injects faults.

mod application;
mod canary;
mod counts;
mod draw;
mod due;
mod end;
mod facts;
mod fault;
mod line;
mod pipe;
mod scenario;
mod shrink;
mod threads;
mod world;

use std::ops::RangeInclusive;

pub use canary::WireCanary;
pub use counts::WireCounts;
pub use scenario::WireScenario;

use crate::subject::{Limits, Options, OutcomeOf, Smaller, Subject};

impl Subject for WireScenario {
    const OPTION: &'static str = " --wire";
    const OF: &'static str = " of the wire";
    /// Two ends.
    const MEMBERS: Option<RangeInclusive<u32>> = None;

    type Canary = WireCanary;
    type Counts = WireCounts;
    type End = ();

    fn draw(seed: u64, _: &Limits) -> Self {
        draw::draw(seed)
    }

    fn check(&self) -> Result<(), String> {
        self.check()
    }

    fn run(&self, options: Options<WireCanary>) -> OutcomeOf<Self> {
        world::run(self, options)
    }

    fn reduce(&self, to: &mut Smaller<'_, Self>) {
        shrink::reduce(self, to);
    }
}
