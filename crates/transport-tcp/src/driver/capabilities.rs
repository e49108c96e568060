//! What the transport can do besides blocks and control words.

use transport::{
    ArrivingRead, CutThroughSends, EndpointId, OneSidedWrites, PeerMemory, PostError, ReadLease,
    Token, Transport, Visibility,
};

use super::TcpTransport;
use crate::posted_send::{CUT_THROUGH_BLOCK_BYTES_MIN, To};

impl OneSidedWrites for TcpTransport {
    /// The bytes of a write come in order over one stream, and are copied in `poll`: as seen by the
    /// thread that calls it.
    fn visibility(&self, _endpoint: EndpointId) -> Visibility {
        Visibility { in_order: true, ..Visibility::default() }
    }

    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.expose(channel, key, memory)
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), self.block_bytes_max())?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_write(channel, from, To::Exposed { key, offset, immediate }, token);
        self.enqueue_endpoint(endpoint);
        Ok(())
    }
}

impl CutThroughSends for TcpTransport {
    fn block_bytes_min(&self) -> u64 {
        CUT_THROUGH_BLOCK_BYTES_MIN
    }

    fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), self.block_bytes_max())?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_cut_through_send(channel, from, immediate, token);
        if !self.following.contains(&endpoint) {
            self.following.push(endpoint);
        }
        self.enqueue_endpoint(endpoint);
        Ok(())
    }
}
