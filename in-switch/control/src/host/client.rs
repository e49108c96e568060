//! Client of a host's daemon.
//!
//! ```no_run
//! # async fn run() -> Result<(), control::ControlError> {
//! use control::host::{Invited, NewGroup, client::{GroupEvent, Host}};
//!
//! let host = Host::at("/run/rdmc/switch.sock".as_ref());
//! let invited = |daemon: &str| Invited { daemon: daemon.into(), service: "weights".into() };
//! let mut group = host.create(&NewGroup {
//!     sender: [10, 0, 0, 1].into(),
//!     sender_mac: None,
//!     sender_qpn: 0x4_0001,
//!     mtu_bytes: 1024,
//!     members: vec![invited("10.0.0.2:4791"), invited("10.0.0.3:4791")],
//!     regions: Vec::new(),
//!     application_data: Vec::new(),
//!     continues: true,
//!     all_notifications: false,
//! }).await?;
//! // Connect the queue pair to group.created(): virtual_address, queue pair id, first PSN psn_first.
//! while !matches!(group.next().await?, GroupEvent::Ended(_)) {}
//! # Ok(())
//! # }
//! ```
//!
//! All methods have to be called within a tokio runtime.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use roce::Mac;
use tokio::{net::UnixStream, sync::mpsc, time::timeout};
use tonic::{
    Status, Streaming,
    codegen::tokio_stream::wrappers::ReceiverStream,
    transport::{Channel, Endpoint, Uri},
};

use super::terms::{Acceptance, NewGroup, Terms, invalid};
use crate::{
    ControlError, ErrorKind,
    convert::{address, mac},
    proto::{
        self, CreateEvent, CreateRequest, ListenEvent, ListenRequest, create_event, create_request,
        host_client::HostClient, listen_event, listen_request,
    },
};

/// Deadline of calls that wait for no other host.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Deadline of creating a group: above the daemon's own deadlines.
const MAKE_TIMEOUT: Duration = Duration::from_secs(120);
/// Deadline of removing a group from the switches.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
const IS_IT_RUNNING: &str = "is `rdmc switch join` running?";
/// Queue of requests that have not been sent.
const REQUESTS_MAX: usize = 64;

/// Client of this host's daemon. Clones share a connection, which is made when it is needed.
#[derive(Clone, Debug)]
pub struct Host {
    path: PathBuf,
    client: HostClient<Channel>,
}

/// A service that this application listens as. Dropping it leaves the groups that it has accepted.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    requests_tx: mpsc::Sender<ListenRequest>,
    events: Streaming<ListenEvent>,
}

/// Events of a [`Listener`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenerEvent {
    /// A group is offered: to be accepted or refused within ten seconds.
    Offer {
        /// Identifies it.
        offer: u64,
        /// The group.
        terms: Terms,
    },
    /// A group that was accepted is installed in the switches: its sender may send.
    Ready {
        /// The offer.
        offer: u64,
        /// Its virtual queue pair number.
        id: u32,
    },
    /// An offer, or a group, has ended.
    Ended {
        /// The offer.
        offer: u64,
        /// The reason, for messages.
        reason: String,
    },
}

/// A group that this application sends to. Dropping it ends the group.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    made: Created,
    requests_tx: mpsc::Sender<CreateRequest>,
    events: Streaming<CreateEvent>,
}

/// A group that has been created, for its sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// The virtual queue pair number.
    pub id: u32,
    /// The virtual peer's address.
    pub virtual_address: IpAddr,
    /// Its Ethernet address.
    pub virtual_mac: Mac,
    /// Number of the sender's first packet.
    pub psn_first: u32,
    /// The members' addresses, in the order of [`NewGroup::members`].
    pub members: Vec<IpAddr>,
}

/// Events of a [`Group`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupEvent {
    /// A member has failed or left.
    MemberFailed {
        /// Its index in [`NewGroup::members`].
        member: usize,
        /// The reason, for messages.
        reason: String,
        /// Whether the group continues without it.
        continues: bool,
    },
    /// Why packets may not reach all members; `None`: that is over.
    Trouble(Option<String>),
    /// Why the group has ended. The last event.
    Ended(String),
}

