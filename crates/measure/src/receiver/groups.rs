//! A receiver in measurements of messages in groups.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
};

use files::{
    predicate,
    receiver::{GatheringReceiver, GatheringSender, ReceiveError},
};
use rdmc::{Application, Context, Error, Failure, Group, GroupSettings, Incoming, Region};

use super::available;
use crate::messages::{Answer, MEASURED_BYTES_MAX, Measure, encode};

/// A running measurement; its groups end with it.
pub(super) struct Measuring {
    pub(super) number: u64,
    /// The group from the root, once joined; the callbacks own the return group.
    group: Arc<Mutex<Option<Group>>>,
}

impl Measuring {
    pub(super) fn leave(&self) {
        if let Some(group) = &*self.group.lock().unwrap_or_else(PoisonError::into_inner) {
            group.abort("the root has ended this measurement");
        }
    }
}

/// Answers the root, from any thread.
pub(super) fn answer(sender: &GatheringSender, answer: &Answer) -> Result<(), ReceiveError> {
    let message = encode(answer).map_err(|error| ReceiveError::System(error.to_string()))?;
    sender.send(message)
}

/// Joins the groups on a thread that ends by the context's own deadline. `None`: the root receives the reason why that is impossible.
///
/// Errors: the root is lost.
pub(super) fn join(
    measure: Measure,
    session: &GatheringReceiver<'_>,
) -> Result<Option<Measuring>, ReceiveError> {
    let (number, sender) = (measure.group.number, session.sender());
    match start_joining(&measure, session, &sender) {
        Ok(measuring) => Ok(Some(measuring)),
        Err(detail) => answer(&sender, &Answer::Failed { number, detail }).map(|()| None),
    }
}

/// Errors: invalid terms, no memory, no thread.
fn start_joining(
    measure: &Measure,
    session: &GatheringReceiver<'_>,
    sender: &GatheringSender,
) -> Result<Measuring, String> {
    let Measure { group, bytes, echo } = measure;
    let number = group.number;
    let joining = session.joining()?;
    let settings = session.group_settings(group)?;
    let echo = echo.as_ref().map(|echo| session.group_settings(echo));
    let echo = echo.transpose()?;
    let answering = Arc::new(Answering {
        number,
        memory: memory(*bytes, session.is_limited())?,
        echo: echo.is_some().then(Mutex::default),
        sender: sender.clone(),
    });
    let slot = Arc::default();
    let (context, joined) = (Arc::clone(session.context()), Arc::downgrade(&slot));
    let join = move || {
        let joined_both = join_both(settings, echo, &context, &answering);
        drop(joining);
        let message = match joined_both {
            Ok(group) => {
                // Its callbacks answer messages until the root closes it. A group that has failed reports that itself.
                let _ = group.start_close();
                if !keep(group, &joined) {
                    return;
                }
                Answer::Joined { number }
            }
            Err(error) => {
                let detail = answering.sender.explain(&error);
                Answer::Failed { number, detail }
            }
        };
        // Fails only if the session has ended.
        let _ = answer(&answering.sender, &message);
    };
    let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(Measuring { number, group: slot })
}

fn join_both(
    settings: GroupSettings,
    echo: Option<GroupSettings>,
    context: &Context,
    answering: &Arc<Answering>,
) -> Result<Group, Error> {
    context.register(&answering.memory)?;
    let group = context.create_group_with(settings, Receiver(Arc::clone(answering)))?;
    if let (Some(settings), Some(slot)) = (echo, &answering.echo) {
        let echo = context.create_group_with(settings, Echo(Arc::clone(answering)))?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(echo);
    }
    Ok(group)
}

/// Hands a joined group to its measurement. False if that is over, which ends the group.
fn keep(group: Group, measuring: &Weak<Mutex<Option<Group>>>) -> bool {
    let Some(slot) = measuring.upgrade() else { return false };
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    true
}

/// Memory for a message, touched so that the first message costs no page faults.
fn memory(bytes: u64, is_limited: bool) -> Result<Region, String> {
    if bytes > MEASURED_BYTES_MAX {
        return Err(format!("messages of {bytes} bytes are too long to be measured in memory"));
    }
    if is_limited {
        available::check(bytes)?;
    }
    let refused = || format!("no memory for messages of {bytes} bytes");
    let length = usize::try_from(bytes).map_err(|_| refused())?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(length).map_err(|_| refused())?;
    memory.resize(length, 1);
    Ok(Region::from_vec(memory))
}

/// State shared by the callbacks of both groups.
struct Answering {
    number: u64,
    memory: Region,
    /// The return group, once joined.
    echo: Option<Mutex<Option<Group>>>,
    sender: GatheringSender,
}

impl Answering {
    fn with_echo(&self, act: impl FnOnce(&Group)) {
        if let Some(slot) = &self.echo
            && let Some(group) = &*slot.lock().unwrap_or_else(PoisonError::into_inner)
        {
            act(group);
        }
    }

    fn fail(&self, failure: &Failure) {
        let _ = answer(
            &self.sender,
            &Answer::Failed { number: self.number, detail: predicate(failure) },
        );
    }
}

/// Callbacks of the group from the root.
struct Receiver(Arc<Answering>);

impl Application for Receiver {
    fn incoming(&mut self, _message: u64, bytes: u64) -> Incoming {
        // One message at a time: the previous one has returned the memory.
        match self.0.memory.len() as u64 {
            expected if expected == bytes => Incoming::Into(self.0.memory.clone()),
            expected => {
                Incoming::Refuse(format!("expected a message of {expected} bytes, not {bytes}"))
            }
        }
    }

    fn received(&mut self, _message: u64) {
        // A lost group or connection reports an event of its own.
        if self.0.echo.is_some() {
            self.0.with_echo(|group| match group.try_send(self.0.memory.clone()) {
                Ok(_) | Err(Error::Failed(_) | Error::Closed(_)) => {}
                Err(error) => group.abort(&format!("a message cannot be returned: {error}")),
            });
        } else {
            let _ = answer(&self.0.sender, &Answer::Received { number: self.0.number });
        }
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.0.with_echo(|group| group.abort("the group from the root has failed"));
        self.0.fail(failure);
    }

    fn closed(&mut self) {
        self.0.with_echo(|group| drop(group.start_close()));
    }
}

/// Callbacks of the return group.
struct Echo(Arc<Answering>);

impl Application for Echo {
    fn incoming(&mut self, _message: u64, _bytes: u64) -> Incoming {
        Incoming::Refuse("the root of the return group receives nothing".into())
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.0.fail(failure);
    }
}
