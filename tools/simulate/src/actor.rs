//! What runs at a member on top of its engine.

use engine::{Engine, Event};
use transport_sim::SimNet;

use crate::{book::Book, node::Node};

/// A member's engine over the simulated network.
pub type MemberEngine = Engine<Node>;

/// What an actor may use while it is called.
pub struct Here<'a> {
    /// Its member's engine.
    pub engine: &'a mut MemberEngine,
    /// Virtual time.
    pub now_ns: u64,
    /// Where facts and violations go.
    pub book: &'a mut Book,
    /// For remarks in the trace.
    pub network: &'a SimNet,
}

/// What the scenario does to an actor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Give the group up now.
    Abort,
    /// Refuse what comes next.
    Refuse,
    /// Give no memory any more.
    FallSilent,
}

/// Something that takes part in one group at one member: the application, or what stands in its
/// place. It is called by the driver alone, never while its member stands still or after it has
/// died, and reports what is wrong to [`Book::violated`].
pub trait Actor {
    /// An event of its group.
    fn event(&mut self, event: Event, here: &mut Here<'_>);

    /// When it wants to be called by itself, in virtual time.
    fn next_wake_ns(&self) -> Option<u64>;

    /// That time has come.
    fn wake(&mut self, here: &mut Here<'_>);

    /// The scenario wants something of it.
    fn obey(&mut self, order: Order, here: &mut Here<'_>);

    /// Whether nothing more will come.
    fn has_ended(&self) -> bool;

    /// Its member's engine is gone, and everything with it: the last look at all memory.
    fn finish(&mut self, book: &mut Book);
}
