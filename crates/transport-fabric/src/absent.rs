//! Replaces `native` where libfabric's headers were missing at build time: starting a transport
//! returns the reason. These types have no values, so nothing else can be called.

use std::{convert::Infallible, time::Duration};

use transport::{
    Completion, EndpointId, PostError, ReadLease, Token, Transport, Waker, WriteLease,
};
use transport_tcp::{TcpLink, TcpSettings};

use crate::{discovery::Discovery, error::FabricError, role::Role, settings::FabricSettings};

/// Errors: always [`FabricError::NotBuilt`].
pub fn discover() -> Result<Discovery, FabricError> {
    Err(FabricError::NotBuilt)
}

/// The transport over libfabric, which this build does not have.
#[derive(Debug)]
pub struct FabricTransport(Infallible);

/// Makes offers for a transport.
#[derive(Clone, Debug)]
pub struct Offers(Infallible);

/// One end's part of a new link.
#[derive(Debug)]
pub struct Offer(Infallible);

/// The offers of both ends.
#[derive(Debug)]
pub struct FabricLink(Infallible);

impl FabricTransport {
    /// Errors: always [`FabricError::NotBuilt`].
    pub fn start(_: FabricSettings, _: TcpSettings) -> Result<Self, FabricError> {
        Err(FabricError::NotBuilt)
    }

    /// Returns the maker of offers for new links.
    pub fn offers(&self) -> Offers {
        match self.0 {}
    }

    /// Returns the names of the devices in use.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
}

impl Offers {
    /// Makes the offer for one new link.
    pub fn make(&self) -> Result<Offer, FabricError> {
        match self.0 {}
    }
}

impl Offer {
    /// Returns the bytes to be sent to the peer.
    pub fn bytes(&self) -> &[u8] {
        match self.0 {}
    }
}

impl FabricLink {
    /// Joins the offers of both ends.
    pub fn new(_: TcpLink, _: Role, ours: Offer, _: &[u8]) -> Result<Self, FabricError> {
        match ours.0 {}
    }
}

impl Transport for FabricTransport {
    type Link = FabricLink;

    fn now(&self) -> Duration {
        match self.0 {}
    }

    fn block_bytes_max(&self) -> u64 {
        match self.0 {}
    }

    fn open(&mut self, _: FabricLink) -> Result<EndpointId, PostError> {
        match self.0 {}
    }

    fn post_receive(&mut self, _: EndpointId, _: WriteLease, _: Token) -> Result<(), PostError> {
        match self.0 {}
    }

    fn post_send(
        &mut self,
        _: EndpointId,
        _: ReadLease,
        _: u32,
        _: Token,
    ) -> Result<(), PostError> {
        match self.0 {}
    }

    fn write_control(&mut self, _: EndpointId, _: &[u8]) -> Result<(), PostError> {
        match self.0 {}
    }

    fn close(&mut self, _: EndpointId) {
        match self.0 {}
    }

    fn poll(&mut self, _: &mut Vec<Completion>, _: Duration) {
        match self.0 {}
    }

    fn waker(&self) -> Waker {
        match self.0 {}
    }
}
