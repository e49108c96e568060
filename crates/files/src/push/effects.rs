//! The operations that a root's state machine requests.

use std::net::{IpAddr, SocketAddr};

use rdmc::{Error, Fabric, Region, Waited};

use super::settings::{HostPlan, PushError, PushEvent};
use crate::{
    changes::Changes,
    messages::{Start, ToReceiver},
    ranges::Ranges,
    resume::ChunkDigests,
};

/// Carries out what a root's state machine decides: with threads and connections, or in a simulation.
pub trait Effects {
    /// A connection that has not been accepted yet.
    type Connection;
    /// A group that the root has joined.
    type Group;

    /// Takes over a host's connection and sends the offer, and the listing of a tree unless that is to be relayed. Returns the
    /// address of the host, and the root's address as the host reached it.
    fn accept(
        &mut self,
        host: usize,
        connection: Self::Connection,
        plan: &HostPlan,
        relays_listing: bool,
    ) -> Result<(IpAddr, IpAddr), Error>;
    /// Refuses a connection.
    fn reject(&mut self, connection: Self::Connection, reason: &str);
    /// Adds a host that joined through this connection.
    fn add_host(&mut self, connection: &Self::Connection);
    /// Whether this is the current connection of the host and not an earlier one.
    fn is_current(&self, host: usize, connection: u64) -> bool;
    /// Releases a connection that has ended; false if it is not the current one.
    fn disconnect(&mut self, host: usize, connection: u64) -> bool;
    /// Hosts with a current connection.
    fn connected(&self) -> Vec<usize>;
    /// Keeps a group that the root has joined until it ends.
    fn add_group(&mut self, number: u64, group: Self::Group);
    /// Drops a group that was joined too late; it fails at all members.
    fn discard_group(&mut self, number: u64, group: Self::Group);
    /// Releases a group that has closed or failed.
    fn remove_group(&mut self, number: u64);
    /// Queues a message to a host; a lost connection reports itself as an event.
    fn send_message(&mut self, host: usize, message: &ToReceiver);
    /// Sends a host the listing of the tree, after all that could not be relayed to it.
    fn send_listing(&mut self, host: usize);
    /// Ends the connection of a host that was given up, once queued messages are sent.
    fn finish_connection(&mut self, host: usize);
    /// Expects a lost host again: connects anew to one that listens.
    fn expect_again(&mut self, host: usize, start: u32);
    fn observe(&mut self, event: PushEvent);
    /// What changes at a host, which has these ranges of the source, by what is known of the source.
    fn settle(&self, changes: Changes, has: &Ranges) -> Changes;
    /// Starts to compare with the source; completes with [`super::Event::Compared`].
    fn compare(&mut self, host: usize, digests: ChunkDigests);
    /// Errors: the source's attributes have changed.
    fn check_source(&mut self) -> Result<(), PushError>;
    /// Starts to read the source, of a tree the files with a byte in these ranges; completes with
    /// [`super::Event::Digest`].
    fn digest_source(&mut self, ranges: &Ranges) -> Result<(), PushError>;
    /// Starts to read the chunks in these ranges, in order, of a session whose hosts fetch; completes with some
    /// [`super::Event::Chunks`].
    fn digest_chunks(&mut self, ranges: &Ranges) -> Result<(), PushError>;
    /// Starts to look at every name of the source again; completes with [`super::Event::Looked`].
    fn look_at_source(&mut self) -> Result<(), PushError>;
    /// The error for a source of which two reads differ.
    fn source_differs(&self) -> PushError;
    /// Starts the root's context over the requested fabric, or the best one for which `common` is true.
    fn start_fabric(&mut self, common: &dyn Fn(&Fabric) -> bool) -> Result<Fabric, PushError>;
    /// Where the root's context listens.
    fn address(&self) -> SocketAddr;
    /// A new number for a group.
    fn group_number(&mut self) -> Result<u64, PushError>;
    /// Starts to join a group; completes with [`super::Event::Joined`].
    fn join(&mut self, start: &Start) -> Result<(), PushError>;
    /// Sends these ranges of the source in a joined group, or the listing of the tree if there are none, and closes it; completes
    /// with [`super::Event::Ended`].
    fn send_ranges(&mut self, group: u64, ranges: &Ranges) -> Result<(), PushError>;
    /// Lets the reader of a stream read once; completes with [`super::Event::Read`].
    fn read(&mut self);
    /// Sends a message of a stream in a joined group; one that has failed reports that by an event.
    fn send_region(&mut self, group: u64, region: &Region) -> Result<(), PushError>;
    /// Closes a joined group; completes with [`super::Event::Ended`].
    fn close(&mut self, group: u64);
    /// How long the root has waited for each member of a group; empty if it is not a member.
    fn waited(&mut self, group: u64) -> Vec<Waited>;
    /// Ends a group if it was joined; no event needs to follow.
    fn abort(&mut self, group: u64, reason: &str);
}
