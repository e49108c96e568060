//! At a member: listening applications, and memberships.

use std::time::Duration;

use control::{
    ControlError, ErrorKind, InProgress, delegation,
    host::terms::{Acceptance, Terms, invalid, name, reason},
    proto::{
        self, JoinEvent, JoinRequest, ListenEvent, ListenRequest, join_event::Event,
        join_request::Kind, listen_request,
    },
};
use mcrdma::plan::{Member, Proposal};
use session::certificates::Certificates;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tonic::{Request, Status, Streaming, codegen::tokio_stream::wrappers::ReceiverStream};

use crate::{
    daemon::{Daemon, shutting_down},
    listeners::{EVENTS_MAX, Listening, Offer},
};

/// Deadline of a stream's first message.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);
/// Deadline of an application's answer to an offer: below the sender's own.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Unread events of a membership: joined, renewed and left.
const JOIN_EVENTS_MAX: usize = 3;
/// How often a delegation is renewed in the time for which it is valid.
const RENEWALS: u32 = 3;

/// The first message of a stream.
pub(crate) async fn first<T>(stream: &mut Streaming<T>) -> Result<T, ControlError> {
    let late = |_| ControlError::new(ErrorKind::Late, "no request has arrived in time");
    match timeout(FIRST_TIMEOUT, stream.message()).await.map_err(late)? {
        Ok(Some(message)) => Ok(message),
        Ok(None) | Err(_) => Err(invalid("the stream ended before its first request")),
    }
}

/// An application listens until it ends its stream, or sends an invalid request.
pub(crate) async fn listen(
    daemon: &Daemon,
    mut stream: Streaming<ListenRequest>,
) -> Result<ReceiverStream<Result<ListenEvent, Status>>, ControlError> {
    daemon.check_open()?;
    let Some(listen_request::Kind::Service(service)) = first(&mut stream).await?.kind else {
        return Err(invalid("the first message of a stream is the name of a service"));
    };
    let (events_tx, events) = mpsc::channel(EVENTS_MAX);
    let listening =
        daemon.listeners.listen(name("service's name", &service)?, events_tx.clone())?;
    let mut shutdown = daemon.shutdown.clone();
    tokio::spawn(async move {
        let why = tokio::select! {
        why = serve_requests(&listening, &mut stream) => why,
                    () = events_tx.closed() => None,
                    () = listening.application.overrun() => {
                        let why = "the application does not read its events";
                        Some(ControlError::new(ErrorKind::Limit, why))
                    }
                    () = shutdown.requested() => Some(shutting_down()),
                };
        if let Some(why) = why {
            // Not delivered if the queue is full.
            let _ = events_tx.try_send(Err(why.into()));
        }
    });
    Ok(ReceiverStream::new(events))
}

/// Handles requests until the stream ends, or one is invalid.
async fn serve_requests(
    listening: &Listening,
    stream: &mut Streaming<ListenRequest>,
) -> Option<ControlError> {
    while let Ok(Some(request)) = stream.message().await {
        if let Err(error) = listening.application.on_request(request) {
            return Some(error);
        }
    }
    None
}

/// Offers a group to an application, and returns its answer to the sender's daemon. The membership lasts as
/// long as the stream.
pub(crate) async fn join(
    daemon: &Daemon,
    mut request: Request<Streaming<JoinRequest>>,
) -> Result<ReceiverStream<Result<JoinEvent, Status>>, ControlError> {
    daemon.check_open()?;
    let in_progress = InProgress::of(&request);
    let Some(Kind::Invitation(invitation)) = first(request.get_mut()).await?.kind else {
        return Err(invalid("the first message of a stream is an invitation"));
    };
    let terms = Terms::from_proto(invitation.terms.as_ref())?;
    daemon.check_sender(&request, terms.sender)?;
    let service = name("service's name", &invitation.service)?;
    let place = daemon.memberships.acquire()?;
    let mut offer = daemon.listeners.offer(&service, terms.clone())?;
    let mut stream = request.into_inner();
    let mut shutdown = daemon.shutdown.clone();
    let answered = tokio::select! {
        answered = answer(&mut offer) => answered,
        why = withdrawn(&mut stream) => Err(why),
        () = shutdown.requested() => Err(shutting_down()),
    };
    let agreed = answered.and_then(|accepted| {
        let delegating = Delegation::of(daemon, &terms, &accepted);
        let delegation = delegating.sign()?;
        Ok((delegating, proto::Joined { delegation, ..accepted.to_proto() }))
    });
    let (delegating, joined) = match agreed {
        Ok(agreed) => agreed,
        Err(error) => {
            offer.end(error.message.clone());
            return Err(error);
        }
    };
    let (events_tx, events) = mpsc::channel(JOIN_EVENTS_MAX);
    let _ = events_tx.try_send(Ok(JoinEvent { event: Some(Event::Joined(joined)) }));
    tokio::spawn(async move {
        let _place = (place, in_progress);
        let ended = tokio::select! {
        ended = membership(&mut offer, &mut stream) => ended,
                    () = shutdown.requested() => Ended::Here("the daemon of its host shuts down".to_owned()),
                    ended = delegating.renew(&events_tx) => ended,
                };
        match ended {
            Ended::There(reason) => offer.end(reason),
            Ended::Here(reason) => {
                offer.end(reason.clone());
                let _ = events_tx.try_send(Ok(JoinEvent { event: Some(Event::Left(reason)) }));
            }
        }
    });
    Ok(ReceiverStream::new(events))
}

