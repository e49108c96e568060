//! Runs a context's engine: takes commands and hands out events.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, SendError, Sender};
use engine::{Engine, Event, GroupSettings};
use session::Deadline;
use transport::{Region, Transport};

use crate::{
    CompletionMode, Error, Failure, FailureKind,
    commands::{Command, CommandReceiver},
    creation::creating::Creating,
    disks::DiskThreads,
    network::{Link, Network},
    outlet::{Due, Job, Outlet},
    panics::panic_text,
};

/// How long hybrid completion polls after the last completion (DSN 2018 section 4.2).
const HYBRID_POLLING: Duration = Duration::from_millis(50);

/// The longest sleep; an upper bound only, since commands and completions end it.
const SLEEP_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Worker {
    engine: Engine<Network>,
    commands: Receiver<Command>,
    creating: Creating,
    failed: Arc<OnceLock<String>>,
    /// Outlets by group number, with this member's rank in the group.
    outlets: HashMap<u64, (u32, Box<dyn Outlet>)>,
    mode: CompletionMode,
    last_completion: Instant,
    events: Vec<Event>,
    /// Set once the worker is to stop: how long [`Worker::finish`] may take.
    stopping: Option<Duration>,
}

impl Worker {
    /// Returns a worker of what the commands' receiver gets.
    pub(crate) fn new(
        transport: Network,
        mode: CompletionMode,
        disks: Arc<DiskThreads>,
        creating: Creating,
        commands: CommandReceiver,
    ) -> Self {
        Self {
            engine: Engine::with_disks(transport, disks),
            commands: commands.receiver,
            creating,
            failed: commands.failed,
            outlets: HashMap::new(),
            mode,
            last_completion: Instant::now(),
            events: Vec::new(),
            stopping: None,
        }
    }

    /// Runs until stopped and all groups have ended. Jobs of groups without a thread are sent to `jobs`.
    pub(crate) fn run(self, jobs: &Sender<Job>) {
        let mut due = Due::new();
        let mut running = Some(Box::new(self));
        while let Some(worker) = running.take_if(|worker| !worker.has_stopped()) {
            let polling = match worker.mode {
                CompletionMode::EventOnly => false,
                CompletionMode::Hybrid => worker.last_completion.elapsed() < HYBRID_POLLING,
                CompletionMode::Polling => true,
            };
            if polling {
                // Lets another member on the same core run; costs little if there is none.
                thread::yield_now();
            }
            let wait = if polling { Duration::ZERO } else { SLEEP_MAX };
            running = worker.attempt(&mut due, |worker, due| worker.turn(wait, due));
            for job in due.drain(..) {
                if let Err(SendError(job)) = jobs.send(job) {
                    job();
                }
            }
        }
        if let Some(worker) = running {
            worker.finish();
        }
    }

    /// Runs `act`. If it panics, all groups fail, all connections close, and the worker is dropped,
    /// since its state may be inconsistent.
    pub(crate) fn attempt(
        mut self: Box<Self>,
        due: &mut Due,
        act: impl FnOnce(&mut Self, &mut Due),
    ) -> Option<Box<Self>> {
        match catch_unwind(AssertUnwindSafe(|| act(&mut self, due))) {
            Ok(()) => Some(self),
            Err(panic) => {
                self.fail(
                    format!("the progress of its context panicked: {}", panic_text(&*panic)),
                    due,
                );
                None
            }
        }
    }

    fn fail(mut self, cause: String, due: &mut Due) {
        tracing::error!(cause, "a context has failed");
        // The engine may be inconsistent, and takes no memory any more.
        drop(self.hand_out(due));
        let Self { engine, outlets, commands, failed, .. } = self;
        let _ = failed.set(cause.clone());
        // Calls that wait for a reply return an error from now on.
        drop(commands);
        let mut regions = engine.into_memory();
        for (group, (rank, mut outlet)) in outlets {
            let kind = FailureKind::Application;
            let (member, detail) = (Some(rank), cause.clone());
            let failure = Failure { group, member, reporter: rank, kind, detail, delivered: 0 };
            let regions = regions.remove(&group).unwrap_or_default();
            outlet.take(Event::Failed { failure, regions }, due);
        }
    }

    /// Ends the transport after the worker has stopped. Before that it waits until neighbours of
    /// failed groups have received the reason: what a connection has not delivered when it is
    /// closed is lost, and the neighbours would name this member as the cause.
    pub(crate) fn finish(mut self) {
        let deadline = Deadline::after(self.stopping.unwrap_or_default());
        while self.engine.is_leaving() && !deadline.left().is_zero() {
            self.engine.progress(deadline.left(), &mut self.events);
        }
        self.engine.into_transport().finish();
    }

    /// Executes commands, makes progress, and hands out events; waits up to `wait` if there is
    /// nothing to do. Jobs of groups without a thread are added to `due`.
    pub(crate) fn turn(&mut self, wait: Duration, due: &mut Due) {
        self.take_commands();
        if self.has_stopped() {
            return;
        }
        let wait = self.creating.idle_for(self.engine.transport(), wait);
        if self.engine.progress(wait, &mut self.events) > 0 {
            self.last_completion = Instant::now();
        }
        // First, so that the end of a group is known before requests of other members that came later.
        for (group, message, region) in self.hand_out(due) {
            let accepted = self.engine.accept(group, message, region);
            let _ = self.check_taken(group, accepted);
        }
        let events = self.engine.transport_mut().take_shared_events();
        if !events.is_empty() {
            self.note_ending();
        }
        let network = self.engine.transport_mut();
        events.into_iter().for_each(|event| self.creating.on_event(network, event));
        self.creating.handle_timeout(network);
    }

