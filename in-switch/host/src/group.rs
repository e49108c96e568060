//! At a sender: a group from its beginning to its end (the MC-RDMA paper, section IV-A).

use std::sync::Arc;

use control::{
    Claim, ControlError, ErrorKind, convert,
    host::terms::{Invited, NewGroup, invalid},
    keeper::{INSERT_TIMEOUT, Keeper},
    proto::{
        self, CreateEvent, CreateRequest, HostMember, create_event::Event, create_request::Say,
    },
};
use roce::Serial;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::{Status, Streaming, codegen::tokio_stream::wrappers::ReceiverStream};

use crate::{
    daemon::{Daemon, ends},
    groups::Reserved,
    members::{Members, not_made},
    session::first,
};

/// Events that an application has not read. Beyond it, it is taken for dead.
const EVENTS_MAX: usize = 256;
/// Identifiers that are tried.
const DRAWS: u32 = 4;

/// The application that sends.
struct Application {
    stream: Streaming<CreateRequest>,
    tell: mpsc::Sender<Result<CreateEvent, Status>>,
}

/// A group that is in the switches.
struct Running {
    new: NewGroup,
    members: Members,
    keeper: Keeper,
    reserved: Reserved,
}

/// Makes a group, which lasts as long as the stream.
pub(crate) async fn create(
    daemon: &Arc<Daemon>,
    mut stream: Streaming<CreateRequest>,
) -> Result<ReceiverStream<Result<CreateEvent, Status>>, ControlError> {
    daemon.check_open()?;
    let Some(Say::Group(new)) = first(&mut stream).await?.say else {
        return Err(invalid("an application first says which group it wants"));
    };
    let new = NewGroup::of(&new)?;
    let place = daemon.sending.place()?;
    let (tell, events) = mpsc::channel(EVENTS_MAX);
    let application = Application { stream, tell };
    tokio::spawn(run(Arc::clone(daemon), new, application, place));
    Ok(ReceiverStream::new(events))
}

async fn run(
    daemon: Arc<Daemon>,
    new: NewGroup,
    mut application: Application,
    _place: OwnedSemaphorePermit,
) {
    let mut leaving = daemon.leaving.clone();
    let psn_first = rand::random_range(0..Serial::COUNT);
    let terms = new.terms(psn_first);
    let interrupted = async {
        tokio::select! {
            error = application.interrupts() => error,
            () = leaving.told() => ends(),
        }
    };
    let (own, trusted) = (&daemon.certificates, &daemon.trusted);
    let members = Members::invite(own, trusted, &new.members, &terms, interrupted).await;
    let running = match members {
        Ok(members) => insert(&daemon, new, members, psn_first).await,
        Err(error) => Err(error),
    };
    match running {
        Ok((running, made)) => {
            tracing::info!(id = made.id, "a group is made");
            application.say(Event::Made(made));
            running.last(application, &daemon).await;
        }
        Err(error) => {
            tracing::info!(%error, "a group is not made");
            // The application may have gone.
            let _ = application.tell.try_send(Err(error.into()));
        }
    }
}

