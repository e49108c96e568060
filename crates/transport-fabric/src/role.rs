//! The roles of a link's two ends.

/// Which end of a link connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// This end connects.
    Connect,
    /// The other end connects.
    Accept,
}