/// Signs that switches may copy the group's packets to the member.
struct Delegation {
    certificates: Certificates,
    proposal: Proposal,
    member: Member,
    lasts: Duration,
}

impl Delegation {
    fn of(daemon: &Daemon, terms: &Terms, accepted: &Acceptance) -> Self {
        Self {
            certificates: daemon.certificates.clone(),
            proposal: terms.proposal(),
            member: terms.member(accepted),
            lasts: daemon.delegation_lasts,
        }
    }

    fn sign(&self) -> Result<Vec<u8>, ControlError> {
        delegation::delegate(&self.certificates, &self.proposal, &self.member, self.lasts)
            .map_err(|why| ControlError::new(ErrorKind::Denied, why))
    }

    /// Sends a new one long before the last has ended, again and again. Returns why that is not possible.
    async fn renew(&self, events_tx: &mpsc::Sender<Result<JoinEvent, Status>>) -> Ended {
        loop {
            sleep(self.lasts / RENEWALS).await;
            match self.sign() {
                // If the sender's daemon has not read the last one, it comes with the next.
                Ok(delegation) if events_tx.capacity() > 1 => {
                    let renewed = JoinEvent { event: Some(Event::Renewed(delegation)) };
                    let _ = events_tx.try_send(Ok(renewed));
                }
                Ok(_) => {}
                Err(error) => return Ended::Here(error.message),
            }
        }
    }
}

/// The application's answer.
async fn answer(offer: &mut Offer) -> Result<Acceptance, ControlError> {
    match timeout(ANSWER_TIMEOUT, &mut offer.answer).await {
        Ok(Ok(Ok(accepted))) => Ok(accepted),
        Ok(Ok(Err(reason))) => {
            let why = format!("the application there refuses: {reason}");
            Err(ControlError::new(ErrorKind::Denied, why))
        }
        Ok(Err(_)) => {
            let why = "the application there has ended";
            Err(ControlError::new(ErrorKind::Unavailable, why))
        }
        Err(_) => {
            let seconds = ANSWER_TIMEOUT.as_secs();
            let why = format!("the application there has not answered within {seconds} s");
            Err(ControlError::new(ErrorKind::Late, why))
        }
    }
}

/// Before its answer the sender's daemon may only withdraw the invitation.
async fn withdrawn(stream: &mut Streaming<JoinRequest>) -> ControlError {
    match stream.message().await {
        Ok(Some(JoinRequest { kind: Some(Kind::Ended(why)) })) => invalid(reason(why)),
        Ok(Some(_)) => invalid("an invitation has to be answered before the next message"),
        Ok(None) | Err(_) => {
            ControlError::new(ErrorKind::Unavailable, "its sender's host has closed the stream")
        }
    }
}

/// Which end has ended a membership, and why.
enum Ended {
    Here(String),
    There(String),
}

async fn membership(offer: &mut Offer, stream: &mut Streaming<JoinRequest>) -> Ended {
    loop {
        tokio::select! {
            left = &mut offer.left => return Ended::Here(left.map_or_else(
                |_| "its application has ended".to_owned(),
                |reason| format!("its application has left: {reason}"),
            )),
            message = stream.message() => match message {
                Ok(Some(proto::JoinRequest { kind: Some(Kind::Ready(id)) })) => offer.ready(id),
                Ok(Some(JoinRequest { kind: Some(Kind::Ended(why)) })) => {
                    return Ended::There(reason(why));
                }
                Ok(Some(_)) => {
                    return Ended::Here("its sender's daemon has sent an invalid message".to_owned());
                }
                Ok(None) | Err(_) => {
                    return Ended::There("the daemon of the sender's host has closed the connection, or is gone".to_owned());
                }
            },
        }
    }
}
