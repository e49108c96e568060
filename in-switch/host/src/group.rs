//! At a sender: a group from its beginning to its end (the MC-RDMA paper, section IV-A).

use std::sync::Arc;

use control::{
    Claim, ControlError, ErrorKind, convert,
    host::terms::{Invited, NewGroup, Terms, invalid},
    keeper::{INSERT_TIMEOUT, Keeper},
    proto::{
        self, CreateEvent, CreateRequest, HostMember, create_event::Event, create_request::Kind,
    },
    watcher::Watcher,
};
use roce::Serial;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::{Status, Streaming, codegen::tokio_stream::wrappers::ReceiverStream};

use crate::{
    daemon::{Daemon, shutting_down},
    groups::Reserved,
    members::{Members, not_made},
    session::first,
};

/// Unread events of an application; one that exceeds it is disconnected.
const EVENTS_MAX: usize = 256;
/// Attempts to find an unused identifier.
const DRAWS: u32 = 4;

/// The application that sends.
struct Application {
    stream: Streaming<CreateRequest>,
    events_tx: mpsc::Sender<Result<CreateEvent, Status>>,
}

/// A group that is in the switches.
struct Running {
    new: NewGroup,
    members: Members,
    keeper: Keeper,
    watcher: Watcher,
    reserved: Reserved,
}

/// Creates a group, which lasts as long as the stream.
pub(crate) async fn create(
    daemon: &Arc<Daemon>,
    mut stream: Streaming<CreateRequest>,
) -> Result<ReceiverStream<Result<CreateEvent, Status>>, ControlError> {
    daemon.check_open()?;
    let Some(Kind::Group(new)) = first(&mut stream).await?.kind else {
        return Err(invalid("the first message of a stream is the group to create"));
    };
    let new = NewGroup::from_proto(&new)?;
    let place = daemon.sending.acquire()?;
    let (events_tx, events) = mpsc::channel(EVENTS_MAX);
    let application = Application { stream, events_tx };
    tokio::spawn(run(Arc::clone(daemon), new, application, place));
    Ok(ReceiverStream::new(events))
}

async fn run(
    daemon: Arc<Daemon>,
    new: NewGroup,
    mut application: Application,
    _place: OwnedSemaphorePermit,
) {
    let mut shutdown = daemon.shutdown.clone();
    let psn_first = rand::random_range(0..Serial::COUNT);
    let terms = new.terms(psn_first, rand::random_range(1..=u64::MAX));
    let interrupted = async {
        tokio::select! {
            error = application.interruption() => error,
            () = shutdown.requested() => shutting_down(),
        }
    };
    let own = &daemon.certificates;
    let members = Members::invite(own, &new.members, &terms, interrupted).await;
    let running = match members {
        Ok(members) => insert(&daemon, new, members, &terms).await,
        Err(error) => Err(error),
    };
    match running {
        Ok((running, made)) => {
            tracing::info!(id = made.id, "group created");
            application.send(Event::Created(made));
            running.run(application, &daemon).await;
        }
        Err(error) => {
            tracing::info!(%error, "group not created");
            // The application may have closed its stream.
            let _ = application.events_tx.try_send(Err(error.into()));
        }
    }
}

/// Installs a group in the switches. If that fails it is removed there, and members are notified.
async fn insert(
    daemon: &Daemon,
    new: NewGroup,
    members: Members,
    terms: &Terms,
) -> Result<(Running, proto::Created), ControlError> {
    let accepted = members.accepted();
    let caller = new.sender.to_string();
    for draw in 1.. {
        let reserved = daemon.groups.reserve();
        let Some(group) = new.group(reserved.id, terms, members.entries()) else { break };
        let claim = Claim { key: group.key, caller: caller.clone(), instance: group.instance };
        match daemon.agent.insert(&group, &claim, INSERT_TIMEOUT).await {
            Ok(stale_after) => {
                let made = proto::Created {
                    id: reserved.id,
                    virtual_address: group.virtual_address.to_string(),
                    virtual_mac: group.virtual_mac.to_string(),
                    psn_first: terms.psn_first,
                    members: accepted.iter().map(|member| member.address.to_string()).collect(),
                };
                members.notify_ready(reserved.id);
                let key = group.key;
                let (agent, hosts) = (daemon.agent.clone(), members.hosts());
                let watcher = Watcher::start(agent.clone(), claim.clone(), hosts, daemon.probing);
                let keeper = Keeper::start(agent, claim, group, stale_after, members.renewals());
                let running = Running { new, members, keeper, watcher, reserved };
                running.report(convert::key_to_proto(key), &made);
                return Ok((running, made));
            }
            // Retried with another identifier.
            Err(error) if error.kind == ErrorKind::Taken && draw < DRAWS => {}
            Err(error) => {
                // It may have been installed all the same.
                if error.kind != ErrorKind::Taken {
                    let _ = daemon.agent.remove(&claim).await;
                }
                let error = error.within("putting the group into the switches");
                members.end(&not_made(&error)).await;
                return Err(error);
            }
        }
    }
    Err(invalid("a group has members"))
}

