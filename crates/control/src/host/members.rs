//! At a sender: the members of a group, by their daemons.

use std::time::Duration;

use rdmc::bootstrap::Certificates;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tonic::{Streaming, codegen::tokio_stream::wrappers::ReceiverStream};

use super::terms::{Acceptance, Invited, Terms, reason};
use crate::{
    ControlError, ErrorKind,
    proto::{
        Invitation, JoinEvent, JoinRequest, join_event::Event, join_request::Say,
        peer_client::PeerClient,
    },
    tls,
};

/// All members have answered within this time.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Members that are told of the end have hung up within this time.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// What a member is told: it is invited, begins and ends.
const REQUESTS_MAX: usize = 3;

/// The members of a group, in the order in which they were asked for.
pub(crate) struct Members {
    members: Vec<Member>,
    ends: mpsc::UnboundedReceiver<(usize, String)>,
    readers: JoinSet<()>,
}

struct Member {
    invited: Invited,
    accepted: Acceptance,
    /// Until it is no longer a member.
    tell: Option<Tell>,
}

type Tell = mpsc::Sender<JoinRequest>;

/// Who has accepted.
struct Joined {
    accepted: Acceptance,
    tell: Tell,
    events: Streaming<JoinEvent>,
}

impl Invited {
    /// For people.
    pub(crate) fn shown(&self) -> String {
        format!("member {} ({})", self.daemon, self.service)
    }
}

impl Members {
    /// Asks all of them at the same time. Those that have accepted hear it if others have not.
    pub(crate) async fn invite(
        certificates: &Certificates,
        invited: &[Invited],
        terms: &Terms,
    ) -> Result<Self, ControlError> {
        let mut asked = JoinSet::new();
        let deadline = Instant::now() + JOIN_TIMEOUT;
        for (place, member) in invited.iter().enumerate() {
            let channel = tls::channel(&member.daemon, certificates)
                .map_err(|error| error.within(member.shown()))?;
            let (member, terms) = (member.clone(), terms.clone());
            asked.spawn(async move {
                let joined = timeout_at(deadline, join(channel, &member, &terms)).await;
                let joined = joined.unwrap_or_else(|_| {
                    let why = format!("no answer within {} s", JOIN_TIMEOUT.as_secs());
                    Err(ControlError::new(ErrorKind::Late, why))
                });
                (place, joined.map_err(|error| error.within(member.shown())))
            });
        }
        let mut joined: Vec<Option<Joined>> = invited.iter().map(|_| None).collect();
        let mut failed = None;
        while let Some(answer) = asked.join_next().await {
            // It ends otherwise only if the program does.
            let Ok((place, answer)) = answer else { continue };
            match answer {
                Ok(member) => joined[place] = Some(member),
                Err(error) => {
                    failed = Some(error);
                    asked.abort_all();
                }
            }
        }
        let members = Self::of(invited, joined);
        match failed.map_or_else(|| members.check(), Err) {
            Ok(()) => Ok(members),
            Err(error) => {
                members.end(&format!("the group was not made: {error}")).await;
                Err(error)
            }
        }
    }

    fn of(invited: &[Invited], joined: Vec<Option<Joined>>) -> Self {
        let (ended, ends) = mpsc::unbounded_channel();
        let mut readers = JoinSet::new();
        let mut members = Vec::with_capacity(joined.len());
        for (invited, joined) in invited.iter().zip(joined) {
            let Some(Joined { accepted, tell, events }) = joined else { continue };
            let (place, daemon) = (members.len(), invited.daemon.clone());
            readers.spawn(read(place, daemon, events, ended.clone()));
            members.push(Member { invited: invited.clone(), accepted, tell: Some(tell) });
        }
        Self { members, ends, readers }
    }

