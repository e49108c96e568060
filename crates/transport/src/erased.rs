//! Transports and links whose types their users do not know.

use std::{any::Any, fmt, time::Duration};

use memory::{ReadLease, WriteLease};

use crate::{
    completion::{Completion, PostError},
    endpoint::{EndpointId, Token},
    one_sided::OneSidedWrites,
    transport::{Transport, Waker},
    triggered::TriggeredSends,
};

/// A link of some [`Transport`], which alone knows its type.
pub struct ErasedLink(Box<dyn Any + Send>);

impl ErasedLink {
    /// For [`Transport::open`] of an [`ErasedTransport`] whose transport has links of this type.
    pub fn new<L: Send + 'static>(link: L) -> Self {
        Self(Box::new(link))
    }
}

/// A transport that is chosen when a program runs. All calls go to the transport that it was made of;
/// each costs one indirect call more.
pub struct ErasedTransport(Box<dyn Transport<Link = ErasedLink> + Send>);

impl ErasedTransport {
    /// Takes over a transport.
    pub fn new<T: Transport + Send + 'static>(transport: T) -> Self {
        Self(Box::new(Opener(transport)))
    }
}

/// A transport that opens its links without their type.
struct Opener<T>(T);

/// All of a [`Transport`] but its links, by that in the first field.
macro_rules! forward_to_first_field {
    () => {
        fn now(&self) -> Duration {
            self.0.now()
        }

        fn block_bytes_max(&self) -> u64 {
            self.0.block_bytes_max()
        }

        fn post_receive(
            &mut self,
            endpoint: EndpointId,
            into: WriteLease,
            token: Token,
        ) -> Result<(), PostError> {
            self.0.post_receive(endpoint, into, token)
        }

        fn post_send(
            &mut self,
            endpoint: EndpointId,
            from: ReadLease,
            immediate: u32,
            token: Token,
        ) -> Result<(), PostError> {
            self.0.post_send(endpoint, from, immediate, token)
        }

        fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
            self.0.write_control(endpoint, word)
        }

        fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
            self.0.one_sided()
        }

        fn triggered(&mut self) -> Option<&mut dyn TriggeredSends> {
            self.0.triggered()
        }

        fn close(&mut self, endpoint: EndpointId) {
            self.0.close(endpoint);
        }

        fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
            self.0.poll(completions, wait);
        }

        fn waker(&self) -> Waker {
            self.0.waker()
        }

        fn finish(&mut self) {
            self.0.finish();
        }
    };
}

impl<T: Transport> Transport for Opener<T>
where
    T::Link: 'static,
{
    type Link = ErasedLink;

    fn open(&mut self, link: ErasedLink) -> Result<EndpointId, PostError> {
        let link = link.0.downcast::<T::Link>();
        self.0.open(*link.map_err(|_| PostError::System("a link of another transport".into()))?)
    }

    forward_to_first_field!();
}

impl Transport for ErasedTransport {
    type Link = ErasedLink;

    /// As the transport's own. Errors: also when the link is one of another transport.
    fn open(&mut self, link: ErasedLink) -> Result<EndpointId, PostError> {
        self.0.open(link)
    }

    forward_to_first_field!();
}

impl fmt::Debug for ErasedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedLink").finish_non_exhaustive()
    }
}

impl fmt::Debug for ErasedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedTransport").finish_non_exhaustive()
    }
}