impl Application {
    fn send(&self, event: Event) {
        // If the queue is full the stream is closed, which ends the group.
        let _ = self.events_tx.try_send(Ok(CreateEvent { event: Some(event) }));
    }

    /// The next request; or why there are no more.
    async fn next_request(&mut self) -> Result<Kind, String> {
        let gone = || "the sending application has ended".to_owned();
        tokio::select! {
            message = self.stream.message() => match message {
                Ok(Some(CreateRequest { kind: Some(kind) })) => Ok(kind),
                Ok(Some(CreateRequest { kind: None })) => {
                    Err("the sending application has sent an unknown request".to_owned())
                }
                Ok(None) | Err(_) => Err(gone()),
            },
            () = self.events_tx.closed() => Err(gone()),
        }
    }

    /// Waits until the application ends, or closes the group, before it is created.
    async fn interruption(&mut self) -> ControlError {
        match self.next_request().await {
            Ok(Kind::Close(_)) => ControlError::new(ErrorKind::Unavailable, "the group was closed"),
            Ok(_) => invalid("the group is not created yet: wait for that, or close it"),
            Err(why) => ControlError::new(ErrorKind::Unavailable, why),
        }
    }
}

impl Running {
    /// Runs until the group ends.
    async fn run(mut self, mut application: Application, daemon: &Daemon) {
        let mut shutdown = daemon.shutdown.clone();
        let why = loop {
            let ended = tokio::select! {
                (place, why) = self.members.next_failure() => {
                    self.remove(place, &why, self.new.continues, &application)
                }
                Some((address, why)) = self.watcher.failures.recv() => {
                    let place = self.members.place(address);
                    place.and_then(|place| self.remove(place, &why, self.new.continues, &application))
                }
                Some(trouble) = self.keeper.troubles.recv() => {
                    let trouble = trouble.unwrap_or_default();
            self.reserved.update(|group| group.trouble.clone_from(&trouble));
                    application.send(Event::Trouble(trouble));
                    None
                }
                request = application.next_request() => self.handle(request, &application),
                () = shutdown.requested() => Some("the daemon of the sender's host shuts down".to_owned()),
            };
            if let Some(why) = ended {
                break why;
            }
        };
        tracing::info!(id = self.reserved.id, %why, "group ended");
        tokio::join!(self.members.end(&why), self.keeper.end());
        application.send(Event::Ended(why));
    }

    /// Carries out a request. Returns why the group has ended, if it has.
    fn handle(
        &mut self,
        request: Result<Kind, String>,
        application: &Application,
    ) -> Option<String> {
        match request {
            Ok(Kind::RemoveMember(place)) => {
                let place = usize::try_from(place).unwrap_or(usize::MAX);
                self.remove(place, "the sending application has removed it", true, application)
            }
            Ok(Kind::Close(_)) => Some("the sending application has closed it".to_owned()),
            Ok(Kind::Group(_)) => Some(
                "the sending application has asked for a second group on one stream".to_owned(),
            ),
            Err(why) => Some(why),
        }
    }

    /// Removes a member. Returns why the group has ended, if it does not continue.
    fn remove(
        &mut self,
        place: usize,
        why: &str,
        may_continue: bool,
        application: &Application,
    ) -> Option<String> {
        let address = self.members.remove(place, why)?;
        let continues = may_continue && self.members.count() > 0;
        let failed =
            proto::MemberFailed { member: place as u32, reason: why.to_owned(), continues };
        application.send(Event::MemberFailed(failed));
        self.reserved.update(|group| {
            if let Some(member) = group.members.get_mut(place) {
                why.clone_into(&mut member.failure);
            }
        });
        tracing::info!(id = self.reserved.id, %address, why, continues, "member removed");
        if continues {
            self.keeper.remove_member(address);
            return None;
        }
        let shown = self.new.members.get(place).map(Invited::label);
        Some(format!("{}: {why}", shown.unwrap_or_default()))
    }

    fn report(&self, key: proto::Key, made: &proto::Created) {
        let member = |(invited, address): (&Invited, &String)| HostMember {
            daemon: invited.daemon.clone(),
            service: invited.service.clone(),
            address: address.clone(),
            failure: String::new(),
        };
        self.reserved.update(|group| {
            group.key = Some(key);
            group.sender_qpn = self.new.sender_qpn;
            group.members = self.new.members.iter().zip(&made.members).map(member).collect();
        });
    }
}
