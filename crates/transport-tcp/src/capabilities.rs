//! What the transport can do besides blocks and control words.

use transport::{
    ArrivingRead, Cause, CutThroughSends, EndpointId, OneSidedWrites, PeerMemory, PostError,
    ReadLease, Token, Transport, Visibility,
};

use crate::{
    command::Outbound,
    link::{Carrier, ConnectionId, Kind, TcpLink},
    posted_send::CUT_THROUGH_BLOCK_BYTES_MIN,
    shared::{SharedConnections, SharedEvent},
    tcp_transport::TcpTransport,
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
        self.local.connections.expose(endpoint, key, memory)
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
        self.local.connections.post_write(endpoint, from, key, offset, immediate, token)
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
        self.post_outbound(endpoint, Outbound::Arriving(from), immediate, token)
    }
}

impl SharedConnections for TcpTransport {
    fn share(&mut self, link: TcpLink) -> Result<ConnectionId, PostError> {
        let (id, parts) = self.parts_of(link.kind)?;
        let (count, now) = (parts.iter().map(Vec::len).sum::<usize>(), self.now());
        tracing::debug!(connection = id.0, streams = count, "shared");
        self.spread.share(&mut self.local.connections, id, parts, now);
        self.give_commands();
        Ok(id)
    }

    fn reserve(&mut self, connection: ConnectionId, channel: u32) -> Result<TcpLink, PostError> {
        let endpoint = self.spread.reserve(&mut self.local.connections, connection, channel)?;
        self.give_commands();
        let is_memory = self.local.is_in_memory(connection);
        let carrier = if is_memory { Carrier::Memory } else { Carrier::Sockets };
        Ok(TcpLink { kind: Kind::Reserved(endpoint, carrier) })
    }

    fn is_wanted(&mut self, link: &TcpLink) -> bool {
        match link.kind {
            Kind::Reserved(endpoint, _) => self.local.connections.is_wanted(endpoint),
            _ => true,
        }
    }

    fn release(&mut self, link: TcpLink) {
        if let Kind::Reserved(endpoint, _) = link.kind {
            let now = self.now();
            self.spread.release(&mut self.local.connections, endpoint, now);
            self.give_commands();
        }
    }

    fn write_message(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), PostError> {
        let now = self.now();
        self.local.connections.write_message(connection, message, now)
    }

    fn refuse(&mut self, connection: ConnectionId, why: &str) {
        let cause = Cause::Protocol(why.to_owned());
        // Other threads end theirs once this end is reported.
        self.local.connections.end_connection(connection, Some(cause));
    }

    fn has_shared_events(&self) -> bool {
        self.has_events()
    }

    fn take_shared_events(&mut self) -> Vec<SharedEvent> {
        self.take_events()
    }
}
