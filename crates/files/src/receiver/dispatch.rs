//! Which event means what to a session: the same for real receivers and simulated ones.

use super::{
    error::ReceiveError,
    event::Event,
    membership::News,
    session::{Session, Stage, unexpected},
};
use crate::messages::ToReceiver;

/// Before the session: what the root wants, once it has said so.
pub fn first<G>(event: Event<G>) -> Result<Option<ToReceiver>, ReceiveError> {
    match event {
        Event::Root(Ok(first @ (ToReceiver::Offer(_) | ToReceiver::Bench(_)))) => Ok(Some(first)),
        event => judge(event).map(|()| None),
    }
}

/// Tells a session what has happened. True once the copy has its name, after which nothing more is to be told.
pub fn handle<S: Stage>(
    session: &mut Session,
    stage: &mut S,
    event: Event<S::Group>,
) -> Result<bool, ReceiveError> {
    match event {
        Event::Root(Ok(message)) => return session.told(stage, message),
        Event::Joined(number, Ok(group)) => {
            if session.is_joining(number) {
                stage.stands(number, group);
                session.joined(stage, number, Ok(()))?;
            } else {
                stage.let_go(number, group);
            }
        }
        Event::Joined(number, Err(error)) => session.joined(stage, number, Err(error))?,
        Event::Group(News::Ended(number, outcome)) => {
            stage.ended(number);
            session.ended(stage, number, outcome)?;
        }
        Event::Group(News::Whole) => session.whole(stage)?,
        Event::OwnDigest(digest) => session.digested(stage, digest)?,
        event @ Event::Root(Err(_)) => judge(event)?,
    }
    Ok(false)
}

/// What an event means that is not expected now: mostly nothing.
pub fn judge<G>(event: Event<G>) -> Result<(), ReceiveError> {
    match event {
        Event::Root(Ok(message)) => unexpected(message),
        Event::Root(Err(error)) => Err(ReceiveError::Root(error)),
        Event::Joined(..) | Event::Group(_) | Event::OwnDigest(_) => Ok(()),
    }
}
