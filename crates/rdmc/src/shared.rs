//! The state that a group's handles, callbacks and progress thread share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, ThreadId},
    time::Duration,
};
#[cfg(feature = "async")]
use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll, Waker},
};

use engine::{Event, Slot, check_region};
use relay::{Blocks, RelayError};
use session::Deadline;
use transport::Region;

#[cfg(feature = "async")]
use crate::panics::panic_text;
use crate::{
    Error, Failure, GroupSettings, Offload,
    caller::{Call, Caller},
    commands::{Command, Commands},
    inbox::{Given, Inbox},
};

/// The state that a group's handles, callbacks and progress thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: GroupSettings,
    /// The engine's form of `settings`.
    pub(crate) made: engine::GroupSettings,
    pub(crate) offload: Offload,
    commands: Commands,
    /// Set with [`crate::Progress::Caller`]: a thread that waits makes progress.
    caller: Option<Arc<Caller>>,
    status: Mutex<Status>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Status {
    pub(crate) sent: u64,
    pub(crate) completed: u64,
    /// How many messages every member has, as far as is known here.
    pub(crate) delivered: u64,
    /// Messages that wait for memory, with their lengths.
    awaited: BTreeMap<u64, u64>,
    pub(crate) closing: bool,
    /// Its application has aborted or dropped it.
    aborting: bool,
    pub(crate) closed: bool,
    pub(crate) failure: Option<Failure>,
    /// The last callback has returned.
    pub(crate) finished: bool,
    /// Creating the group has failed: its application receives no callbacks.
    abandoned: bool,
    /// The thread that runs the application's code for this group, if there is one.
    callback_thread: Option<ThreadId>,
    /// Set for a group without callbacks.
    pub(crate) inbox: Option<Inbox>,
    /// For a group without callbacks: the messages that were sent and whose handle exists, with
    /// their memory once they are complete.
    pub(crate) sent_memory: BTreeMap<u64, Option<Region>>,
    /// Woken at the next change.
    #[cfg(feature = "async")]
    wakers: Vec<Waker>,
}

impl Shared {
    /// Makes the state of a group that has callbacks, or else an inbox.
    pub(crate) fn new(
        settings: GroupSettings,
        made: engine::GroupSettings,
        offload: Offload,
        commands: Commands,
        caller: Option<Arc<Caller>>,
        inbox: Option<Inbox>,
    ) -> Arc<Self> {
        let (status, changed) = (Status { inbox, ..Status::default() }, Condvar::new());
        let status = Mutex::new(status);
        Arc::new(Self { settings, made, offload, commands, caller, status, changed })
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Updates the status for an event, before its callback runs.
    pub(crate) fn note(&self, event: &Event) {
        let mut status = self.status();
        match event {
            // No call waits for these.
            Event::Incoming { message, bytes, .. } => {
                status.awaited.insert(*message, *bytes);
            }
            Event::Block { .. } | Event::Received { .. } => {}
            _ => {
                status.note(event);
                self.changed(status);
            }
        }
    }

    /// Wakes all threads and tasks that wait for the group.
    pub(crate) fn changed(&self, status: MutexGuard<'_, Status>) {
        #[cfg(feature = "async")]
        let (mut status, wakers) = (status, Vec::new());
        #[cfg(feature = "async")]
        let wakers = std::mem::replace(&mut status.wakers, wakers);
        drop(status);
        self.changed.notify_all();
        if let Some(caller) = &self.caller {
            caller.notify();
        }
        #[cfg(feature = "async")]
        for waker in wakers {
            // It is the application's: the thread that makes progress survives its panic.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                self.abort(&format!("waking a task panicked: {}", panic_text(&*panic)));
            }
        }
    }

    /// Hands memory to the engine, which has the length of its message or more.
    pub(crate) fn give(&self, given: Given) -> Result<(), Error> {
        let group = self.settings.number;
        for (message, region) in given {
            self.commands.give(Command::Accept { group, message, region })?;
        }
        Ok(())
    }

