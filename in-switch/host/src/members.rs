//! At a sender: the members of a group, by their daemons.

use std::{net::IpAddr, pin::pin, time::Duration};

use certificates::Certificates;
use control::{
    ControlError, ErrorKind,
    host::terms::{Acceptance, Invited, Terms, reason},
    proto::{
        Invitation, JoinEvent, JoinRequest, join_event::Event, join_request::Say,
        peer_client::PeerClient,
    },
    tls::{self, Trusted},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tonic::{Streaming, codegen::tokio_stream::wrappers::ReceiverStream, transport::Channel};

use crate::daemon::ends;

/// All members have answered within this time.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Members that are told of the end have hung up within this time.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// What a member is told: it is invited, begins and ends, perhaps twice.
const REQUESTS_MAX: usize = 4;

/// The members of a group, in the order in which they were asked for.
pub(crate) struct Members {
    members: Vec<Member>,
    ends: mpsc::UnboundedReceiver<(usize, String)>,
    readers: JoinSet<()>,
}

struct Member {
    invited: Invited,
    accepted: Acceptance,
    /// That its addresses are its own.
    proof: Vec<u8>,
    /// Until it is no longer a member.
    tell: Option<Tell>,
}

type Tell = mpsc::Sender<JoinRequest>;

/// Who has accepted.
struct Joined {
    accepted: Acceptance,
    proof: Vec<u8>,
    tell: Tell,
    events: Streaming<JoinEvent>,
}

impl Members {
    /// Asks all of them at the same time. If one does not take part, or there comes a reason to make no
    /// group, all hear it.
    pub(crate) async fn invite(
        certificates: &Certificates,
        trusted: &Trusted,
        invited: &[Invited],
        terms: &Terms,
        interrupted: impl Future<Output = ControlError>,
    ) -> Result<Self, ControlError> {
        let mut asked = JoinSet::new();
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let (refuse, refused) = watch::channel(None);
        let channel = |member: &Invited| {
            tls::channel(&member.daemon, certificates).map_err(|error| error.within(member.shown()))
        };
        let channels = invited.iter().map(channel).collect::<Result<Vec<_>, _>>()?;
        for (place, (member, (channel, shown))) in invited.iter().zip(channels).enumerate() {
            let (member, terms, refused) = (member.clone(), terms.clone(), refused.clone());
            asked.spawn(async move {
                let joined = ask(channel, &member, &terms, deadline, refused).await;
                let joined = joined.map_err(|error| error.within(member.shown()));
                (place, joined.map(|joined| (joined, shown)))
            });
        }
        let mut joined: Vec<Option<Joined>> = invited.iter().map(|_| None).collect();
        let (mut failed, mut interrupted) = (None, pin!(interrupted));
        loop {
            let error = tokio::select! {
                answer = asked.join_next() => match answer {
                    None => break,
                    Some(Ok((place, Ok((member, shown))))) => {
                        let address = member.accepted.address;
                        joined[place] = Some(member);
                        if trusted.lets_answer(&shown, address) {
                            continue;
                        }
                        no_certificate(address).within(invited[place].shown())
                    }
                    Some(Ok((_, Err(error)))) => error,
                    // It ends otherwise only if the program does.
                    Some(Err(_)) => ends(),
                },
                error = interrupted.as_mut(), if failed.is_none() => error,
            };
            // What others say to that is no cause.
            let first = failed.get_or_insert(error);
            refuse.send_replace(Some(not_made(first)));
        }
        let members = Self::of(invited, joined);
        match failed.map_or_else(|| members.check(), Err) {
            Ok(()) => Ok(members),
            Err(error) => {
                members.end(&not_made(&error)).await;
                Err(error)
            }
        }
    }

    fn of(invited: &[Invited], joined: Vec<Option<Joined>>) -> Self {
        let (ended, ends) = mpsc::unbounded_channel();
        let mut readers = JoinSet::new();
        let mut members = Vec::with_capacity(joined.len());
        for (invited, joined) in invited.iter().zip(joined) {
            let Some(Joined { accepted, proof, tell, events }) = joined else { continue };
            let (place, daemon) = (members.len(), invited.daemon.clone());
            readers.spawn(read(place, daemon, events, ended.clone()));
            let invited = invited.clone();
            members.push(Member { invited, accepted, proof, tell: Some(tell) });
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

    /// What proves that the first member's addresses, which the sender takes for its peer's, are its own.
    pub(crate) fn proof(&self) -> Vec<u8> {
        self.members.first().map(|member| member.proof.clone()).unwrap_or_default()
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
    pub(crate) fn remove(&mut self, place: usize, reason: &str) -> Option<IpAddr> {
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

/// What is sent to a member would go to whatever host it names.
fn no_certificate(address: IpAddr) -> ControlError {
    let why = format!(
        "it receives at {address}, but its daemon's certificate is neither for that address nor for a name \
         that is trusted here (--trust)"
    );
    ControlError::new(ErrorKind::Denied, why)
}

/// What members hear of a group that fails before it begins.
pub(crate) fn not_made(why: &ControlError) -> String {
    reason(format!("the group was not made: {why}"))
}

/// Asks a member for its answer. If it is no longer wanted, it hears why.
async fn ask(
    channel: Channel,
    invited: &Invited,
    terms: &Terms,
    deadline: Instant,
    mut refused: watch::Receiver<Option<String>>,
) -> Result<Joined, ControlError> {
    let (tell, requests) = mpsc::channel(REQUESTS_MAX);
    let invitation = Invitation { service: invited.service.clone(), terms: Some(terms.told()) };
    // There is room for it, and for what follows.
    let _ = tell.try_send(JoinRequest { say: Some(Say::Invitation(invitation)) });
    let mut joining = pin!(join(channel, invited, terms, tell.clone(), requests));
    let joined = tokio::select! {
        joined = timeout_at(deadline, joining.as_mut()) => joined,
        why = said(&mut refused) => {
            let _ = tell.try_send(JoinRequest { say: Some(Say::Ended(why)) });
            timeout(END_TIMEOUT, joining).await
        }
    };
    joined.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", JOIN_TIMEOUT.as_secs());
        Err(ControlError::new(ErrorKind::Late, why))
    })
}

/// Until there is a reason.
async fn said(refused: &mut watch::Receiver<Option<String>>) -> String {
    match refused.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        Err(_) => String::new(),
    }
}

async fn join(
    channel: Channel,
    invited: &Invited,
    terms: &Terms,
    tell: Tell,
    requests: mpsc::Receiver<JoinRequest>,
) -> Result<Joined, ControlError> {
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
    Ok(Joined { accepted, proof: joined.proof, tell, events })
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
