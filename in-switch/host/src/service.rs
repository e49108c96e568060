//! The gRPC services of a daemon.

use std::sync::Arc;

use control::proto::{
    CreateEvent, CreateRequest, HostGroupsReply, HostGroupsRequest, JoinEvent, JoinRequest,
    ListenEvent, ListenRequest, host_server::Host, peer_server::Peer,
};
use tonic::{
    Request, Response, Status, Streaming, codegen::tokio_stream::wrappers::ReceiverStream,
};

use crate::{daemon::Daemon, group, session};

/// For applications of this host. Access is controlled by the socket's permissions.
pub(crate) struct ForApplications(pub(crate) Arc<Daemon>);

/// For other daemons.
pub(crate) struct ForDaemons(pub(crate) Arc<Daemon>);

type Stream<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Host for ForApplications {
    type ListenStream = Stream<ListenEvent>;

    async fn listen(
        &self,
        request: Request<Streaming<ListenRequest>>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        Ok(Response::new(session::listen(&self.0, request.into_inner()).await?))
    }

    type CreateStream = Stream<CreateEvent>;

    async fn create(
        &self,
        request: Request<Streaming<CreateRequest>>,
    ) -> Result<Response<Self::CreateStream>, Status> {
        Ok(Response::new(group::create(&self.0, request.into_inner()).await?))
    }

    async fn groups(
        &self,
        _: Request<HostGroupsRequest>,
    ) -> Result<Response<HostGroupsReply>, Status> {
        let (groups, services) = (self.0.groups.report(), self.0.listeners.report());
        Ok(Response::new(HostGroupsReply { groups, services }))
    }
}

#[tonic::async_trait]
impl Peer for ForDaemons {
    type JoinStream = Stream<JoinEvent>;

    async fn join(
        &self,
        request: Request<Streaming<JoinRequest>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        Ok(Response::new(session::join(&self.0, request).await?))
    }
}
