//! Sends of blocks that are still being received, where links cut blocks into messages.

use transport::{ArrivingRead, CutThroughSends, EndpointId, PostError, Token};

use crate::native::{
    driver::FabricTransport,
    link::{CUT_BYTES_MIN, Contents},
};

impl CutThroughSends for FabricTransport {
    fn block_bytes_min(&self) -> u64 {
        CUT_BYTES_MIN
    }

    fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.check_length(from.bytes())?;
        self.open_link(endpoint)?.post_send(Contents::Arriving(from), immediate, token);
        Ok(())
    }
}
