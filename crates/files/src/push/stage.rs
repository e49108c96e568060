//! What a coordinator asks of whoever drives it.

use std::net::{IpAddr, SocketAddr};

use rdmc::{Error, Fabric, Waited};

use super::settings::{HostPlan, PushError, PushEvent};
use crate::{
    leftover::Leftover,
    messages::{Start, ToReceiver},
    ranges::Ranges,
};

/// Does what a coordinator wants done.
pub trait Stage {
    /// A connection of somebody who has not been let in.
    type Connection;
    /// A group that the root has joined.
    type Group;

    /// Takes over a host's connection, and says what is to come. Answers where the host is, and where it sees
    /// the root.
    fn welcome(
        &mut self,
        host: usize,
        connection: Self::Connection,
        plan: &HostPlan,
    ) -> Result<(IpAddr, IpAddr), Error>;
    /// Refuses a host.
    fn turn_away(&mut self, connection: Self::Connection, reason: &str);
    /// There is one host more, whose connection this is.
    fn add_host(&mut self, connection: &Self::Connection);
    /// Whether this is the connection to the host, and not one before it.
    fn is_current(&self, host: usize, connection: u64) -> bool;
    /// A connection has ended; false if it is not the one to this host any more.
    fn hang_up(&mut self, host: usize, connection: u64) -> bool;
    /// Hosts whose connections have not ended.
    fn connected(&self) -> Vec<usize>;
    /// Keeps a group that the root has joined, until it ends.
    fn stands(&mut self, number: u64, group: Self::Group);
    /// A group that the root has joined too late fails at all its members.
    fn let_go(&mut self, number: u64, group: Self::Group);
    /// A group has closed or failed by itself.
    fn ended(&mut self, number: u64);
    /// Says something to a host; a connection that is lost reports itself.
    fn tell(&mut self, host: usize, message: &ToReceiver);
    /// Hangs up on a host that was given up, once it has heard what it was told.
    fn leave(&mut self, host: usize);
    /// Expects a host anew: calls it again if it is one that listens.
    fn expect_again(&mut self, host: usize, start: u32);
    fn observe(&mut self, event: PushEvent);
    /// Compares with the source; answered by [`super::Coordinator::checked`].
    fn check(&mut self, host: usize, leftover: Leftover);
    /// Whether the source is what it was, as far as its attributes tell.
    fn check_source(&mut self) -> Result<(), PushError>;
    /// Starts to read the source; answered by [`super::Coordinator::digested`].
    fn digest(&mut self) -> Result<(), PushError>;
    /// The error for a source that was read twice and was not the same.
    fn reads_differently(&self) -> PushError;
    /// Starts the root's context over the one that was asked for, or the best of these.
    fn start_fabric(&mut self, common: &dyn Fn(&Fabric) -> bool) -> Result<Fabric, PushError>;
    /// Where the root's context listens.
    fn address(&self) -> SocketAddr;
    /// Names a group.
    fn group_number(&mut self) -> Result<u64, PushError>;
    /// Starts to join; answered by [`super::Coordinator::joined`].
    fn join(&mut self, start: &Start) -> Result<(), PushError>;
    /// Sends these parts of the source in a group that was joined, and closes it; answered by
    /// [`super::Coordinator::ended`].
    fn send(&mut self, group: u64, ranges: &Ranges) -> Result<(), PushError>;
    /// Whom the root has waited for in a group; nothing if it is not in it.
    fn waited(&mut self, group: u64) -> Vec<Waited>;
    /// Ends a group, if it was joined. Nothing more need be said of it.
    fn abort(&mut self, group: u64, reason: &str);
}
