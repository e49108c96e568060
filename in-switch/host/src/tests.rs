//! A daemon with a mock agent: errors between them, and hostile applications and daemons.

use std::{
    net::TcpListener as StdListener,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use control::{
    ControlError, ErrorKind, Incoming, Limits, Most,
    host::{
        Acceptance, Invited, NewGroup,
        client::{Group, GroupEvent, Host, Listener, ListenerEvent},
    },
    proto::{
        self, CreateRequest, InsertRequest, JoinRequest, ListenRequest, create_request,
        host_client::HostClient,
        join_request, listen_request,
        peer_client::PeerClient,
        switch_server::{Switch, SwitchServer},
    },
    tls,
};
use prost::Message;
use session::certificates::{CertificateFiles, Certificates};
use testing::Authority;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tonic::{
    Code, Request, Response, Status,
    codegen::{
        BoxStream,
        tokio_stream::{self, Stream},
    },
    transport::Server,
};

use crate::{DELEGATION_LASTS, DaemonSettings, prepare, serve};

const PATIENCE: Duration = Duration::from_secs(20);

/// A mock agent.
#[derive(Default)]
struct MockAgent {
    /// How many times the identifier is another group's.
    taken: AtomicU32,
    has_group: AtomicBool,
    is_in_trouble: AtomicBool,
    inserted: Mutex<Vec<InsertRequest>>,
    is_inserted: Notify,
}

#[tonic::async_trait]
impl Switch for MockAgent {
    async fn insert(
        &self,
        request: Request<InsertRequest>,
    ) -> Result<Response<proto::InsertReply>, Status> {
        self.inserted.lock().unwrap().push(request.into_inner());
        let less = |taken: u32| taken.checked_sub(1);
        if self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Status::already_exists("another group's"));
        }
        self.has_group.store(true, Ordering::SeqCst);
        self.is_inserted.notify_one();
        Ok(Response::new(proto::InsertReply { stale_after_ms: 300 }))
    }

    type WatchStream = BoxStream<proto::Suspicion>;

    async fn watch(
        &self,
        _: Request<proto::KeepRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("an agent without it"))
    }

    async fn keep(
        &self,
        _: Request<proto::KeepRequest>,
    ) -> Result<Response<proto::KeepReply>, Status> {
        if !self.has_group.load(Ordering::SeqCst) {
            return Err(Status::not_found("no such group"));
        }
        let trouble = if self.is_in_trouble.load(Ordering::SeqCst) { "a port is down" } else { "" };
        Ok(Response::new(proto::KeepReply { trouble: trouble.into(), members: Vec::new() }))
    }

    async fn remove_member(
        &self,
        _: Request<proto::RemoveMemberRequest>,
    ) -> Result<Response<proto::RemoveMemberReply>, Status> {
        Ok(Response::new(proto::RemoveMemberReply { was_removed: true }))
    }

    async fn remove(
        &self,
        _: Request<proto::RemoveRequest>,
    ) -> Result<Response<proto::RemoveReply>, Status> {
        let was_there = self.has_group.swap(false, Ordering::SeqCst);
        Ok(Response::new(proto::RemoveReply { was_there }))
    }

    async fn show(
        &self,
        _: Request<proto::ShowRequest>,
    ) -> Result<Response<proto::ShowReply>, Status> {
        Err(Status::unimplemented("not mocked"))
    }

    type GroupsStream = BoxStream<proto::GroupReport>;

    async fn groups(
        &self,
        _: Request<proto::GroupsRequest>,
    ) -> Result<Response<Self::GroupsStream>, Status> {
        Err(Status::unimplemented("not mocked"))
    }

    type TraceStream = BoxStream<proto::TraceReport>;

    async fn trace(
        &self,
        _: Request<proto::TraceRequest>,
    ) -> Result<Response<Self::TraceStream>, Status> {
        Err(Status::unimplemented("not mocked"))
    }

    async fn counters(
        &self,
        _: Request<proto::CountersRequest>,
    ) -> Result<Response<proto::CountersReply>, Status> {
        Err(Status::unimplemented("not mocked"))
    }

    async fn plan(
        &self,
        _: Request<proto::PlanRequest>,
    ) -> Result<Response<proto::PlanReply>, Status> {
        Err(Status::unimplemented("not mocked"))
    }
}

