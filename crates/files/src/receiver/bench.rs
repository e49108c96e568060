//! A receiver in a bench: messages stay in memory.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc::Sender},
    thread,
};

use rdmc::{Application, Context, Error, Fabric, Failure, Group, Incoming, Region};

use super::{
    collective,
    dispatch::unexpected_event,
    error::ReceiveError,
    membership::MemberEvent,
    root_link::{Event, RootLink},
    session::blamed_by,
};
use crate::{
    changes::Changes,
    control::Control,
    messages::{
        Blamed, MEASURED_BYTES_MAX, Measure, Terms, ToReceiver, ToRoot, blamed, join_predicate,
        predicate,
    },
    ranges::RangeList,
};

/// The groups of a running measurement.
struct Measuring {
    number: u64,
    /// Once joined; the callbacks own the return group.
    group: Option<Group>,
}

/// Takes part in measurements until the root ends the bench.
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
                let number = measure.start.group;
                // The previous one has closed or failed.
                measuring = None;
                root.check_size(measure.bytes)?;
                match join(measure, &context, &root.control, &root.events) {
                    Ok(()) => measuring = Some(Measuring { number, group: None }),
                    Err(detail) => report_failure(root, number, None, detail)?,
                }
            }
            Event::Root(Ok(ToReceiver::Collective(request))) => {
                let (number, longest) = (request.team, request.plan.sizes.iter().copied().max());
                root.check_size(longest.unwrap_or(0))?;
                // Its thread reports the outcome.
                if let Err(detail) = collective::take_part(request, &context, &root.control) {
                    report_failure(root, number, None, detail)?;
                }
            }
            Event::Root(Ok(ToReceiver::Leave { group: number })) if current(number) => {
                if let Some(group) = measuring.take().and_then(|measuring| measuring.group) {
                    group.abort("the root has ended this measurement");
                }
            }
            Event::Root(Ok(ToReceiver::Finish)) => return Ok(()),
            Event::Joined(number, Ok(group)) if current(number) => {
                // Its callbacks answer messages until the root closes it. A group that has failed reports
                // that by an event of its own.
                let _ = group.start_close();
                measuring = Some(Measuring { number, group: Some(group) });
                root.send(&ToRoot::Joined { group: number })?;
            }
            Event::Joined(number, Err(error)) if current(number) => {
                measuring = None;
                report_failure(root, number, blamed_by(&error), join_predicate(&error))?;
            }
            Event::Group(MemberEvent::Ended(number, Err(failure))) if current(number) => {
                measuring = None;
                report_failure(root, number, blamed(&failure), predicate(&failure))?;
            }
            event => unexpected_event(event)?,
        }
    }
}

/// Sends the list of fabrics and starts the one that the root chooses.
pub(super) fn agree_on_fabric(
    root: &RootLink<'_>,
    terms: &Terms,
    measured: &OnceLock<Arc<Context>>,
) -> Result<Arc<Context>, ReceiveError> {
    let fabrics = Fabric::candidates().iter().map(Fabric::name).collect();
    root.send(&ToRoot::Prepared {
        fabrics,
        kept: RangeList::default(),
        digests: None,
        changes: Changes::default(),
    })?;
    let fabric = loop {
        match root.next()? {
            Event::Root(Ok(ToReceiver::Use { fabric, .. })) => break fabric,
            event => unexpected_event(event)?,
        }
    };
    let context = Arc::new(root.start_context(&fabric, terms)?);
    let _ = measured.set(Arc::clone(&context));
    root.send(&ToRoot::Ready { port: context.address().port() })?;
    Ok(context)
}

fn report_failure(
    root: &RootLink<'_>,
    group: u64,
    blamed: Option<Blamed>,
    detail: String,
) -> Result<(), ReceiveError> {
    let has = RangeList::default();
    root.send(&ToRoot::GroupFailed { group, blamed, detail, has })
}

/// Joins the groups on a thread that ends by the context's own deadline.
///
/// Errors: invalid terms, no memory, no thread.
fn join(
    measure: Measure,
    context: &Arc<Context>,
    control: &Arc<Control>,
    events: &Sender<Event>,
) -> Result<(), String> {
    let Measure { start, bytes, echo } = measure;
    let number = start.group;
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
            context.register(&answering.memory)?;
            let receiver = Receiver(Arc::clone(&answering));
            let group = context.create_group_with(settings, receiver)?;
            if let (Some(settings), Some(slot)) = (echo, &answering.echo) {
                let sender = Echo(Arc::clone(&answering));
                let echo = context.create_group_with(settings, sender)?;
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(echo);
            }
            Ok::<Group, Error>(group)
        })();
        // Fails only if the session has ended.
        let _ = events.send(Event::Joined(number, joined));
    };
    let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Memory for a message, touched so that the first message costs no page faults.
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

/// State shared by the callbacks of both groups.
struct Answering {
    number: u64,
    memory: Region,
    /// The return group, once joined.
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
        let _ =
            self.events.send(Event::Group(MemberEvent::Ended(self.number, Err(failure.clone()))));
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
            self.0.with_echo(|group| drop(group.try_send(self.0.memory.clone())));
        } else {
            let _ = self.0.control.send(&ToRoot::Received { group: self.0.number });
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