    /// Returns when a turn is due at the latest, whatever the network's descriptor reports; `None` if none is.
    pub(crate) fn next_turn(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.engine.is_due() {
            return Some(now);
        }
        let network = self.engine.transport();
        let at = |due: Duration| now.checked_add(due.saturating_sub(network.now()));
        let due = [self.engine.next_deadline(), self.creating.poll_timeout()];
        let due = due.into_iter().flatten().filter_map(at).min();
        due.into_iter().chain(self.engine.transport_mut().next_tick()).min()
    }

    /// Members that ask about such groups may have ended them, and ask about the next ones.
    fn note_ending(&mut self) {
        self.engine.ending().for_each(|group| self.creating.end(group));
    }

    /// Returns memory for messages, each with its group and number.
    fn hand_out(&mut self, due: &mut Due) -> Vec<(u64, u64, Region)> {
        let (mut given, mut has_ended) = (Vec::new(), false);
        for event in self.events.drain(..) {
            let (group, last) = (event.group(), event.is_last());
            if let Some((_, outlet)) = self.outlets.get_mut(&group) {
                let memory = outlet.take(event, due).into_iter();
                given.extend(memory.map(|(message, region)| (group, message, region)));
            }
            if last {
                self.outlets.remove(&group);
                self.creating.forget(group);
                has_ended = true;
            }
        }
        if has_ended {
            // With `Progress::Caller` nothing may poll soon, and neighbours wait for this end's last bytes.
            self.engine.transport_mut().flush();
        }
        given
    }

    pub(crate) fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.carry_out(command);
        }
    }

    pub(crate) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Returns whether the worker is to stop and no group is left.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopping.is_some() && self.engine.groups().next().is_none() && self.outlets.is_empty()
    }

    fn carry_out(&mut self, command: Command) {
        // If a group has ended in the meantime, its application receives that event, and the
        // command has no effect.
        let outcome = match command {
            Command::Send { group, region, reservation } => {
                let sent = self.engine.send(group, region).map(drop);
                drop(reservation);
                self.check_taken(group, sent)
            }
            Command::Accept { group, message, region } => {
                let accepted = self.engine.accept(group, message, region);
                self.check_taken(group, accepted)
            }
            Command::Add { settings, links, outlet, reply } => {
                let _ = reply.send(self.add(*settings, links, outlet));
                Ok(())
            }
            Command::Taken { group, message } => self.engine.taken(group, message),
            Command::AskDelivered { group, count } => self.engine.ask_delivered(group, count),
            Command::Close { group } => self.engine.close(group),
            Command::Abort { group, reason } => self.engine.abort(group, &reason),
            Command::Create(step) => {
                self.note_ending();
                self.creating.step(self.engine.transport_mut(), *step);
                Ok(())
            }
            Command::Release { link } => {
                self.engine.transport_mut().release(link);
                Ok(())
            }
            Command::Register { region, reply } => {
                let _ = reply.send(self.register(&region));
                Ok(())
            }
            Command::Counters { reply } => {
                let _ = reply.send(self.engine.counters());
                Ok(())
            }
            Command::Waited { reply } => {
                let _ = reply.send(self.engine.waited());
                Ok(())
            }
            Command::Watch { reply } => {
                let _ = reply.send(self.engine.transport_mut().watch());
                Ok(())
            }
            Command::Stop { timeout } => {
                self.stopping = Some(timeout);
                let groups: Vec<u64> = self.engine.groups().collect();
                for group in groups {
                    let _ = self.engine.abort(group, "its context was closed");
                }
                Ok(())
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a command came too late");
        }
    }

    /// Fails a group whose engine has refused what the application's call has returned for already: its
    /// message would be missing for ever.
    fn check_taken(
        &mut self,
        group: u64,
        outcome: Result<(), engine::Error>,
    ) -> Result<(), engine::Error> {
        use engine::Error::{Closed, Failed, NoSuchGroup};
        match outcome {
            Err(error) if !matches!(error, Failed(_) | Closed(_) | NoSuchGroup(_)) => {
                self.engine.abort(group, &error.to_string())
            }
            outcome => outcome,
        }
    }

    fn register(&mut self, region: &Region) -> Result<(), Error> {
        let registered = self.engine.register(region);
        registered.map_err(|error| Error::Transport(error.to_string()))
    }

    fn add(
        &mut self,
        settings: GroupSettings,
        links: Vec<(u32, Link)>,
        outlet: Box<dyn Outlet>,
    ) -> Result<(), Error> {
        if self.stopping.is_some() {
            return Err(Error::ContextClosed);
        }
        let (number, rank) = (settings.number, settings.rank);
        self.engine.create(settings, links)?;
        self.outlets.insert(number, (rank, outlet));
        Ok(())
    }
}
