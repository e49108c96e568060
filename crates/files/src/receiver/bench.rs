//! A receiver whose messages are measured: they go into memory, and nothing is written.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc::Sender},
    thread,
};

use rdmc::{Application, Context, Error, Fabric, Failure, Group, Incoming, Region};

use super::{
    dispatch::judge,
    error::ReceiveError,
    membership::News,
    root_link::{Event, RootLink},
    session::culprit,
};
use crate::{
    control::Control,
    messages::{MEASURED_BYTES_MAX, Measure, Terms, ToReceiver, ToRoot, join_predicate, predicate},
    ranges::RangeList,
};

/// The groups of a measurement, from being joined until the root ends them.
struct Measuring {
    number: u64,
    /// There once it is joined; the group back to the root belongs to its callbacks.
    group: Option<Group>,
}

/// Takes part in measurements until the root says that it is done.
pub(super) fn take_part(
    root: &RootLink<'_>,
    terms: &Terms,
    measured: &OnceLock<Arc<Context>>,
) -> Result<(), ReceiveError> {
    let context = agree_on_fabric(root, terms, measured)?;
    let mut measuring: Option<Measuring> = None;
    loop {
        let current = |number| measuring.as_ref().is_some_and(|m| m.number == number);
        match root.next()? {
            Event::Root(Ok(ToReceiver::Measure(measure))) => {
                let number = measure.start.round;
                // The one before has closed or failed.
                measuring = None;
                root.check_size(measure.bytes)?;
                match join(measure, &context, &root.control, &root.events) {
                    Ok(()) => measuring = Some(Measuring { number, group: None }),
                    Err(detail) => tell_failure(root, number, None, detail)?,
                }
            }
            Event::Root(Ok(ToReceiver::Leave { round })) if current(round) => {
                if let Some(group) = measuring.take().and_then(|measuring| measuring.group) {
                    group.abort("the root has given this measurement up");
                }
            }
            Event::Root(Ok(ToReceiver::Finish)) => return Ok(()),
            Event::Joined(number, Ok(group)) if current(number) => {
                // Nothing is left to do but to answer until the root closes it. A group that
                // has failed already says so itroot.
                let _ = group.start_close();
                measuring = Some(Measuring { number, group: Some(group) });
                root.tell(&ToRoot::Joined { round: number })?;
            }
            Event::Joined(number, Err(error)) if current(number) => {
                measuring = None;
                tell_failure(root, number, culprit(&error), join_predicate(&error))?;
            }
            Event::Group(News::Ended(number, Err(failure))) if current(number) => {
                measuring = None;
                tell_failure(root, number, failure.member, predicate(&failure))?;
            }
            event => judge(event)?,
        }
    }
}

/// Offers the fabrics that are here, and starts the one that the root chooses.
fn agree_on_fabric(
    root: &RootLink<'_>,
    terms: &Terms,
    measured: &OnceLock<Arc<Context>>,
) -> Result<Arc<Context>, ReceiveError> {
    let fabrics = Fabric::candidates().iter().map(Fabric::name).collect();
    root.tell(&ToRoot::Prepared { fabrics, leftover: None })?;
    let fabric = loop {
        match root.next()? {
            Event::Root(Ok(ToReceiver::Use { fabric, .. })) => break fabric,
            event => judge(event)?,
        }
    };
    let context = Arc::new(root.start_context(&fabric, terms)?);
    let _ = measured.set(Arc::clone(&context));
    root.tell(&ToRoot::Ready { port: context.address().port() })?;
    Ok(context)
}

fn tell_failure(
    root: &RootLink<'_>,
    round: u64,
    member: Option<u32>,
    detail: String,
) -> Result<(), ReceiveError> {
    let has = RangeList::default();
    root.tell(&ToRoot::RoundFailed { round, member, detail, has })
}

/// Joins the groups on a thread that ends by the context's own deadline for that.
///
/// Errors: terms that make no groups, no memory, no thread.
fn join(
    measure: Measure,
    context: &Arc<Context>,
    control: &Arc<Control>,
    events: &Sender<Event>,
) -> Result<(), String> {
    let Measure { start, bytes, echo } = measure;
    let number = start.round;
    let settings = start.group_settings().map_err(|error| error.to_string())?;
    let echo = match echo {
        Some(echo) => {
            let settings = echo.group_settings().map_err(|error| error.to_string())?;
            Some(settings)
        }
        None => None,
    };
    let answering = Arc::new(Answering {
        number,
        memory: memory(bytes)?,
        echo: echo.is_some().then(Mutex::default),
        control: Arc::clone(control),
        events: events.clone(),
    });
    let (context, events) = (Arc::clone(context), events.clone());
    let join = move || {
        let joined = (|| {
            let receiver = Receiver(Arc::clone(&answering));
            let group = context.create_group_with(settings, receiver)?;
            if let (Some(settings), Some(slot)) = (echo, &answering.echo) {
                let sender = Echo(Arc::clone(&answering));
                let echo = context.create_group_with(settings, sender)?;
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(echo);
            }
            Ok::<Group, Error>(group)
        })();
        // A session that has ended wants to hear no more.
        let _ = events.send(Event::Joined(number, joined));
    };
    let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Memory for a message, touched, so that its first message is like the others.
fn memory(bytes: u64) -> Result<Region, String> {
    if bytes > MEASURED_BYTES_MAX {
        return Err(format!("messages of {bytes} bytes are too long to be measured in memory"));
    }
    let refused = || format!("no memory for messages of {bytes} bytes");
    let length = usize::try_from(bytes).map_err(|_| refused())?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(length).map_err(|_| refused())?;
    memory.resize(length, 1);
    Ok(Region::from_vec(memory))
}

/// What both groups' callbacks know.
struct Answering {
    number: u64,
    memory: Region,
    /// The group back to the root, once it stands.
    echo: Option<Mutex<Option<Group>>>,
    control: Arc<Control>,
    events: Sender<Event>,
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
        let _ = self.events.send(Event::Group(News::Ended(self.number, Err(failure.clone()))));
    }
}

/// Callbacks of the group from the root.
struct Receiver(Arc<Answering>);

impl Application for Receiver {
    fn incoming(&mut self, _message: u64, bytes: u64) -> Incoming {
        // One message at a time: the one before has given the memory back.
        match self.0.memory.len() as u64 {
            expected if expected == bytes => Incoming::Into(self.0.memory.clone()),
            expected => Incoming::Refuse(format!("{expected} bytes were announced, not {bytes}")),
        }
    }

    fn received(&mut self, _message: u64) {
        // A group or a connection that is lost says so itself.
        if self.0.echo.is_some() {
            self.0.with_echo(|group| drop(group.try_send(self.0.memory.clone())));
        } else {
            let _ = self.0.control.send(&ToRoot::Received { round: self.0.number });
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

/// Callbacks of the group back to the root.
struct Echo(Arc<Answering>);

impl Application for Echo {
    fn incoming(&mut self, _message: u64, _bytes: u64) -> Incoming {
        Incoming::Refuse("the root of the group back receives nothing".into())
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.0.fail(failure);
    }
}
