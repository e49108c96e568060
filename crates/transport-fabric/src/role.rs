//! Which end of a link does what.

/// Which end of a link connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// This one.
    Connect,
    /// The other one.
    Accept,
}
