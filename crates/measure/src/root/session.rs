//! The hosts that take part, and one queue of what they and the root's own threads report.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Instant,
};

use files::{Gathering, GatheringRoot, GatheringWaker, PushError, PushEvent};
use rdmc::{Error, Failure, Group};
use session::Deadline;

use crate::{
    CollectiveMeasurement,
    messages::{Answer, Request, decode, encode},
};

/// What a thread of the root reports.
#[derive(Debug)]
pub(crate) enum Event {
    /// The group and the return group.
    Joined(Result<(Group, Option<Group>), Error>),
    /// A message was returned.
    Echoed(Instant),
    Failed(Failure),
    /// Members that this one could not connect to, by rank, with the reason.
    Reached(Result<Vec<(u32, String)>, String>),
    /// A length of a team's operation was measured; `None` after the last.
    Collective(Result<Option<CollectiveMeasurement>, Error>),
}

/// An input of a measurement.
pub(crate) enum Input {
    /// Of the measurement with this number.
    Reported(u64, Event),
    /// By this host.
    Answered(usize, Answer),
}

/// Reports the events of one measurement from any thread.
#[derive(Clone)]
pub(crate) struct Reporter {
    number: u64,
    events: Sender<(u64, Event)>,
    waker: GatheringWaker,
}

impl Reporter {
    pub(crate) fn report(&self, event: Event) {
        // Fails only if the bench has ended.
        if self.events.send((self.number, event)).is_ok() {
            self.waker.wake();
        }
    }
}

/// A bench that runs.
pub(crate) struct Session<'a> {
    pub(crate) gathering: &'a Gathering,
    pub(crate) root: GatheringRoot<'a>,
    events: Sender<(u64, Event)>,
    inbox: Receiver<(u64, Event)>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(gathering: &'a Gathering, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        let (events, inbox) = mpsc::channel();
        Self { gathering, root: gathering.root(observe), events, inbox }
    }

    pub(crate) fn reporter(&self, number: u64) -> Reporter {
        Reporter { number, events: self.events.clone(), waker: self.gathering.waker() }
    }

    /// Errors: those of [`encode`].
    pub(crate) fn send(&mut self, host: usize, request: &Request) -> Result<(), PushError> {
        self.root.send(host, encode(request)?);
        Ok(())
    }

    /// Waits for an input. `None`: a host may have failed, or the deadline has passed.
    ///
    /// Errors: those that end the bench.
    pub(crate) fn next(&mut self, deadline: Deadline) -> Result<Option<Input>, PushError> {
        if let Ok((number, event)) = self.inbox.try_recv() {
            return Ok(Some(Input::Reported(number, event)));
        }
        let Some((host, message)) = self.root.next(deadline)? else { return Ok(None) };
        match decode(&message) {
            Ok(answer) => Ok(Some(Input::Answered(host, answer))),
            Err(why) => {
                self.root.fail(host, &format!("it {why}"));
                Ok(None)
            }
        }
    }
}

/// Runs this on a thread of its own. Errors: there is none.
pub(crate) fn start_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), PushError> {
    let system = |error: io::Error| Error::System { what: "starting a thread".to_owned(), error };
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    Ok(thread.map(drop).map_err(system)?)
}
