//! What the transport can do besides blocks and control words.

use transport::{
    ArrivingRead, CutThroughSends, EndpointId, OneSidedWrites, PeerMemory, PostError, ReadLease,
    Token, Transport, Visibility,
};

use super::TcpTransport;
use crate::{
    connection::Connection,
    link::{ConnectionId, Kind, TcpLink},
    messages::MESSAGE_BYTES_MAX,
    posted_send::{CUT_THROUGH_BLOCK_BYTES_MIN, To},
    shared::{Held, SharedConnections, SharedEvent},
};

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

impl SharedConnections for TcpTransport {
    fn share(&mut self, link: TcpLink) -> Result<ConnectionId, PostError> {
        let sockets = match link.kind {
            Kind::Streams(sockets) if sockets.iter().all(|(_, keys)| keys.is_some()) => sockets,
            _ => return Err(PostError::System("only protected connections are shared".into())),
        };
        let (id, streams) = self.connect(sockets, None)?;
        tracing::debug!(connection = id.0, streams = streams.len(), "shared");
        self.connections.insert(id, Connection::shared(id, streams));
        self.enqueue(id);
        Ok(id)
    }

    fn reserve(&mut self, connection: ConnectionId, channel: u32) -> Result<TcpLink, PostError> {
        let gone = || PostError::System("the connection is lost".into());
        if !self.connections.contains_key(&connection) {
            return Err(gone());
        }
        let endpoint = self.new_endpoint(connection, channel);
        let shared = self.connections.get_mut(&connection).ok_or_else(gone)?;
        if let Err(error) = shared.add(channel, endpoint) {
            self.endpoints.remove(&endpoint);
            return Err(error);
        }
        self.sharing.held.insert(endpoint, Held::Waiting(Vec::new()));
        Ok(TcpLink { kind: Kind::Reserved(endpoint) })
    }

    fn is_wanted(&self, link: &TcpLink) -> bool {
        match link.kind {
            Kind::Reserved(endpoint) => !self.sharing.was_given_back(endpoint),
            Kind::Streams(_) => true,
        }
    }

    fn release(&mut self, link: TcpLink) {
        if let Kind::Reserved(endpoint) = link.kind {
            self.drop_reserved(endpoint);
        }
    }

    fn write_message(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), PostError> {
        if message.is_empty() || message.len() > MESSAGE_BYTES_MAX {
            return Err(PostError::System(format!("a message of {} bytes", message.len())));
        }
        let shared = self.connections.get_mut(&connection).filter(|it| it.is_shared);
        shared
            .ok_or_else(|| PostError::System("the connection is lost".into()))?
            .write_message(message)?;
        self.enqueue(connection);
        Ok(())
    }

    fn has_shared_events(&self) -> bool {
        !self.sharing.events.is_empty()
    }

    fn take_shared_events(&mut self) -> Vec<SharedEvent> {
        std::mem::take(&mut self.sharing.events)
    }
}