/// Puts a group into the switches. It is taken back there and at the members if that fails.
async fn insert(
    daemon: &Daemon,
    new: NewGroup,
    members: Members,
    psn_first: u32,
) -> Result<(Running, proto::Made), ControlError> {
    let accepted = members.accepted();
    let instance = rand::random();
    let caller = new.sender.to_string();
    for draw in 1.. {
        let reserved = daemon.groups.reserve();
        let Some(mut group) = new.group(reserved.id, psn_first, &accepted) else { break };
        group.proof = members.proof();
        let claim = Claim { key: group.key, caller: caller.clone(), instance };
        match daemon.agent.insert(&group, &claim, INSERT_TIMEOUT).await {
            Ok(stale_after) => {
                let made = proto::Made {
                    id: reserved.id,
                    virtual_address: group.virtual_address.to_string(),
                    virtual_mac: group.virtual_mac.to_string(),
                    psn_first,
                    members: accepted.iter().map(|member| member.address.to_string()).collect(),
                };
                members.begin(reserved.id);
                let key = group.key;
                let keeper = Keeper::start(daemon.agent.clone(), claim, group, stale_after);
                let running = Running { new, members, keeper, reserved };
                running.show(convert::key_told(key), &made);
                return Ok((running, made));
            }
            // Another identifier may do.
            Err(error) if error.kind == ErrorKind::Taken && draw < DRAWS => {}
            Err(error) => {
                // It may have come there all the same.
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
    fn say(&self, event: Event) {
        // Who does not read is heard of as who has gone.
        let _ = self.tell.try_send(Ok(CreateEvent { event: Some(event) }));
    }

    /// What the application says next; or why there is nothing more.
    async fn hear(&mut self) -> Result<Say, String> {
        let gone = || "the sending application has ended".to_owned();
        tokio::select! {
            said = self.stream.message() => match said {
                Ok(Some(CreateRequest { say: Some(say) })) => Ok(say),
                Ok(Some(CreateRequest { say: None })) => {
                    Err("the sending application says what is unknown to its daemon".to_owned())
                }
                Ok(None) | Err(_) => Err(gone()),
            },
            () = self.tell.closed() => Err(gone()),
        }
    }

    /// Until the application no longer wants a group that is not made yet.
    async fn interrupts(&mut self) -> ControlError {
        match self.hear().await {
            Ok(Say::Close(_)) => ControlError::new(ErrorKind::Unavailable, "the group was closed"),
            Ok(_) => invalid("the group is not made yet: wait for that, or close it"),
            Err(why) => ControlError::new(ErrorKind::Unavailable, why),
        }
    }
}

impl Running {
    /// Until the group ends.
    async fn last(mut self, mut application: Application, daemon: &Daemon) {
        let mut leaving = daemon.leaving.clone();
        let why = loop {
            let ended = tokio::select! {
                (place, why) = self.members.gone() => {
                    self.remove(place, &why, self.new.goes_on, &application)
                }
                Some(trouble) = self.keeper.troubles.recv() => {
                    let trouble = trouble.unwrap_or_default();
                    self.reserved.show(|group| group.trouble.clone_from(&trouble));
                    application.say(Event::Trouble(trouble));
                    None
                }
                said = application.hear() => self.obey(said, &application),
                () = leaving.told() => Some("the daemon of the sender's host ends".to_owned()),
            };
            if let Some(why) = ended {
                break why;
            }
        };
        tracing::info!(id = self.reserved.id, %why, "a group has ended");
        tokio::join!(self.members.end(&why), self.keeper.end());
        application.say(Event::Ended(why));
    }

    /// Does what the application says. Answers why the group has ended, if it has.
    fn obey(&mut self, said: Result<Say, String>, application: &Application) -> Option<String> {
        match said {
            Ok(Say::RemoveMember(place)) => {
                let place = usize::try_from(place).unwrap_or(usize::MAX);
                self.remove(place, "the sending application has removed it", true, application)
            }
            Ok(Say::Close(_)) => Some("the sending application has closed it".to_owned()),
            Ok(Say::Group(_)) => {
                Some("the sending application wants a second group on a stream".to_owned())
            }
            Err(why) => Some(why),
        }
    }

    /// The group goes on without a member, if it may. Otherwise answers why it has ended.
    fn remove(
        &mut self,
        place: usize,
        why: &str,
        may_go_on: bool,
        application: &Application,
    ) -> Option<String> {
        // One that is none any more was told of before.
        let address = self.members.remove(place, why)?;
        let goes_on = may_go_on && self.members.count() > 0;
        let failed = proto::MemberFailed { member: place as u32, reason: why.to_owned(), goes_on };
        application.say(Event::MemberFailed(failed));
        self.reserved.show(|group| {
            if let Some(member) = group.members.get_mut(place) {
                why.clone_into(&mut member.failed);
            }
        });
        tracing::info!(id = self.reserved.id, %address, why, goes_on, "a member has gone");
        if goes_on {
            self.keeper.remove_member(address);
            return None;
        }
        let shown = self.new.members.get(place).map(Invited::shown);
        Some(format!("{}: {why}", shown.unwrap_or_default()))
    }

    fn show(&self, key: proto::Key, made: &proto::Made) {
        let member = |(invited, address): (&Invited, &String)| HostMember {
            daemon: invited.daemon.clone(),
            service: invited.service.clone(),
            address: address.clone(),
            failed: String::new(),
        };
        self.reserved.show(|group| {
            group.key = Some(key);
            group.sender_qpn = self.new.sender_qpn;
            group.members = self.new.members.iter().zip(&made.members).map(member).collect();
        });
    }
}
