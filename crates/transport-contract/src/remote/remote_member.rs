//! What differs between transports whose members are processes.

use std::path::PathBuf;

use transport::{EndpointId, Transport};

/// The transport of a member's process, and how two of them are connected. What it panics at fails the test.
pub trait RemoteMember: Sized {
    /// The transport under test.
    type Transport: Transport;

    /// Starts a transport, as the bytes say that [`super::Remote::start`] was given.
    fn start(how: &[u8]) -> Self;

    /// Returns the transport.
    fn transport(&mut self) -> &mut Self::Transport;

    /// Gets ready for a connection, and returns an offer for the other end.
    fn listen(&mut self) -> Vec<u8>;

    /// Connects to the end that has made the offer. Returns the endpoint, and an answer for that end.
    fn dial(&mut self, offer: &[u8]) -> (EndpointId, Vec<u8>);

    /// Makes an endpoint of the connection that the end with this answer has made.
    fn accept(&mut self, answer: &[u8]) -> EndpointId;

    /// Removes what a process of this number has left on the system, and returns what it was.
    fn clean_up(_pid: u32) -> Vec<PathBuf> {
        Vec::new()
    }
}
