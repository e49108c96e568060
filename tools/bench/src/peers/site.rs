//! Where peers run, and what is sent there.

use lab::Link;

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
    /// The links, if they are shaped.
    pub link: Option<Link>,
}

/// What is sent in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub bytes: u64,
    /// How many transfers one after another.
    pub repeats: u32,
}