    /// Answers of two members with the same address could not be told from each other.
    fn check(&self) -> Result<(), ControlError> {
        for (place, member) in self.members.iter().enumerate() {
            let address = member.accepted.address;
            if let Some(other) =
                self.members[..place].iter().find(|m| m.accepted.address == address)
            {
                let (one, two) = (other.invited.shown(), member.invited.shown());
                let why = format!(
                    "{one} and {two} have the same address, {address}; a host can be a member once"
                );
                return Err(ControlError::new(ErrorKind::Invalid, why));
            }
        }
        Ok(())
    }

    /// What they have answered.
    pub(crate) fn accepted(&self) -> Vec<Acceptance> {
        self.members.iter().map(|member| member.accepted.clone()).collect()
    }

    /// The switches know the group.
    pub(crate) fn begin(&self, id: u32) {
        self.members.iter().for_each(|member| member.say(Say::Begun(id)));
    }

    /// The next that is no longer a member, and why. Never ends if there is none; may be dropped.
    pub(crate) async fn gone(&mut self) -> (usize, String) {
        loop {
            match self.ends.recv().await {
                Some((place, reason)) if self.members[place].tell.is_some() => {
                    return (place, reason);
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Goes on without one of them. Answers its address, if it was a member.
    pub(crate) fn remove(&mut self, place: usize, reason: &str) -> Option<std::net::IpAddr> {
        let member = self.members.get_mut(place)?;
        member.say(Say::Ended(reason.to_owned()));
        member.tell.take().map(|_| member.accepted.address)
    }

    /// How many are left.
    pub(crate) fn count(&self) -> usize {
        self.members.iter().filter(|member| member.tell.is_some()).count()
    }

    /// Tells all why the group has ended, and waits until they have hung up, but not for long.
    pub(crate) async fn end(mut self, reason: &str) {
        for place in 0..self.members.len() {
            self.remove(place, reason);
        }
        let _ =
            timeout(END_TIMEOUT, async { while self.readers.join_next().await.is_some() {} }).await;
    }
}

impl Member {
    fn say(&self, say: Say) {
        if let Some(tell) = &self.tell {
            // There is room; a connection that is broken is heard of anyway.
            let _ = tell.try_send(JoinRequest { say: Some(say) });
        }
    }
}

async fn join(
    channel: tonic::transport::Channel,
    invited: &Invited,
    terms: &Terms,
) -> Result<Joined, ControlError> {
    let (tell, requests) = mpsc::channel(REQUESTS_MAX);
    let invitation = Invitation { service: invited.service.clone(), terms: Some(terms.told()) };
    // There is room for it.
    let _ = tell.try_send(JoinRequest { say: Some(Say::Invitation(invitation)) });
    let failed = |status| ControlError::of_status(&daemon(&invited.daemon), &status);
    let mut client = PeerClient::new(channel);
    let answer = client.join(ReceiverStream::new(requests)).await.map_err(failed)?;
    let mut events = answer.into_inner();
    let event = events.message().await.map_err(failed)?.and_then(|event| event.event);
    let Some(Event::Joined(joined)) = event else {
        let why = "its daemon has not said how it takes part";
        return Err(ControlError::new(ErrorKind::Failed, why));
    };
    let accepted = Acceptance::of(&joined)?;
    terms.check(&accepted)?;
    Ok(Joined { accepted, tell, events })
}

fn daemon(address: &str) -> String {
    format!("the daemon at {address}")
}

/// Until a member has hung up.
async fn read(
    place: usize,
    address: String,
    mut events: Streaming<JoinEvent>,
    ended: mpsc::UnboundedSender<(usize, String)>,
) {
    let why = match events.message().await {
        Ok(Some(JoinEvent { event: Some(Event::Left(why)) })) => reason(why),
        Ok(Some(_)) => "its daemon says what makes no sense".to_owned(),
        Ok(None) => "its daemon has ended the connection".to_owned(),
        Err(status) => {
            let error = ControlError::of_status(&daemon(&address), &status);
            reason(format!("its host or its daemon is gone: {error}"))
        }
    };
    // The group may have ended before.
    let _ = ended.send((place, why));
}
