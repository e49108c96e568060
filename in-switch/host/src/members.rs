//! At a sender: the members of a group, through their daemons.

use std::{collections::BTreeMap, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use control::{
    ControlError, ErrorKind, delegation,
    host::terms::{Acceptance, Invited, Terms, reason},
    keeper::Renewals,
    proto::{
        Invitation, JoinEvent, JoinRequest, join_event::Event, join_request::Kind,
        peer_client::PeerClient,
    },
    tls,
};
use mcrdma::plan;
use rustls::RootCertStore;
use session::certificates::Certificates;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tonic::{Streaming, codegen::tokio_stream::wrappers::ReceiverStream, transport::Channel};

use crate::daemon::shutting_down;

/// Deadline for all members' answers.
const JOIN_TIMEOUT: Duration = Duration::from_secs(40);
/// Deadline for members to close their streams at the end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Messages to a member: invitation, ready, and at most two ends.
const REQUESTS_MAX: usize = 4;

/// The members of a group, in the order in which they were invited.
pub(crate) struct Members {
    members: Vec<Member>,
    ends: mpsc::UnboundedReceiver<(usize, String)>,
    readers: JoinSet<()>,
    renewals: Renewals,
}

struct Member {
    invited: Invited,
    accepted: Acceptance,
    /// Its entry in switches, signed.
    entry: plan::Member,
    /// `None` once it is no longer a member.
    requests_tx: Option<Requests>,
}

type Requests = mpsc::Sender<JoinRequest>;

/// A member that has accepted.
struct Joined {
    accepted: Acceptance,
    entry: plan::Member,
    requests_tx: Requests,
    events: Streaming<JoinEvent>,
}

impl Members {
    /// Invites all members concurrently. If one fails or refuses, or `interrupted` completes, all members are
    /// notified of the reason.
    pub(crate) async fn invite(
        certificates: &Certificates,
        invited: &[Invited],
        terms: &Terms,
        interrupted: impl Future<Output = ControlError>,
    ) -> Result<Self, ControlError> {
        let mut asked = JoinSet::new();
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let (refuse, refused) = watch::channel(None);
        let channel = |member: &Invited| {
            tls::channel(&member.daemon, certificates).map_err(|error| error.within(member.label()))
        };
        let channels = invited.iter().map(channel).collect::<Result<Vec<_>, _>>()?;
        for (place, (member, channel)) in invited.iter().zip(channels).enumerate() {
            let (member, terms, refused) = (member.clone(), terms.clone(), refused.clone());
            let authorities = certificates.authorities();
            asked.spawn(async move {
                let joined = ask(channel, &member, &authorities, &terms, deadline, refused).await;
                (place, joined.map_err(|error| error.within(member.label())))
            });
        }
        let mut joined: Vec<Option<Joined>> = invited.iter().map(|_| None).collect();
        let (mut failed, mut interrupted) = (None, pin!(interrupted));
        loop {
            let error = tokio::select! {
                answer = asked.join_next() => match answer {
                    None => break,
                    Some(Ok((place, Ok(member)))) => {
                        joined[place] = Some(member);
                        continue;
                    }
                    Some(Ok((_, Err(error)))) => error,
                    Some(Err(_)) => shutting_down(),
                },
                error = interrupted.as_mut(), if failed.is_none() => error,
            };
            // Later errors follow from the first.
            let first = failed.get_or_insert(error);
            refuse.send_replace(Some(not_made(first)));
        }
        let members = Self::of(certificates, invited, terms, joined);
        match failed.map_or_else(|| members.check(), Err) {
            Ok(()) => Ok(members),
            Err(error) => {
                members.end(&not_made(&error)).await;
                Err(error)
            }
        }
    }

    fn of(
        certificates: &Certificates,
        invited: &[Invited],
        terms: &Terms,
        joined: Vec<Option<Joined>>,
    ) -> Self {
        let (ended, ends) = mpsc::unbounded_channel();
        let renewals = Renewals::default();
        let mut readers = JoinSet::new();
        let mut members = Vec::with_capacity(joined.len());
        for (invited, joined) in invited.iter().zip(joined) {
            let Some(Joined { accepted, entry, requests_tx, events }) = joined else { continue };
            let (place, ended) = (members.len(), ended.clone());
            let reader = Reader {
                daemon: invited.daemon.clone(),
                events,
                authorities: certificates.authorities(),
                proposal: terms.proposal(),
                entry: entry.clone(),
                renewals: renewals.clone(),
            };
            // The receiver is gone if the group has ended.
            readers.spawn(async move { drop(ended.send((place, reader.read().await))) });
            let invited = invited.clone();
            members.push(Member { invited, accepted, entry, requests_tx: Some(requests_tx) });
        }
        Self { members, ends, readers, renewals }
    }

    /// Addresses of members have to differ: answers are matched by them.
    fn check(&self) -> Result<(), ControlError> {
        for (place, member) in self.members.iter().enumerate() {
            let address = member.accepted.address;
            if let Some(other) =
                self.members[..place].iter().find(|m| m.accepted.address == address)
            {
                let (one, two) = (other.invited.label(), member.invited.label());
                let why = format!(
                    "{one} and {two} have the same address, {address}; a host can be a member once"
                );
                return Err(ControlError::new(ErrorKind::Invalid, why));
            }
        }
        Ok(())
    }

    /// Their answers.
    pub(crate) fn accepted(&self) -> Vec<Acceptance> {
        self.members.iter().map(|member| member.accepted.clone()).collect()
    }

    /// By address, where their daemons are.
    pub(crate) fn hosts(&self) -> BTreeMap<IpAddr, String> {
        let host = |member: &Member| (member.accepted.address, member.invited.daemon.clone());
        self.members.iter().map(host).collect()
    }

    /// The index of the member with this address.
    pub(crate) fn place(&self, address: IpAddr) -> Option<usize> {
        self.members.iter().position(|member| member.accepted.address == address)
    }

    /// Their entries in switches, signed.
    pub(crate) fn entries(&self) -> Vec<plan::Member> {
        self.members.iter().map(|member| member.entry.clone()).collect()
    }

    /// Their later delegations, as they come.
    pub(crate) fn renewals(&self) -> Renewals {
        self.renewals.clone()
    }

    /// Notifies all that the group is installed in the switches.
    pub(crate) fn notify_ready(&self, id: u32) {
        self.members.iter().for_each(|member| member.send(Kind::Ready(id)));
    }

    /// The next member that has left or failed, and why. Cancel safe; pending if there is none.
    pub(crate) async fn next_failure(&mut self) -> (usize, String) {
        loop {
            match self.ends.recv().await {
                Some((place, reason)) if self.members[place].requests_tx.is_some() => {
                    return (place, reason);
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Removes a member. Returns its address if it was one.
    pub(crate) fn remove(&mut self, place: usize, reason: &str) -> Option<IpAddr> {
        let member = self.members.get_mut(place)?;
        member.send(Kind::Ended(reason.to_owned()));
        member.requests_tx.take().map(|_| member.accepted.address)
    }

    /// Number of members left.
    pub(crate) fn count(&self) -> usize {
        self.members.iter().filter(|member| member.requests_tx.is_some()).count()
    }

    /// Sends all the reason why the group has ended, and waits until they have closed their streams, up to a
    /// deadline.
    pub(crate) async fn end(mut self, reason: &str) {
        for place in 0..self.members.len() {
            self.remove(place, reason);
        }
        let _ =
            timeout(END_TIMEOUT, async { while self.readers.join_next().await.is_some() {} }).await;
    }
}

impl Member {
    fn send(&self, kind: Kind) {
        if let Some(requests_tx) = &self.requests_tx {
            // It has capacity; a broken connection is reported by its reader.
            let _ = requests_tx.try_send(JoinRequest { kind: Some(kind) });
        }
    }
}

/// The reason that members get if the group is not created.
pub(crate) fn not_made(why: &ControlError) -> String {
    reason(format!("the group was not made: {why}"))
}

/// Invites a member. If `refused` gets a reason first, that is sent to the member.
async fn ask(
    channel: Channel,
    invited: &Invited,
    authorities: &RootCertStore,
    terms: &Terms,
    deadline: Instant,
    mut refused: watch::Receiver<Option<String>>,
) -> Result<Joined, ControlError> {
    let (requests_tx, requests) = mpsc::channel(REQUESTS_MAX);
    let invitation = Invitation { service: invited.service.clone(), terms: Some(terms.to_proto()) };
    let _ = requests_tx.try_send(JoinRequest { kind: Some(Kind::Invitation(invitation)) });
    let joining = join(channel, invited, authorities, terms, requests_tx.clone(), requests);
    let mut joining = pin!(joining);
    let joined = tokio::select! {
        joined = timeout_at(deadline, joining.as_mut()) => joined,
        why = reason_in(&mut refused) => {
            let _ = requests_tx.try_send(JoinRequest { kind: Some(Kind::Ended(why)) });
            timeout(END_TIMEOUT, joining).await
        }
    };
    joined.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", JOIN_TIMEOUT.as_secs());
        Err(ControlError::new(ErrorKind::Late, why))
    })
}

/// Waits for a reason.
async fn reason_in(refused: &mut watch::Receiver<Option<String>>) -> String {
    match refused.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        Err(_) => String::new(),
    }
}

async fn join(
    channel: Channel,
    invited: &Invited,
    authorities: &RootCertStore,
    terms: &Terms,
    requests_tx: Requests,
    requests: mpsc::Receiver<JoinRequest>,
) -> Result<Joined, ControlError> {
    let failed = |status| ControlError::from_status(&daemon(&invited.daemon), &status);
    let mut client = PeerClient::new(channel);
    let answer = client.join(ReceiverStream::new(requests)).await.map_err(failed)?;
    let mut events = answer.into_inner();
    let event = events.message().await.map_err(failed)?.and_then(|event| event.event);
    let Some(Event::Joined(joined)) = event else {
        let why = "its daemon has sent another message than its answer";
        return Err(ControlError::new(ErrorKind::Failed, why));
    };
    let accepted = Acceptance::from_proto(&joined)?;
    terms.check(&accepted)?;
    let entry = plan::Member { delegation: joined.delegation, ..terms.member(&accepted) };
    // Agents check it as well. Without it a member could direct the sender's packets to another host.
    delegation::check(authorities, &terms.proposal(), &entry)
        .map_err(|why| ControlError::new(ErrorKind::Denied, why))?;
    Ok(Joined { accepted, entry, requests_tx, events })
}

fn daemon(address: &str) -> String {
    format!("the daemon at {address}")
}

/// Reads what a member's daemon sends.
struct Reader {
    daemon: String,
    events: Streaming<JoinEvent>,
    authorities: Arc<RootCertStore>,
    proposal: plan::Proposal,
    entry: plan::Member,
    renewals: Renewals,
}

impl Reader {
    /// Takes later delegations. Returns why the member has left, or how its stream has broken.
    async fn read(mut self) -> String {
        loop {
            match self.events.message().await {
                Ok(Some(JoinEvent { event: Some(Event::Renewed(delegation)) })) => {
                    if let Err(why) = self.renew(delegation) {
                        return why;
                    }
                }
                Ok(Some(JoinEvent { event: Some(Event::Left(why)) })) => return reason(why),
                Ok(Some(_)) => return "its daemon has sent an invalid message".to_owned(),
                Ok(None) => return "its daemon has ended the connection".to_owned(),
                Err(status) => {
                    let error = ControlError::from_status(&daemon(&self.daemon), &status);
                    return reason(format!("its host or its daemon is gone: {error}"));
                }
            }
        }
    }

    /// Errors: it is not valid.
    fn renew(&mut self, delegation: Vec<u8>) -> Result<(), String> {
        self.entry.delegation = delegation;
        delegation::check(&self.authorities, &self.proposal, &self.entry)?;
        self.renewals.put(self.entry.address, self.entry.delegation.clone());
        Ok(())
    }
}
