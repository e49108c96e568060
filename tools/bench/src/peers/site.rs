//! Where peers run.

use crate::member_processes::Host;

/// Where peers run.
#[derive(Clone, Debug)]
pub struct Site {
    /// One for each member, the root first.
    pub hosts: Vec<Host>,
    /// The network device that has their addresses.
    pub device: &'static str,
    /// Whether each host is a network namespace, not this machine.
    pub is_lab: bool,
}
