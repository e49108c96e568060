//! In place of the transport where libfabric's headers were missing at build time: it can be named,
//! and starting it says why there is none.

use std::time::Duration;

use transport::{
    Completion, EndpointId, PostError, ReadLease, Token, Transport, Waker, WriteLease,
};
use transport_tcp::TcpConfig;

use crate::{FabricError, FabricLink, FabricSettings, Offers};

/// The transport over libfabric, which this build does not have.
#[derive(Debug)]
pub enum FabricTransport {}

impl FabricTransport {
    /// Errors: always [`FabricError::NotBuilt`].
    pub fn start(_: FabricSettings, _: TcpConfig) -> Result<Self, FabricError> {
        Err(FabricError::NotBuilt)
    }

    /// What makes offers for new links.
    pub fn offers(&self) -> Offers {
        match *self {}
    }

    /// The names of the devices in use.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
}

// There is no value of this type, so none of these is ever called.
impl Transport for FabricTransport {
    type Link = FabricLink;

    fn now(&self) -> Duration {
        match *self {}
    }

    fn block_bytes_max(&self) -> u64 {
        match *self {}
    }

    fn open(&mut self, _: FabricLink) -> Result<EndpointId, PostError> {
        match *self {}
    }

    fn post_receive(&mut self, _: EndpointId, _: WriteLease, _: Token) -> Result<(), PostError> {
        match *self {}
    }

    fn post_send(
        &mut self,
        _: EndpointId,
        _: ReadLease,
        _: u32,
        _: Token,
    ) -> Result<(), PostError> {
        match *self {}
    }

    fn write_control(&mut self, _: EndpointId, _: &[u8]) -> Result<(), PostError> {
        match *self {}
    }

    fn close(&mut self, _: EndpointId) {
        match *self {}
    }

    fn poll(&mut self, _: &mut Vec<Completion>, _: Duration) {
        match *self {}
    }

    fn waker(&self) -> Waker {
        match *self {}
    }
}