    /// Queues a message at the root, or returns its memory in the error if too many are queued.
    pub(crate) fn send(&self, region: Region) -> Result<u64, Error> {
        self.check_root()?;
        let settings = &self.settings;
        let blocks = Blocks::new(region.len() as u64, self.made.block_bytes)?;
        if self.offload.is_used() {
            blocks.check_offload(settings.messages_in_flight)?;
        }
        // The lock keeps numbers and commands in the same order.
        let mut status = self.status();
        status.check_open(settings.number)?;
        if !self.has_room(&status) {
            let messages = settings.send_queue_max;
            return Err(Error::QueueFull { group: settings.number, messages, region });
        }
        let message = status.sent;
        // From now on, not only once the worker looks.
        let mut reservation = region.reserve();
        let reserved = reservation.add(0..region.len());
        debug_assert_eq!(reserved, Ok(()), "it is the whole region");
        let command = Command::Send { group: settings.number, region, reservation };
        if let Err(refused) = self.commands.try_give(command) {
            // The region's owner may be the application's.
            drop(status);
            drop(refused);
            return Err(self.commands.ended());
        }
        status.sent += 1;
        if status.inbox.is_some() {
            status.sent_memory.insert(message, None);
        }
        Ok(message)
    }

    fn check_root(&self) -> Result<(), Error> {
        let (root, rank) = (self.settings.root, self.settings.rank);
        if rank == root { Ok(()) } else { Err(RelayError::NotRoot { root, rank }.into()) }
    }

    fn has_room(&self, status: &Status) -> bool {
        status.sent - status.completed < u64::from(self.settings.send_queue_max)
    }

    /// Waits until another message may be queued, or the group ends. Returns `false` at the
    /// deadline.
    ///
    /// Errors: as [`Shared::wait`].
    pub(crate) fn wait_for_room(&self, deadline: Deadline) -> Result<bool, Error> {
        let call = Call { name: "send", instead: "use try_send there" };
        Ok(self.wait(call, deadline, |status| self.check_room(status))?.is_some())
    }

    /// Returns `Some` if another message may be queued, or never will be.
    pub(crate) fn check_room(&self, status: &Status) -> Option<()> {
        (status.closing || status.has_ended() || self.has_room(status)).then_some(())
    }

    pub(crate) fn accept(&self, message: u64, region: Region) -> Result<(), Error> {
        let mut status = self.status();
        self.check_memory(&status, message, &region)?;
        status.awaited.remove(&message);
        drop(status);
        self.give(vec![(message, region)])
    }

    /// Accepts a message that lies in a slot. If earlier ones are complete, copies it on this thread and
    /// returns the region: its events are to be delivered now.
    pub(crate) fn accept_from(
        &self,
        slot: &Slot,
        message: u64,
        region: Region,
    ) -> Result<Option<Region>, Error> {
        let mut status = self.status();
        self.check_memory(&status, message, &region)?;
        // The engine reports memory that is in use.
        let is_copied =
            status.completed == message && !region.is_stored() && slot.copy_to(&region).is_ok();
        status.awaited.remove(&message);
        drop(status);
        if !is_copied {
            return self.give(vec![(message, region)]).map(|()| None);
        }
        self.commands.leave(Command::Taken { group: self.settings.number, message })?;
        if slot.note_done() {
            self.commands.wake();
        }
        Ok(Some(region))
    }

    /// Checks that this memory can take an awaited message.
    fn check_memory(&self, status: &Status, message: u64, region: &Region) -> Result<(), Error> {
        let group = self.settings.number;
        status.check_alive(group)?;
        let Some(&bytes) = status.awaited.get(&message) else {
            return Err(RelayError::Unknown { what: "message", number: message }.into());
        };
        check_region(group, message, bytes, region).map_err(|error| match error {
            engine::Error::RegionTooSmall { .. } => {
                Error::RegionTooSmall { group, message, bytes, region: region.clone() }
            }
            engine::Error::RegionReadOnly { .. } => {
                Error::RegionReadOnly { group, region: region.clone() }
            }
            error => error.into(),
        })
    }

