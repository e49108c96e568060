//! Installing groups in switches, as the library sees it.

use std::{fmt, net::IpAddr, time::Duration};

use crate::plan;

/// Installs groups in the switches between a sender and its members. Used from many threads at a time.
pub trait Switches: Send + Sync + fmt::Debug {
    /// Blocks until all switches on the path have installed the group, or `timeout` is over.
    ///
    /// The virtual address and Ethernet address are those of the first member, so that a switch's ARP
    /// replies for it are correct.
    ///
    /// Errors: the identifier is in use, a switch refuses, or does not answer in time. No switch has
    /// the group then.
    fn insert(
        &self,
        group: &plan::Group,
        timeout: Duration,
    ) -> Result<Box<dyn Inserted>, InsertError>;
}

/// Signs, at a member, that switches may copy a group's packets to it. Used from many threads at a time.
pub trait Delegates: Send + Sync + fmt::Debug {
    /// Signs the member's entry in this group; what `member` has as its delegation is not used. Does not block.
    ///
    /// Errors: this host cannot sign for the member's address; why, and the remedy.
    fn delegate(&self, proposal: &plan::Proposal, member: &plan::Member)
    -> Result<Vec<u8>, String>;
}

/// A group that is installed in switches. Dropping it removes the group, which may block for a bounded
/// time.
pub trait Inserted: Send {
    /// Why packets may not reach all members, if switches have reported that. Does not block.
    fn trouble(&self) -> Option<String>;

    /// Members that switches have suspected since the last call; each again while the cause lasts. Does not
    /// block.
    fn suspicions(&self) -> Vec<Suspicion>;
}

/// A member that may have failed, as far as a switch can tell. It may be slow: its host has to be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspicion {
    /// The member's address.
    pub member: IpAddr,
    /// Which switch, and what it has observed.
    pub reason: String,
}

/// Why switches do not install a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The sender has another group with this identifier: draw another.
    #[error("the identifier is in use")]
    Duplicate,
    /// In words: which switch, and what limit or step.
    #[error("{0}")]
    Refused(String),
}
