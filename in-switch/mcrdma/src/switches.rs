//! Who puts groups into switches: what is above knows no more of it than this.

use std::{fmt, time::Duration};

use crate::plan;

/// Puts groups into the switches between a sender and its members. Used from many threads at a time.
pub trait Switches: Send + Sync + fmt::Debug {
    /// Blocks until all switches on the way know the group, or `timeout` is over.
    ///
    /// The virtual address is that of the first member, with its Ethernet address, so that what a
    /// switch says of it by ARP is true.
    ///
    /// Errors: the identifier is in use, a switch refuses, or does not answer in time. No switch
    /// knows the group then.
    fn insert(
        &self,
        group: &plan::Group,
        timeout: Duration,
    ) -> Result<Box<dyn Inserted>, InsertError>;
}

/// A group that switches know, until this is dropped: that takes it out of them, and may block for a
/// bounded time.
pub trait Inserted: Send {
    /// Why it no longer works, if switches have said so. Does not block.
    fn trouble(&self) -> Option<String>;
}

/// Why switches do not take a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// Another group of the sender's has this identifier: draw another.
    #[error("the identifier is in use")]
    Duplicate,
    /// In words: which switch, and what limit or step.
    #[error("{0}")]
    Refused(String),
}