/// A daemon that sends to itself.
struct World {
    certificates: Certificates,
    switch: Arc<MockAgent>,
    daemon: String,
    socket: PathBuf,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ControlError>>,
    _files: (Authority, tempfile::TempDir),
}

impl World {
    /// With two addresses: it sends from one, and receives at another.
    async fn new() -> Self {
        Self::with("127.0.0.1,127.0.0.2", DELEGATION_LASTS).await
    }

    /// With a certificate for these addresses.
    async fn with(names: &str, delegation_lasts: Duration) -> Self {
        let (authority, directory) = (Authority::new("host"), tempfile::tempdir().unwrap());
        let files = authority.issue(names).into_files(|certificate, key, authorities| {
            CertificateFiles { certificate, key, authorities }
        });
        let certificates = Certificates::read(&files, &[]).unwrap();
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let agent = listener.local_addr().unwrap().to_string();
        let switch = Arc::<MockAgent>::default();
        let most = Most { each: 100, all: 100 };
        let limits = Limits { connections: most, calls: most };
        let served = Server::builder()
            .add_service(SwitchServer::from_arc(Arc::clone(&switch)))
            .serve_with_incoming(Incoming::open(listener, &certificates, limits).unwrap());
        tokio::spawn(served);
        let socket = directory.path().join("switch.sock");
        let settings = DaemonSettings {
            agent,
            socket: socket.clone(),
            socket_mode: 0o600,
            trusted: Vec::new(),
            delegation_lasts,
            probing: control::watcher::Probing::default(),
        };
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let daemon = listener.local_addr().unwrap().to_string();
        let prepared = prepare(&settings, &certificates).unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(prepared, listener, async { drop(stopped.await) }));
        let _files = (authority, directory);
        Self { certificates, switch, daemon, socket, stop, served, _files }
    }

    fn host(&self) -> Host {
        Host::at(&self.socket)
    }

    fn new_group(&self) -> NewGroup {
        let (daemon, service) = (self.daemon.clone(), "s".to_owned());
        NewGroup {
            sender: "127.0.0.1".parse().unwrap(),
            sender_mac: None,
            sender_qpn: 5,
            mtu_bytes: 1024,
            members: vec![Invited { daemon, service }],
            regions: Vec::new(),
            application_data: Vec::new(),
            continues: true,
            all_notifications: false,
        }
    }

    async fn create(&self, listener: &mut Listener) -> Result<Group, ControlError> {
        let (host, group) = (self.host(), self.new_group());
        let (made, ()) = tokio::join!(host.create(&group), async {
            let ListenerEvent::Offer { offer, .. } = soon(listener.next()).await.unwrap() else {
                panic!()
            };
            listener.accept(offer, &acceptance()).await.unwrap();
        });
        made
    }
}

fn acceptance() -> Acceptance {
    Acceptance::new("127.0.0.2".parse().unwrap(), "02:00:00:00:00:02".parse().unwrap(), 7)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it has come in time")
}

