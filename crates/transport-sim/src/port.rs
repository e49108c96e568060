//! A member's ports.

use std::collections::VecDeque;

/// A member's transmit or receive port.
#[derive(Default)]
pub(crate) struct Port {
    pub(crate) busy: bool,
    /// Slots of transfers that wait for it, in the order in which they were posted at this end.
    pub(crate) waiting: VecDeque<usize>,
    /// Whether the port is in the list of ports at which a transfer may start.
    pub(crate) freed: bool,
}

/// Which port of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Transmit,
    Receive,
}