    pub(crate) fn start_close(&self) -> Result<(), Error> {
        let number = self.settings.number;
        let mut status = self.status();
        if std::mem::replace(&mut status.closing, true) {
            return Err(status.failure.clone().map_or(Error::Closed(number), Error::Failed));
        }
        // A group that the root has closed is closed with success.
        if status.closed {
            return Ok(());
        }
        if let Some(failure) = &status.failure {
            return Err(Error::Failed(failure.clone()));
        }
        self.commands.give(Command::Close { group: number })
    }

    pub(crate) fn abort(&self, reason: &str) {
        let group = self.settings.number;
        self.status().aborting = true;
        // If the context is closed, the group has failed already.
        let _ = self.commands.give(Command::Abort { group, reason: reason.to_owned() });
    }

    /// Notes that the calling thread runs the application's code for this group, if it does nothing else.
    pub(crate) fn set_callback_thread(&self) {
        if self.caller.is_none() {
            self.status().callback_thread = Some(thread::current().id());
        }
    }

    /// Returns whether the calling thread runs a callback that this group's callbacks wait for.
    pub(crate) fn is_inside_callback(&self) -> bool {
        self.status().callback_thread == Some(thread::current().id())
            || self.caller.as_ref().is_some_and(|caller| caller.is_driven_here())
    }

    /// Ends a group whose creation has failed, without callbacks.
    pub(crate) fn abandon(&self, reason: &str) {
        let mut status = self.status();
        status.abandoned = true;
        let inbox = status.inbox.take();
        drop(status);
        drop(inbox);
        self.abort(reason);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.status().abandoned
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status().has_ended()
    }

    /// Waits for the end of a group that its application has aborted or dropped. Returns whether it has ended.
    pub(crate) fn await_abort(&self, deadline: Deadline) -> bool {
        let call = Call { name: "create", instead: "use another number there" };
        let step = |status: &mut Status| {
            (status.has_ended() || !status.aborting).then(|| status.has_ended())
        };
        matches!(self.wait(call, deadline, step), Ok(Some(true)))
    }

    /// Returns whether the last callback has returned.
    pub(crate) fn is_finished(&self) -> bool {
        self.status().finished
    }

    pub(crate) fn set_finished(&self) {
        let mut status = self.status();
        status.finished = true;
        self.changed(status);
    }

    pub(crate) fn wait_complete(&self, messages: u64, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        let call = Call { name: "wait", instead: "use is_complete there" };
        let number = self.settings.number;
        let step = |status: &mut Status| status.check_complete(number, messages);
        self.wait(call, deadline, step)?.unwrap_or_else(|| {
            let last = messages.saturating_sub(1);
            Err(deadline.missed(format!("message {last} of group {number}")).into())
        })
    }

    pub(crate) fn wait_delivered(&self, messages: u64, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        let call = Call { name: "wait_delivered", instead: "use delivered there" };
        let number = self.settings.number;
        self.ask_delivered(messages)?;
        let step = |status: &mut Status| status.check_delivered(number, messages);
        self.wait(call, deadline, step)?.unwrap_or_else(|| {
            let what = format!("{messages} messages of group {number} at every member");
            Err(deadline.missed(what).into())
        })
    }

    /// Has the engine report until every member has this many messages. Errors: this member is not the
    /// root; the context is closed or has failed.
    pub(crate) fn ask_delivered(&self, messages: u64) -> Result<(), Error> {
        self.check_root()?;
        let status = self.status();
        if status.delivered >= messages || status.has_ended() {
            return Ok(());
        }
        drop(status);
        let (group, count) = (self.settings.number, messages);
        self.commands.give(Command::AskDelivered { group, count })
    }