async fn ended(listener: &mut Listener) -> String {
    loop {
        match soon(listener.next()).await.unwrap() {
            ListenerEvent::Ended { reason, .. } => return reason,
            ListenerEvent::Ready { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn identifiers_that_are_taken_are_drawn_again() {
    let world = World::new().await;
    let mut listener = world.host().listen("s").await.unwrap();
    world.switch.taken.store(3, Ordering::SeqCst);
    let group = world.create(&mut listener).await.unwrap();
    let drawn: Vec<u32> = {
        let inserted = world.switch.inserted.lock().unwrap();
        let groups = inserted.iter().map(|request| request.group.as_ref().unwrap());
        assert!(
            groups
                .clone()
                .all(|group| group.psn_first == inserted[0].group.as_ref().unwrap().psn_first)
        );
        groups.map(|group| group.key.as_ref().unwrap().id).collect()
    };
    assert_eq!(drawn.len(), 4);
    assert_eq!((drawn[3], drawn[2] == drawn[3]), (group.created().id, false));
    group.close().await.unwrap();
    assert_eq!(ended(&mut listener).await, "the sending application has closed it");

    world.switch.taken.store(9, Ordering::SeqCst);
    let error = world.create(&mut listener).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Taken);
    assert!(error.message.contains("into the switches: another group's"), "{error}");
    assert!(ended(&mut listener).await.contains("was not made"));
    assert_eq!(world.switch.inserted.lock().unwrap().len(), 8);
    assert!(world.host().groups().await.unwrap().groups.is_empty());
}

#[tokio::test]
async fn a_member_receives_where_its_daemons_certificate_is_for() {
    let world = World::with("127.0.0.1", DELEGATION_LASTS).await;
    let mut listener = world.host().listen("s").await.unwrap();
    let error = world.create(&mut listener).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    for words in ["member 127.0.0.1:", "receives at 127.0.0.2, and", "subjectAltName=IP:127.0.0.2"]
    {
        assert!(error.message.contains(words), "{error}");
    }
    assert!(ended(&mut listener).await.contains("receives at 127.0.0.2, and"));
    assert!(world.switch.inserted.lock().unwrap().is_empty());
}

/// Otherwise switches would forget the group.
#[tokio::test]
async fn delegations_are_renewed_before_they_end() {
    let world = World::with("127.0.0.1,127.0.0.2", Duration::from_secs(45)).await;
    let mut listener = world.host().listen("s").await.unwrap();
    let _group = world.create(&mut listener).await.unwrap();
    let twice = async {
        while world.switch.inserted.lock().unwrap().len() < 2 {
            world.switch.is_inserted.notified().await;
        }
    };
    timeout(Duration::from_secs(100), twice).await.expect("it is inserted again");
    let until = |request: &InsertRequest| {
        let member = &request.group.as_ref().unwrap().members[0];
        proto::Delegation::decode(&member.delegation[..]).unwrap().until
    };
    let inserted = world.switch.inserted.lock().unwrap();
    assert!(until(&inserted[1]) > until(&inserted[0]));
    let undated = |request: &InsertRequest| {
        let mut request = request.clone();
        request.group.as_mut().unwrap().members[0].delegation.clear();
        request
    };
    assert_eq!(undated(&inserted[1]), undated(&inserted[0]), "the same group");
}

#[tokio::test]
async fn a_forgotten_group_is_inserted_again_and_troubles_are_reported() {
    let world = World::new().await;
    let mut listener = world.host().listen("s").await.unwrap();
    let mut group = world.create(&mut listener).await.unwrap();
    world.switch.has_group.store(false, Ordering::SeqCst);
    soon(async {
        while !world.switch.has_group.load(Ordering::SeqCst) {
            world.switch.is_inserted.notified().await;
        }
    })
    .await;
    let inserted = world.switch.inserted.lock().unwrap().clone();
    assert_eq!((inserted.len(), &inserted[0]), (2, &inserted[1]));
    world.switch.is_in_trouble.store(true, Ordering::SeqCst);
    let trouble = Some("a port is down".to_owned());
    assert_eq!(soon(group.next()).await.unwrap(), GroupEvent::Trouble(trouble));
    assert_eq!(world.host().groups().await.unwrap().groups[0].trouble, "a port is down");
    world.switch.is_in_trouble.store(false, Ordering::SeqCst);
    assert_eq!(soon(group.next()).await.unwrap(), GroupEvent::Trouble(None));
}

#[tokio::test]
async fn a_daemon_that_ends_takes_everything_back() {
    let world = World::new().await;
    let mut listener = world.host().listen("s").await.unwrap();
    let mut group = world.create(&mut listener).await.unwrap();
    world.stop.send(()).unwrap();
    soon(world.served).await.unwrap().unwrap();
    assert!(!world.switch.has_group.load(Ordering::SeqCst));
    assert!(!world.socket.exists());
    let event = soon(group.next()).await.unwrap();
    assert!(matches!(event, GroupEvent::Ended(why) if why.contains("daemon")));
    let last = async { while listener.next().await.is_ok() {} };
    soon(last).await;
}

#[tokio::test]
async fn an_application_that_ends_cancels_its_group() {
    let world = World::new().await;
    let mut listener = world.host().listen("s").await.unwrap();
    let (host, group) = (world.host(), world.new_group());
    let creating = tokio::spawn(async move { host.create(&group).await.map(drop) });
    let ListenerEvent::Offer { offer, .. } = soon(listener.next()).await.unwrap() else { panic!() };
    creating.abort();
    let why = ended(&mut listener).await;
    assert!(why.contains("not made: the sending application has ended"), "{why}");
    // Too late, and ignored.
    listener.accept(offer, &acceptance()).await.unwrap();
    world.create(&mut listener).await.unwrap();
    assert_eq!(world.switch.inserted.lock().unwrap().len(), 1);
}

/// A client of the daemon's service for applications, for any request.
async fn raw(world: &World) -> HostClient<tonic::transport::Channel> {
    let socket = world.socket.clone();
    let connect = move |_: tonic::transport::Uri| {
        let socket = socket.clone();
        async move {
            let stream = tokio::net::UnixStream::connect(socket).await?;
            std::io::Result::Ok(hyper_util::rt::TokioIo::new(stream))
        }
    };
    let endpoint = tonic::transport::Endpoint::from_static("http://host");
    let channel = endpoint.connect_with_connector(tower::service_fn(connect)).await.unwrap();
    HostClient::new(channel)
}

/// A stream of these requests, which stays open.
fn requests<T: Send + 'static>(all: Vec<T>) -> impl Stream<Item = T> + Send + 'static {
    use tonic::codegen::tokio_stream::StreamExt;
    tokio_stream::iter(all).chain(tokio_stream::pending())
}

#[tokio::test]
async fn invalid_requests_of_applications_close_the_stream() {
    use create_request::Kind as Create;
    use listen_request::Kind as Listen;
    let world = World::new().await;
    let mut client = raw(&world).await;
    for kind in [Some(Create::RemoveMember(0)), Some(Create::Close(proto::Close {})), None] {
        let refused = client.create(requests(vec![CreateRequest { kind }])).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let group = world.new_group().to_proto();
    let kind = Some(Create::Group(proto::NewGroup { mtu_bytes: 1, ..group.clone() }));
    let refused = client.create(requests(vec![CreateRequest { kind }])).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    let refuse = |offer| Listen::Refuse(proto::Refuse { offer, reason: String::new() });
    let service = |name: &str| Listen::Service(name.to_owned());
    for first in [refuse(1), service(""), service(&"s".repeat(256)), service("\n")] {
        let sent = vec![ListenRequest { kind: Some(first) }];
        let refused = client.listen(requests(sent)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    // No such offer; a second name. The first name is free again each time.
    for second in [refuse(1), service("t")] {
        let sent = [service("s"), second].map(|kind| ListenRequest { kind: Some(kind) });
        let events = client.listen(requests(sent.to_vec())).await.unwrap();
        let refused = soon(events.into_inner().message()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    // Any request but a close before the group is created.
    let _listener = world.host().listen("s").await.unwrap();
    let sent = [Create::Group(group), Create::RemoveMember(0)];
    let sent = sent.map(|kind| CreateRequest { kind: Some(kind) });
    let events = client.create(requests(sent.to_vec())).await.unwrap();
    let refused = soon(events.into_inner().message()).await.unwrap_err();
    assert!(refused.message().contains("not created yet"), "{refused}");
}

#[tokio::test]
async fn invalid_requests_of_daemons_are_refused() {
    use join_request::Kind;
    let world = World::with("127.0.0.1", DELEGATION_LASTS).await;
    let channel = tls::channel(&world.daemon, &world.certificates).unwrap();
    let mut client = PeerClient::new(channel);
    let terms = world.new_group().terms(3, 4).to_proto();
    let invite = |service: &str, terms: proto::Terms| {
        let (service, terms) = (service.to_owned(), Some(terms));
        Some(Kind::Invitation(proto::Invitation { service, terms }))
    };
    let foreign = proto::Terms { sender: "127.0.0.9".into(), ..terms.clone() };
    let wrong = proto::Terms { psn_first: 1 << 24, ..terms.clone() };
    for (kind, code) in [
        (None, Code::InvalidArgument),
        (Some(Kind::Ready(1)), Code::InvalidArgument),
        (invite("s", wrong), Code::InvalidArgument),
        (invite("s", foreign), Code::PermissionDenied),
        (invite("s", terms.clone()), Code::NotFound),
    ] {
        let refused = client.join(requests(vec![JoinRequest { kind }])).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    let mut listener = world.host().listen("s").await.unwrap();
    let early = [invite("s", terms), Some(Kind::Ready(1))].map(|kind| JoinRequest { kind });
    let refused = client.join(requests(early.to_vec())).await.unwrap_err();
    assert!(refused.message().contains("has to be answered before"), "{refused}");
    assert!(matches!(soon(listener.next()).await.unwrap(), ListenerEvent::Offer { .. }));
    assert!(ended(&mut listener).await.contains("has to be answered before"));
}
