//! Sends that the network starts by itself: see `offload`.

use transport::{EndpointId, FutureRead, PostError, Token, TriggeredSends, WriteLease};

use crate::native::driver::FabricTransport;

impl TriggeredSends for FabricTransport {
    fn post_offloaded_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.check_offload(endpoint, into.bytes())?;
        self.offload.post_receive(&self.devices[0], (endpoint, token), into, immediate)?;
        self.start_offloaded(endpoint);
        Ok(())
    }

    fn post_offloaded_send(
        &mut self,
        endpoint: EndpointId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: &[(EndpointId, Token)],
    ) -> Result<(), PostError> {
        self.check_offload(endpoint, from.bytes())?;
        let (device, completed) = (&self.devices[0], &mut self.completed);
        let name = (endpoint, token);
        self.offload.post_send(device, name, from, immediate, after, completed)?;
        self.start_offloaded(endpoint);
        Ok(())
    }
}
