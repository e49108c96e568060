//! At a member: groups of others' that applications of this host listen to.

use std::time::Duration;

use control::{
    ControlError, ErrorKind,
    delegation::Delegation,
    host::terms::{Acceptance, Terms, invalid, name, reason},
    proto::{
        self, JoinEvent, JoinRequest, ListenEvent, ListenRequest, join_event::Event,
        join_request::Say, listen_request,
    },
};
use tokio::{sync::mpsc, time::timeout};
use tonic::{Request, Status, Streaming, codegen::tokio_stream::wrappers::ReceiverStream};

use crate::{
    daemon::{Daemon, ends},
    listeners::{EVENTS_MAX, Listening, Offer},
};

/// Who begins a stream says first what it is about, within this time.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);
/// An application answers an offer within this time: less than its sender waits for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Events of a membership: it has two.
const JOIN_EVENTS_MAX: usize = 2;

/// What a stream begins with.
pub(crate) async fn first<T>(stream: &mut Streaming<T>) -> Result<T, ControlError> {
    let late = |_| ControlError::new(ErrorKind::Late, "nothing was asked for in time");
    match timeout(FIRST_TIMEOUT, stream.message()).await.map_err(late)? {
        Ok(Some(said)) => Ok(said),
        Ok(None) | Err(_) => Err(invalid("nothing was asked for")),
    }
}

/// An application listens until it ends, or says what makes no sense.
pub(crate) async fn listen(
    daemon: &Daemon,
    mut stream: Streaming<ListenRequest>,
) -> Result<ReceiverStream<Result<ListenEvent, Status>>, ControlError> {
    daemon.check_open()?;
    let Some(listen_request::Say::Service(service)) = first(&mut stream).await?.say else {
        return Err(invalid("an application first says as what it listens"));
    };
    let (tell, events) = mpsc::channel(EVENTS_MAX);
    let listening = daemon.listeners.listen(name("service's name", &service)?, tell.clone())?;
    let mut leaving = daemon.leaving.clone();
    tokio::spawn(async move {
        let why = tokio::select! {
            why = hear(&listening, &mut stream) => why,
            () = tell.closed() => None,
            () = listening.application.overrun() => {
                let why = "the application does not read its events";
                Some(ControlError::new(ErrorKind::Limit, why))
            }
            () = leaving.told() => Some(ends()),
        };
        if let Some(why) = why {
            // An application that does not read does not read this either.
            let _ = tell.try_send(Err(why.into()));
        }
    });
    Ok(ReceiverStream::new(events))
}

/// Until the application ends, or with what makes no sense.
async fn hear(
    listening: &Listening,
    stream: &mut Streaming<ListenRequest>,
) -> Option<ControlError> {
    while let Ok(Some(said)) = stream.message().await {
        if let Err(error) = listening.application.hear(said) {
            return Some(error);
        }
    }
    None
}

/// Offers a group to an application, and answers the sender's daemon once that has. The membership
/// lasts as long as the stream.
pub(crate) async fn join(
    daemon: &Daemon,
    mut request: Request<Streaming<JoinRequest>>,
) -> Result<ReceiverStream<Result<JoinEvent, Status>>, ControlError> {
    daemon.check_open()?;
    let Some(Say::Invitation(invitation)) = first(request.get_mut()).await?.say else {
        return Err(invalid("a daemon first says for whom it asks"));
    };
    let terms = Terms::of(invitation.terms.as_ref())?;
    daemon.check_sender(&request, terms.sender)?;
    let delegation = Delegation::of(&terms);
    let service = name("service's name", &invitation.service)?;
    let place = daemon.memberships.place()?;
    let mut offer = daemon.listeners.offer(&service, terms)?;
    let mut stream = request.into_inner();
    let mut leaving = daemon.leaving.clone();
    let answered = tokio::select! {
        answered = answer(&mut offer) => answered,
        why = said_before(&mut stream) => Err(why),
        () = leaving.told() => Err(ends()),
    };
    let accepted = match answered {
        Ok(accepted) => accepted,
        Err(error) => {
            offer.end(error.message.clone());
            return Err(error);
        }
    };
    let (tell, events) = mpsc::channel(JOIN_EVENTS_MAX);
    let joined = JoinEvent { event: Some(Event::Joined(joined(daemon, &delegation, &accepted))) };
    // There is room for it.
    let _ = tell.try_send(Ok(joined));
    tokio::spawn(async move {
        let _place = place;
        let ended = tokio::select! {
            ended = last(&mut offer, &mut stream) => ended,
            () = leaving.told() => Ended::Here("the daemon of its host ends".to_owned()),
        };
        match ended {
            Ended::There(reason) => offer.end(reason),
            Ended::Here(reason) => {
                offer.end(reason.clone());
                let _ = tell.try_send(Ok(JoinEvent { event: Some(Event::Left(reason)) }));
            }
        }
    });
    Ok(ReceiverStream::new(events))
}

/// The sender may take this member for its peer.
fn joined(daemon: &Daemon, delegation: &Delegation, accepted: &Acceptance) -> proto::Joined {
    let proof = delegation.prove(&daemon.certificates, accepted.address, accepted.mac);
    proto::Joined { proof: proof.unwrap_or_default(), ..accepted.told() }
}

/// What the application answers.
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

/// The sender's daemon has nothing to say before it has its answer, but that it no longer wants it.
async fn said_before(stream: &mut Streaming<JoinRequest>) -> ControlError {
    match stream.message().await {
        Ok(Some(JoinRequest { say: Some(Say::Ended(why)) })) => invalid(reason(why)),
        Ok(Some(_)) => invalid("a daemon waits for its answer before it goes on"),
        Ok(None) | Err(_) => {
            ControlError::new(ErrorKind::Unavailable, "its sender's host no longer asks")
        }
    }
}

/// Who has ended a membership, and why.
enum Ended {
    Here(String),
    There(String),
}

async fn last(offer: &mut Offer, stream: &mut Streaming<JoinRequest>) -> Ended {
    loop {
        tokio::select! {
            left = &mut offer.left => return Ended::Here(left.map_or_else(
                |_| "its application has ended".to_owned(),
                |reason| format!("its application has left: {reason}"),
            )),
            said = stream.message() => match said {
                Ok(Some(proto::JoinRequest { say: Some(Say::Begun(id)) })) => offer.begun(id),
                Ok(Some(JoinRequest { say: Some(Say::Ended(why)) })) => {
                    return Ended::There(reason(why));
                }
                Ok(Some(_)) => {
                    return Ended::Here("its sender's daemon says what makes no sense".to_owned());
                }
                Ok(None) | Err(_) => {
                    return Ended::There("the daemon of the sender's host has hung up, or is gone".to_owned());
                }
            },
        }
    }
}
