//! One member's view of the simulated network.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use transport::{
    CONTROL_BYTES_MAX, Completion, EndpointId, PostError, ReadLease, Token, Transport, Waker,
    WriteLease,
};

use crate::network::Core;

/// One end of a simulated connection, to be opened by its member.
#[derive(Debug)]
pub struct SimLink {
    pub(crate) endpoint: EndpointId,
}

/// [`Transport`] of one member of a [`crate::SimNetwork`]. Stays on the network's thread.
pub struct SimTransport {
    pub(crate) core: Rc<RefCell<Core>>,
    pub(crate) member: usize,
}

impl Transport for SimTransport {
    type Link = SimLink;

    /// Virtual time since the network was made.
    fn now(&self) -> Duration {
        self.core.borrow().now()
    }

    fn block_bytes_max(&self) -> u64 {
        1 << 40
    }

    fn open(&mut self, link: SimLink) -> Result<EndpointId, PostError> {
        Ok(link.endpoint)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        self.core.borrow_mut().post_receive(endpoint, into, token)
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.core.borrow_mut().post_send(endpoint, from, immediate, token)
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        if word.is_empty() {
            return Err(PostError::System("an empty control word".into()));
        }
        if word.len() > CONTROL_BYTES_MAX {
            let (bytes, bytes_max) = (word.len() as u64, CONTROL_BYTES_MAX as u64);
            return Err(PostError::TooLarge { bytes, bytes_max });
        }
        self.core.borrow_mut().write_control(endpoint, word)
    }

    fn close(&mut self, endpoint: EndpointId) {
        self.core.borrow_mut().close(endpoint);
    }

    /// Waiting lets virtual time pass, until this member has something or `wait` is over.
    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let mut core = self.core.borrow_mut();
        let until_ns = core.now_ns().saturating_add(wait.as_nanos() as u64);
        while !wait.is_zero() && !core.has_completions(self.member) && core.step_until(until_ns) {}
        core.take_completions(self.member, completions);
    }

    /// Does nothing: there is no other thread, and a wait costs no time.
    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }
}
