//! A host's daemon, as its applications see it.
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
//!     words: Vec::new(),
//!     goes_on: true,
//!     all_notifications: false,
//! }).await?;
//! // The queue pair's peer is now group.made().virtual_address, queue pair group.made().id, and its
//! // first packet has the number group.made().psn_first.
//! while !matches!(group.next().await?, GroupEvent::Ended(_)) {}
//! # Ok(())
//! # }
//! ```
//!
//! All methods have to be called within a tokio runtime, and start no threads.

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

/// A daemon answers what it knows within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A group is made within this time: more than the daemon itself takes.
const MAKE_TIMEOUT: Duration = Duration::from_secs(120);
/// A group is taken out of the switches within this time.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The remedy, where it is not.
const IS_IT_RUNNING: &str = "is `rdmc switch join` running?";
/// What the daemon has not read.
const REQUESTS_MAX: usize = 64;

/// The daemon of this host. Clones share a connection, which is made when it is needed.
#[derive(Clone, Debug)]
pub struct Host {
    path: PathBuf,
    client: HostClient<Channel>,
}

/// A service that this application listens as, until it is dropped. The groups that it has accepted
/// lose a member then.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    tell: mpsc::Sender<ListenRequest>,
    events: Streaming<ListenEvent>,
}

/// What an application that listens hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A group is offered: to be accepted or refused within ten seconds.
    Offer {
        /// Names it.
        offer: u64,
        /// What there is to know.
        terms: Terms,
    },
    /// The switches know a group that was accepted: its sender may send.
    Begun {
        /// Which.
        offer: u64,
        /// Its virtual queue pair number.
        id: u32,
    },
    /// An offer, or a group, has ended.
    Ended {
        /// Which.
        offer: u64,
        /// Why.
        reason: String,
    },
}

/// A group that this application sends to, until it is dropped.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    made: Made,
    tell: mpsc::Sender<CreateRequest>,
    events: Streaming<CreateEvent>,
}

/// What a sender has to know of its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// The virtual queue pair number: the peer of the sender's queue pair.
    pub id: u32,
    /// The peer's address.
    pub virtual_address: IpAddr,
    /// Its Ethernet address.
    pub virtual_mac: Mac,
    /// Number of the sender's first packet.
    pub psn_first: u32,
    /// The members' addresses, in the order in which they were asked for.
    pub members: Vec<IpAddr>,
}

/// What an application that sends hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupEvent {
    /// A member is none any more.
    MemberFailed {
        /// Its place in [`NewGroup::members`].
        member: usize,
        /// Why.
        reason: String,
        /// The group goes on without it.
        goes_on: bool,
    },
    /// Why packets may not reach all members; `None`: they do again.
    Trouble(Option<String>),
    /// The group has ended, and why. Nothing comes after it.
    Ended(String),
}

impl Host {
    /// Of the daemon whose socket is there. Nothing is connected yet.
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
        // Sockets have no such addresses, but requests do.
        let channel = Endpoint::from_static("http://host")
            .connect_timeout(ANSWER_TIMEOUT)
            .connect_with_connector_lazy(tower::service_fn(connect));
        Self { path: path.to_owned(), client: HostClient::new(channel) }
    }

    /// Listens as a service from now on.
    ///
    /// Errors: among others [`ErrorKind::Taken`], another application does.
    pub async fn listen(&self, service: &str) -> Result<Listener, ControlError> {
        let (tell, requests) = mpsc::channel(REQUESTS_MAX);
        let say = Some(listen_request::Say::Service(service.to_owned()));
        // There is room for it.
        let _ = tell.try_send(ListenRequest { say });
        let mut client = self.client.clone();
        let listen = client.listen(ReceiverStream::new(requests));
        let answer = within(&self.path, ANSWER_TIMEOUT, listen).await?;
        Ok(Listener { path: self.path.clone(), tell, events: answer.into_inner() })
    }

    /// Makes a group. It ends when what this answers is dropped.
    ///
    /// Errors: a member does not take part, or switches do not take it; names it. Nothing is left.
    pub async fn create(&self, group: &NewGroup) -> Result<Group, ControlError> {
        let (tell, requests) = mpsc::channel(REQUESTS_MAX);
        let say = Some(create_request::Say::Group(group.told()));
        // There is room for it.
        let _ = tell.try_send(CreateRequest { say });
        let mut client = self.client.clone();
        let create = client.create(ReceiverStream::new(requests));
        let mut events = within(&self.path, ANSWER_TIMEOUT, create).await?.into_inner();
        let event = within(&self.path, MAKE_TIMEOUT, events.message()).await?;
        match event.and_then(|event| event.event) {
            Some(create_event::Event::Made(made)) => {
                let made = Made::of(&made)?;
                Ok(Group { path: self.path.clone(), made, tell, events })
            }
            _ => Err(gone(&self.path)),
        }
    }

    /// What the daemon has.
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
    let why = format!("{} has hung up; {IS_IT_RUNNING}", daemon(path));
    ControlError::new(ErrorKind::Unavailable, why)
}

