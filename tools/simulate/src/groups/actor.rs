//! Code that runs at a member on top of its engine.

use engine::Event;
use transport_sim::SimNet;

use super::{book::Book, canary::Canary};
use crate::node::MemberEngine;

/// What an actor may use while it is called.
pub struct Here<'a> {
    /// Its member's engine.
    pub engine: &'a mut MemberEngine,
    /// The planted bug.
    pub canary: Option<Canary>,
    /// Virtual time.
    pub now_ns: u64,
    /// Where facts and violations go.
    pub book: &'a mut Book,
    /// For notes in the trace.
    pub network: &'a SimNet,
}

/// An order of the scenario to an actor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Abort the group now.
    Abort,
    /// Refuse the next message.
    Refuse,
    /// Provide no memory any more.
    FallSilent,
}

/// A participant in one group at one member: the application, or what replaces it. Only the driver
/// calls it, never while its member is stopped or after it has died. It reports errors to
/// [`Book::violated`].
pub trait Actor {
    /// Processes an event of its group.
    fn event(&mut self, event: Event, here: &mut Here<'_>);

    /// Returns when [`Actor::wake`] is to be called, in virtual time.
    fn next_wake_ns(&self) -> Option<u64>;

    /// Called at [`Actor::next_wake_ns`].
    fn wake(&mut self, here: &mut Here<'_>);

    /// Executes an order of the scenario.
    fn obey(&mut self, order: Order, here: &mut Here<'_>);

    /// Called now and then when it has got all events so far.
    fn look_around(&mut self, here: &mut Here<'_>);

    /// Returns whether it has got its last event.
    fn has_ended(&self) -> bool;

    /// Checks all memory, after its member's engine and its memory references were dropped.
    fn finish(&mut self, book: &mut Book);
}
