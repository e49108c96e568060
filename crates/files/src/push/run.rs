//! The loop that drives the state machine of a session.

use std::time::{Duration, Instant};

use session::Deadline;

use super::{
    dispatch::{handle, linger_timeout, step},
    effects::Effects,
    inbox::{Event, Input},
    io::Io,
    machine::RootMachine,
    prepared::Prepared,
    settings::{PushError, PushEvent},
};

use crate::resume::Chunking;

/// The longest wait for an event.
const IDLE: Duration = Duration::from_secs(60);
/// The most events before deadlines are looked at again.
const EVENTS_MAX: usize = 1000;

/// A session that is running: a push, a stream, or one of an application.
pub(super) struct Run<'a> {
    pub(super) push: &'a Prepared,
    started: Instant,
    pub(super) core: RootMachine<'a>,
    pub(super) io: Io<'a>,
}

impl<'a> Run<'a> {
    pub(super) fn new(push: &'a Prepared, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        let listing_bytes = || push.encoded_listing().len() as u64;
        let mut core = match (push.is_stream(), push.is_tree()) {
            (_, is_tree) if push.is_served => {
                let listing_bytes = is_tree.then(listing_bytes);
                RootMachine::of_served(
                    &push.settings,
                    Chunking::of_links(push.bytes()),
                    listing_bytes,
                )
            }
            (true, _) => RootMachine::of_stream(&push.settings),
            (_, true) => {
                let core = RootMachine::of_tree(&push.settings, push.bytes(), listing_bytes());
                match push.source.as_ref().and_then(|source| source.read_by_hosts_in()) {
                    Some(subtrees) => core.read_by_hosts(subtrees),
                    None => core,
                }
            }
            _ => RootMachine::new(&push.settings, push.bytes()),
        };
        if push.is_application() {
            core.hosts.wait_for_all();
        }
        Self { push, started: Instant::now(), core, io: Io::new(push, observe) }
    }

    /// Replicates what `start_reading` starts to read. Errors: those that end the push early.
    pub(super) fn replicate(
        &mut self,
        start_reading: impl FnOnce(&mut Io<'_>) -> Result<(), PushError>,
    ) -> Result<(), PushError> {
        let begun = self.io.start().and_then(|()| start_reading(&mut self.io));
        begun.unwrap_or_else(|error| self.core.stop(&mut self.io, error));
        while !self.core.is_over() {
            let first = self.next(None);
            self.turn(first);
        }
        self.core.outcome()
    }

    /// Serves hosts that come what `start_reading` starts to read, until none is left, and `end` gives no further event.
    /// Errors: those that end the session early.
    pub(super) fn serve(
        &mut self,
        start_reading: impl FnOnce(&mut Io<'_>) -> Result<(), PushError>,
        mut end: impl FnMut() -> Option<Input>,
    ) -> Result<(), PushError> {
        start_reading(&mut self.io).unwrap_or_else(|error| self.core.stop(&mut self.io, error));
        loop {
            let is_left = !self.core.is_over() || !self.io.connected().is_empty();
            let first = match is_left {
                true => self.next(None),
                false => match end() {
                    None => return self.core.outcome(),
                    event => event,
                },
            };
            self.turn(first);
        }
    }

    /// Handles this input and those that have come since, and does everything that is possible then.
    fn turn(&mut self, first: Option<Input>) {
        let further = std::iter::from_fn(|| self.push.inbox.try_recv().ok());
        let mut inputs = first.into_iter().chain(further).take(EVENTS_MAX);
        // No application wakes a push.
        let next = |_: &mut Io<'_>| {
            inputs.find_map(|input| match input {
                Input::Event(event) => Some(event),
                Input::Woken => None,
            })
        };
        step(&mut self.core, &mut self.io, self.started.elapsed(), next);
    }

    /// Waits until every host is ready or has failed; not in a push.
    pub(super) fn gather(&mut self) -> Result<(), PushError> {
        self.io.start()?;
        while self.core.is_gathering() {
            if let Some(Input::Event(event)) = self.next(None) {
                self.handle(event)?;
            }
            self.core.gather(&mut self.io)?;
        }
        Ok(())
    }

    /// Sends all receivers the last message and waits a short time for them to disconnect.
    pub(super) fn end(&mut self) {
        self.io.send_finish();
        let since = Instant::now();
        while let Some(timeout) = linger_timeout(&self.core, &self.io)
            && let left = timeout.saturating_sub(since.elapsed())
            && !left.is_zero()
        {
            if let Ok(Input::Event(Event::Disconnected { host, connection, .. })) =
                self.push.inbox.recv_timeout(left)
            {
                self.io.disconnect(host, connection);
            }
        }
        self.io.close();
    }

    /// Waits for the next event, until this deadline or the state machine's.
    pub(super) fn next(&mut self, deadline: Option<Deadline>) -> Option<Input> {
        let now = self.started.elapsed();
        let until = self.core.deadline().map_or(IDLE, |at| at.saturating_sub(now).min(IDLE));
        let wait = deadline.map_or(until, |deadline| deadline.left().min(until));
        let input = self.push.inbox.recv_timeout(wait).ok();
        self.core.now = self.started.elapsed();
        input
    }

    /// Handles one event, not in a push.
    pub(super) fn handle(&mut self, event: Event) -> Result<(), PushError> {
        handle(&mut self.core, &mut self.io, event)
    }
}