impl Host {
    /// Client of the daemon whose Unix socket is at `path`. Does not connect yet.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        let socket = path.to_owned();
        let connect = move |_: Uri| {
            let socket = socket.clone();
            async move {
                let stream = UnixStream::connect(socket).await.map_err(|error| {
                    io::Error::new(error.kind(), format!("{error}; {IS_IT_RUNNING}"))
                })?;
                io::Result::Ok(TokioIo::new(stream))
            }
        };
        // A URI is required; the connector ignores it.
        let channel = Endpoint::from_static("http://host")
            .connect_timeout(ANSWER_TIMEOUT)
            .connect_with_connector_lazy(tower::service_fn(connect));
        Self { path: path.to_owned(), client: HostClient::new(channel) }
    }

    /// Listens as a service.
    ///
    /// Errors: among others [`ErrorKind::Taken`]: another application has this name.
    pub async fn listen(&self, service: &str) -> Result<Listener, ControlError> {
        let (requests_tx, requests) = mpsc::channel(REQUESTS_MAX);
        let kind = Some(listen_request::Kind::Service(service.to_owned()));
        let _ = requests_tx.try_send(ListenRequest { kind });
        let mut client = self.client.clone();
        let listen = client.listen(ReceiverStream::new(requests));
        let answer = within(&self.path, ANSWER_TIMEOUT, listen).await?;
        Ok(Listener { path: self.path.clone(), requests_tx, events: answer.into_inner() })
    }

    /// Creates a group. Dropping the returned value ends it.
    ///
    /// Errors: a member refuses or fails, or switches refuse; names the member or switch. Nothing is left.
    pub async fn create(&self, group: &NewGroup) -> Result<Group, ControlError> {
        let (requests_tx, requests) = mpsc::channel(REQUESTS_MAX);
        let kind = Some(create_request::Kind::Group(group.to_proto()));
        let _ = requests_tx.try_send(CreateRequest { kind });
        let mut client = self.client.clone();
        let create = client.create(ReceiverStream::new(requests));
        let mut events = within(&self.path, ANSWER_TIMEOUT, create).await?.into_inner();
        let event = within(&self.path, MAKE_TIMEOUT, events.message()).await?;
        match event.and_then(|event| event.event) {
            Some(create_event::Event::Created(made)) => {
                let made = Created::from_proto(&made)?;
                Ok(Group { path: self.path.clone(), made, requests_tx, events })
            }
            _ => Err(gone(&self.path)),
        }
    }

    /// Groups that applications of this host send to, and services that they listen as.
    pub async fn groups(&self) -> Result<proto::HostGroupsReply, ControlError> {
        let mut client = self.client.clone();
        let groups = client.groups(proto::HostGroupsRequest {});
        Ok(within(&self.path, ANSWER_TIMEOUT, groups).await?.into_inner())
    }
}

fn daemon(path: &Path) -> String {
    format!("this host's daemon at {}", path.display())
}

fn gone(path: &Path) -> ControlError {
    let why = format!("{} has closed the connection; {IS_IT_RUNNING}", daemon(path));
    ControlError::new(ErrorKind::Unavailable, why)
}

async fn within<T>(
    path: &Path,
    wait: Duration,
    ask: impl Future<Output = Result<T, Status>>,
) -> Result<T, ControlError> {
    match timeout(wait, ask).await {
        Ok(answer) => answer.map_err(|status| ControlError::from_status(&daemon(path), &status)),
        Err(_) => {
            let why = format!("{} has not answered within {} s", daemon(path), wait.as_secs());
            Err(ControlError::new(ErrorKind::Late, why))
        }
    }
}

impl Listener {
    /// The next event. Cancel safe.
    ///
    /// Errors: the daemon is gone, or has closed this stream.
    pub async fn next(&mut self) -> Result<ListenerEvent, ControlError> {
        match next_event(&mut self.events, &self.path).await?.event {
            Some(listen_event::Event::Offer(offer)) => Ok(ListenerEvent::Offer {
                offer: offer.offer,
                terms: Terms::from_proto(offer.terms.as_ref())?,
            }),
            Some(listen_event::Event::Ready(begun)) => {
                Ok(ListenerEvent::Ready { offer: begun.offer, id: begun.id })
            }
            Some(listen_event::Event::Ended(ended)) => {
                Ok(ListenerEvent::Ended { offer: ended.offer, reason: ended.reason })
            }
            None => Err(invalid(format!("{} has sent an unknown event", daemon(&self.path)))),
        }
    }

