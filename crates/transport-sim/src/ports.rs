//! Which block occupies which port.

use transport::{EndpointId, ReadLease, Token, WriteLease};

/// A block whose send and receive are both posted.
pub(crate) struct Transfer {
    pub(crate) source: usize,
    pub(crate) target: usize,
    /// The endpoint at the source.
    pub(crate) from: EndpointId,
    pub(crate) send: Option<Send>,
    pub(crate) receive: Option<Receive>,
    pub(crate) bytes: usize,
    pub(crate) immediate: u32,
    /// When its send was posted, among all sends.
    pub(crate) number: u64,
    /// When its receive was posted, among all receives.
    pub(crate) receive_number: u64,
    pub(crate) started: bool,
    /// The whole block has left its source.
    pub(crate) whole: bool,
    /// One of two has happened: the ports are free, or the block has arrived.
    pub(crate) half_finished: bool,
}

pub(crate) struct Send {
    pub(crate) lease: ReadLease,
    pub(crate) token: Token,
}

pub(crate) struct Receive {
    pub(crate) lease: WriteLease,
    pub(crate) token: Token,
    /// When it was posted, among all receives.
    pub(crate) number: u64,
}

/// One member's port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) bytes_per_second: u64,
    pub(crate) sending: bool,
    pub(crate) receiving: bool,
    /// Transfers that wait to leave from here, or to come here.
    pub(crate) waiting: Vec<usize>,
    /// Whether it is among those that choose at the end of this instant.
    pub(crate) choosing: bool,
}

impl Port {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            sending: false,
            receiving: false,
            waiting: Vec::new(),
            choosing: false,
        }
    }
}