    /// Waits until `step` returns something; `None` at the deadline.
    ///
    /// Errors: called from a callback that it would wait for; the context is closed or has failed.
    pub(crate) fn wait<T>(
        &self,
        call: Call,
        deadline: Deadline,
        mut step: impl FnMut(&mut Status) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        if let Some(caller) = &self.caller {
            let mut answer = None;
            caller.wait(call, deadline, || {
                answer = answer.take().or_else(|| step(&mut self.status()));
                answer.is_some()
            })?;
            return Ok(answer);
        }
        let mut status = self.status();
        loop {
            if let Some(answer) = step(&mut status) {
                return Ok(Some(answer));
            }
            if status.callback_thread == Some(thread::current().id()) {
                return Err(Error::InsideCallback(call.name, call.instead));
            }
            let left = deadline.left();
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.changed.wait_timeout(status, left);
            status = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Calls `step` once and again after each change of the group, until it returns something.
    #[cfg(feature = "async")]
    pub(crate) async fn until<T>(&self, mut step: impl FnMut(&mut Status) -> Option<T>) -> T {
        poll_fn(|context| self.poll(context, &mut step)).await
    }

    #[cfg(feature = "async")]
    fn poll<T>(
        &self,
        context: &Context<'_>,
        step: impl FnOnce(&mut Status) -> Option<T>,
    ) -> Poll<T> {
        // Cloned, and dropped if it is not needed, while no lock is held: it is the application's.
        let waker = context.waker().clone();
        let mut status = self.status();
        if let Some(answer) = step(&mut status) {
            return Poll::Ready(answer);
        }
        if !status.wakers.iter().any(|other| other.will_wake(&waker)) {
            status.wakers.push(waker);
        }
        Poll::Pending
    }
}

impl Status {
    /// Updates the status for an event.
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::Complete { .. } => self.completed += 1,
            Event::Delivered { count, .. } => self.delivered = *count,
            Event::Failed { failure, .. } => {
                self.delivered = self.delivered.max(failure.delivered);
                self.failure = Some(failure.clone());
            }
            Event::Closed { .. } => {
                self.delivered = self.completed;
                self.closed = true;
            }
            _ => {}
        }
    }

    /// Keeps the memory of a message that this member is done with, in a group without callbacks. Returns it
    /// if nobody can ask for it.
    pub(crate) fn complete(&mut self, message: u64, region: Region) -> Option<Region> {
        match (self.sent_memory.get_mut(&message), &mut self.inbox) {
            (Some(place), _) => place.replace(region),
            (None, Some(inbox)) => inbox.complete(message, region),
            (None, None) => Some(region),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.closed || self.failure.is_some()
    }

    /// Returns `Some` if the group has ended and the last callback has returned.
    pub(crate) fn is_over(&mut self) -> Option<()> {
        (self.has_ended() && self.finished).then_some(())
    }

    /// Returns why the group has ended.
    pub(crate) fn ended(&self, group: u64) -> Error {
        self.failure.clone().map_or(Error::Closed(group), Error::Failed)
    }

    /// Returns whether this many messages are complete (`Ok`), or never will be (`Err`); `None`
    /// while neither is certain.
    pub(crate) fn check_complete(&self, group: u64, messages: u64) -> Option<Result<(), Error>> {
        if self.completed >= messages {
            return Some(Ok(()));
        }
        self.has_ended().then(|| Err(self.ended(group)))
    }

    /// As [`Status::check_complete`], of messages that every member has.
    pub(crate) fn check_delivered(&self, group: u64, messages: u64) -> Option<Result<(), Error>> {
        if self.delivered >= messages {
            return Some(Ok(()));
        }
        self.has_ended().then(|| Err(self.ended(group)))
    }

    fn check_open(&self, group: u64) -> Result<(), Error> {
        self.check_alive(group)?;
        if self.closing { Err(Error::Closed(group)) } else { Ok(()) }
    }

    fn check_alive(&self, group: u64) -> Result<(), Error> {
        if self.has_ended() { Err(self.ended(group)) } else { Ok(()) }
    }
}