    /// Accepts an offer. The queue pair has to be ready to receive.
    pub async fn accept(&self, offer: u64, accepted: &Acceptance) -> Result<(), ControlError> {
        let proto::Joined { address, mac, qpn, regions, .. } = accepted.to_proto();
        let accept = proto::Accept { offer, address, mac, qpn, regions };
        self.send(listen_request::Kind::Accept(accept)).await
    }

    /// Refuses an offer; the reason is sent to its sender.
    pub async fn refuse(&self, offer: u64, reason: &str) -> Result<(), ControlError> {
        let refuse = proto::Refuse { offer, reason: reason.to_owned() };
        self.send(listen_request::Kind::Refuse(refuse)).await
    }

    /// Leaves a group that was accepted; the reason is sent to its sender.
    pub async fn leave(&self, offer: u64, reason: &str) -> Result<(), ControlError> {
        let leave = proto::Leave { offer, reason: reason.to_owned() };
        self.send(listen_request::Kind::Leave(leave)).await
    }

    async fn send(&self, kind: listen_request::Kind) -> Result<(), ControlError> {
        send_request(&self.requests_tx, ListenRequest { kind: Some(kind) }, &self.path).await
    }
}

async fn next_event<T>(events: &mut Streaming<T>, path: &Path) -> Result<T, ControlError> {
    let event = events.message().await;
    let event = event.map_err(|status| ControlError::from_status(&daemon(path), &status))?;
    event.ok_or_else(|| gone(path))
}

async fn send_request<T>(
    to: &mpsc::Sender<T>,
    request: T,
    path: &Path,
) -> Result<(), ControlError> {
    let sent = timeout(ANSWER_TIMEOUT, to.send(request)).await;
    if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(gone(path)) }
}

impl Group {
    /// The virtual peer to which the queue pair has to be connected.
    #[must_use]
    pub const fn created(&self) -> &Created {
        &self.made
    }

    /// The next event. Cancel safe.
    ///
    /// Errors: the daemon is gone. The group's lease will expire.
    pub async fn next(&mut self) -> Result<GroupEvent, ControlError> {
        match next_event(&mut self.events, &self.path).await?.event {
            Some(create_event::Event::MemberFailed(failed)) => Ok(GroupEvent::MemberFailed {
                member: failed.member as usize,
                reason: failed.reason,
                continues: failed.continues,
            }),
            Some(create_event::Event::Trouble(trouble)) => {
                Ok(GroupEvent::Trouble(Some(trouble).filter(|trouble| !trouble.is_empty())))
            }
            Some(create_event::Event::Ended(why)) => Ok(GroupEvent::Ended(why)),
            Some(create_event::Event::Created(_)) | None => {
                Err(invalid(format!("{} has sent an unknown event", daemon(&self.path))))
            }
        }
    }

    /// Removes a member, by its index in [`NewGroup::members`]. [`GroupEvent::MemberFailed`] follows.
    pub async fn remove_member(&self, member: usize) -> Result<(), ControlError> {
        let member = u32::try_from(member).unwrap_or(u32::MAX);
        self.send(create_request::Kind::RemoveMember(member)).await
    }

    /// Ends the group, and waits until it has been removed from the switches.
    pub async fn close(mut self) -> Result<(), ControlError> {
        self.send(create_request::Kind::Close(proto::Close {})).await?;
        let path = self.path.clone();
        let ended = async {
            while !matches!(self.next().await?, GroupEvent::Ended(_)) {}
            Ok(())
        };
        let late = |_| {
            let why = format!("{} has not ended the group in time", daemon(&path));
            ControlError::new(ErrorKind::Late, why)
        };
        timeout(CLOSE_TIMEOUT, ended).await.map_err(late)?
    }

    async fn send(&self, kind: create_request::Kind) -> Result<(), ControlError> {
        send_request(&self.requests_tx, CreateRequest { kind: Some(kind) }, &self.path).await
    }
}

impl Created {
    fn from_proto(made: &proto::Created) -> Result<Self, ControlError> {
        Ok(Self {
            id: made.id,
            virtual_address: address(&made.virtual_address)?,
            virtual_mac: mac(&made.virtual_mac)?,
            psn_first: made.psn_first,
            members: made.members.iter().map(|text| address(text)).collect::<Result<_, _>>()?,
        })
    }
}
