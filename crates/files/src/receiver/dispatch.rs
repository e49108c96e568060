//! Passes events to a session, in real and in simulated receivers.

use super::{
    error::ReceiveError,
    event::Event,
    machine::{Effects, ReceiverMachine, unexpected_message},
    membership::MemberEvent,
};
use crate::messages::ToReceiver;

/// Before the session: the root's first message, if this event is it.
pub fn first<G>(event: Event<G>) -> Result<Option<ToReceiver>, ReceiveError> {
    match event {
        Event::Root(Ok(
            first @ (ToReceiver::Offer(_) | ToReceiver::Gather(_) | ToReceiver::Stream(_)),
        )) => Ok(Some(first)),
        event => unexpected_event(event).map(|()| None),
    }
}

/// Passes one event to a session. True once the copy is published; the session takes no events after that.
pub fn handle<S: Effects>(
    session: &mut ReceiverMachine,
    effects: &mut S,
    event: Event<S::Group>,
) -> Result<bool, ReceiveError> {
    match event {
        Event::Root(Ok(message)) => return session.on_message(effects, message),
        Event::Joined(number, Ok(group)) => {
            if session.is_joining(number) {
                effects.add_group(number, group);
                session.on_joined(effects, number, Ok(()))?;
            } else {
                effects.discard_group(number, group);
            }
        }
        Event::Joined(number, Err(error)) => session.on_joined(effects, number, Err(error))?,
        Event::Group(MemberEvent::Ended(number, outcome)) => {
            effects.remove_group(number);
            session.on_ended(effects, number, outcome)?;
        }
        Event::Group(MemberEvent::Listed(number)) => session.on_listed(effects, number)?,
        Event::Group(MemberEvent::Complete) => session.on_complete(effects)?,
        Event::Group(MemberEvent::Altered(number, at)) => {
            session.on_altered(effects, number, at)?;
        }
        Event::Read(digests) => session.on_read(effects, digests)?,
        Event::OwnDigest(digest) => session.on_digest(effects, digest)?,
        Event::Published(was_there) => {
            session.on_published(effects, was_there);
            return Ok(true);
        }
        event @ (Event::Root(Err(_)) | Event::Failed(_)) => unexpected_event(event)?,
    }
    Ok(false)
}

/// Handles an event that is not expected now: most are ignored.
pub fn unexpected_event<G>(event: Event<G>) -> Result<(), ReceiveError> {
    match event {
        Event::Root(Ok(message)) => unexpected_message(message),
        Event::Root(Err(error)) => Err(ReceiveError::Root(error)),
        Event::Failed(error) => Err(error),
        Event::Joined(..)
        | Event::Group(_)
        | Event::Read(_)
        | Event::OwnDigest(_)
        | Event::Published(_) => Ok(()),
    }
}