async fn within<T>(
    path: &Path,
    wait: Duration,
    ask: impl Future<Output = Result<T, Status>>,
) -> Result<T, ControlError> {
    match timeout(wait, ask).await {
        Ok(answer) => answer.map_err(|status| ControlError::of_status(&daemon(path), &status)),
        Err(_) => {
            let why = format!("{} has not answered within {} s", daemon(path), wait.as_secs());
            Err(ControlError::new(ErrorKind::Late, why))
        }
    }
}

impl Listener {
    /// What happens next. Waits for it; may be dropped, and nothing is lost.
    ///
    /// Errors: the daemon is gone, or hears no more of this application.
    pub async fn next(&mut self) -> Result<Heard, ControlError> {
        let said = self.events.message().await;
        let said = said.map_err(|status| ControlError::of_status(&daemon(&self.path), &status))?;
        let event = said.ok_or_else(|| gone(&self.path))?.event;
        match event {
            Some(listen_event::Event::Offer(offer)) => {
                Ok(Heard::Offer { offer: offer.offer, terms: Terms::of(offer.terms.as_ref())? })
            }
            Some(listen_event::Event::Begun(begun)) => {
                Ok(Heard::Begun { offer: begun.offer, id: begun.id })
            }
            Some(listen_event::Event::Ended(ended)) => {
                Ok(Heard::Ended { offer: ended.offer, reason: ended.reason })
            }
            None => Err(invalid(format!("{} says what is unknown here", daemon(&self.path)))),
        }
    }

    /// Accepts an offer. The queue pair has to be ready for packets by now.
    pub async fn accept(&self, offer: u64, accepted: &Acceptance) -> Result<(), ControlError> {
        let proto::Joined { address, mac, qpn, regions, .. } = accepted.told();
        let accept = proto::Accept { offer, address, mac, qpn, regions };
        self.say(listen_request::Say::Accept(accept)).await
    }

    /// Refuses an offer. Its sender hears why.
    pub async fn refuse(&self, offer: u64, reason: &str) -> Result<(), ControlError> {
        let refuse = proto::Refuse { offer, reason: reason.to_owned() };
        self.say(listen_request::Say::Refuse(refuse)).await
    }

    /// Leaves a group that was accepted. Its sender hears why.
    pub async fn leave(&self, offer: u64, reason: &str) -> Result<(), ControlError> {
        let leave = proto::Leave { offer, reason: reason.to_owned() };
        self.say(listen_request::Say::Leave(leave)).await
    }

    async fn say(&self, say: listen_request::Say) -> Result<(), ControlError> {
        tell(&self.tell, ListenRequest { say: Some(say) }, &self.path).await
    }
}

async fn tell<T>(to: &mpsc::Sender<T>, request: T, path: &Path) -> Result<(), ControlError> {
    let told = timeout(ANSWER_TIMEOUT, to.send(request)).await;
    if matches!(told, Ok(Ok(()))) { Ok(()) } else { Err(gone(path)) }
}

impl Group {
    /// What its queue pair has to be connected to.
    #[must_use]
    pub const fn made(&self) -> &Made {
        &self.made
    }

    /// What happens next. Waits for it; may be dropped, and nothing is lost.
    ///
    /// Errors: the daemon is gone. The switches forget the group when they have not heard of it for a
    /// while.
    pub async fn next(&mut self) -> Result<GroupEvent, ControlError> {
        let said = self.events.message().await;
        let said = said.map_err(|status| ControlError::of_status(&daemon(&self.path), &status))?;
        match said.ok_or_else(|| gone(&self.path))?.event {
            Some(create_event::Event::MemberFailed(failed)) => Ok(GroupEvent::MemberFailed {
                member: failed.member as usize,
                reason: failed.reason,
                goes_on: failed.goes_on,
            }),
            Some(create_event::Event::Trouble(trouble)) => {
                Ok(GroupEvent::Trouble(Some(trouble).filter(|trouble| !trouble.is_empty())))
            }
            Some(create_event::Event::Ended(why)) => Ok(GroupEvent::Ended(why)),
            Some(create_event::Event::Made(_)) | None => {
                Err(invalid(format!("{} says what is unknown here", daemon(&self.path))))
            }
        }
    }

    /// Goes on without a member, by its place in [`NewGroup::members`]. Is told by
    /// [`GroupEvent::MemberFailed`].
    pub async fn remove_member(&self, member: usize) -> Result<(), ControlError> {
        let member = u32::try_from(member).unwrap_or(u32::MAX);
        self.say(create_request::Say::RemoveMember(member)).await
    }

    /// Ends the group, and waits until it is out of the switches.
    pub async fn close(mut self) -> Result<(), ControlError> {
        self.say(create_request::Say::Close(proto::Close {})).await?;
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

    async fn say(&self, say: create_request::Say) -> Result<(), ControlError> {
        tell(&self.tell, CreateRequest { say: Some(say) }, &self.path).await
    }
}

impl Made {
    fn of(made: &proto::Made) -> Result<Self, ControlError> {
        Ok(Self {
            id: made.id,
            virtual_address: address(&made.virtual_address)?,
            virtual_mac: mac(&made.virtual_mac)?,
            psn_first: made.psn_first,
            members: made.members.iter().map(|text| address(text)).collect::<Result<_, _>>()?,
        })
    }
}
