//! A group as its application holds it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, ThreadId},
    time::Duration,
};

use engine::{Event, check_region};
use relay::Blocks;
use session::Deadline;
use transport::Region;

use crate::{
    Error, Failure, GroupSettings, Offload, RelayError,
    caller::Caller,
    commands::{Command, Commands},
};

/// One group at one member. Made by [`crate::Context::create_group_with`].
///
/// Any thread may call. Dropping a group that is not closed makes it fail at all members.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
}

/// A message that the root has queued.
#[derive(Clone, Debug)]
pub struct SendHandle {
    shared: Arc<Shared>,
    message: u64,
}

/// What the group's handles, callbacks and the progress thread know in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: GroupSettings,
    /// What `settings` have made.
    pub(crate) made: engine::GroupSettings,
    pub(crate) offload: Offload,
    commands: Commands,
    /// With [`crate::Progress::Caller`]: whoever waits drives.
    caller: Option<Arc<Caller>>,
    status: Mutex<Status>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Status {
    sent: u64,
    received: u64,
    completed: u64,
    /// Messages that wait for memory, with their lengths.
    awaited: BTreeMap<u64, u64>,
    closing: bool,
    closed: bool,
    failure: Option<Failure>,
    /// The last callback has returned.
    finished: bool,
    /// Creating the group has failed: its application is not called.
    abandoned: bool,
    /// Of its own, if it has one.
    callback_thread: Option<ThreadId>,
}

impl Group {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What the group was made with.
    pub fn settings(&self) -> &GroupSettings {
        &self.shared.settings
    }

    /// Whether the network relays this group's blocks by itself.
    pub fn offload(&self) -> Offload {
        self.shared.offload
    }

    /// Queues a message for all members: the whole region. Returns at once; messages are
    /// delivered in the order of these calls. The region comes back in
    /// [`crate::Application::complete`].
    ///
    /// Errors: not the root, too many blocks for the block size, group closed or failed; nothing
    /// is queued then.
    pub fn send(&self, region: Region) -> Result<SendHandle, Error> {
        let settings = &self.shared.settings;
        if !settings.is_root() {
            let (root, rank) = (settings.root, settings.rank);
            return Err(RelayError::NotRoot { root, rank }.into());
        }
        let blocks = Blocks::new(region.len() as u64, settings.block_bytes)?;
        if self.shared.offload.is_used() {
            blocks.check_offload(settings.messages_in_flight)?;
        }
        // The lock keeps numbers and commands in the same order.
        let mut status = self.shared.status();
        status.check_open(settings.number)?;
        let message = status.sent;
        self.shared.commands.give(Command::Send { group: settings.number, region })?;
        status.sent += 1;
        Ok(SendHandle { shared: Arc::clone(&self.shared), message })
    }

    /// Gives memory for a message after [`crate::Incoming::Later`].
    ///
    /// Errors: too small or read-only (another region may be given), not asked for, group failed.
    pub fn accept(&self, message: u64, region: Region) -> Result<(), Error> {
        self.shared.accept(message, region)
    }

    /// Closes the group and waits for it: at the root no more messages can be sent, elsewhere the
    /// root is awaited. Success means that every message reached every member, and that the last
    /// callback has returned.
    ///
    /// With [`crate::Progress::Caller`] it moves transfers on and runs callbacks, of all the context's
    /// groups, as [`crate::Context::progress`] does; it returns after the deadline only if a callback
    /// does.
    ///
    /// Errors: [`Error::Failed`]; [`Error::Timeout`] (the group then fails at all members);
    /// [`Error::Closed`] if it was closed before; [`Error::InsideCallback`]; the context is closed or
    /// has failed.
    pub fn close(&self, timeout: Duration) -> Result<(), Error> {
        let call = ("close", "use start_close there");
        if self.shared.is_inside_callback() {
            return Err(Error::InsideCallback(call.0, call.1));
        }
        self.start_close()?;
        let deadline = Deadline::after(timeout);
        let is_over = |status: &Status| status.has_ended() && status.finished;
        if self.shared.wait(call, deadline, is_over)? {
            return self.failure().map_or(Ok(()), |failure| Err(Error::Failed(failure)));
        }
        let what = format!("closing group {}", self.shared.settings.number);
        self.shared.abort(&format!("{what} took longer than {} ms", timeout.as_millis()));
        Err(deadline.missed(what).into())
    }

    /// Starts to close the group without waiting; [`crate::Application::closed`] or
    /// [`crate::Application::failed`] tells the outcome. May be called in callbacks.
    ///
    /// Errors: the group was closed before, or has failed.
    pub fn start_close(&self) -> Result<(), Error> {
        let number = self.shared.settings.number;
        let mut status = self.shared.status();
        if std::mem::replace(&mut status.closing, true) {
            return Err(status.failure.clone().map_or(Error::Closed(number), Error::Failed));
        }
        // A group that the root has closed already is closed with success.
        if status.closed {
            return Ok(());
        }
        if let Some(failure) = &status.failure {
            return Err(Error::Failed(failure.clone()));
        }
        self.shared.commands.give(Command::Close { group: number })
    }

    /// Makes the group fail at all members, for this reason.
    pub fn abort(&self, reason: &str) {
        self.shared.abort(reason);
    }

    /// Why the group has failed, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.status().failure.clone()
    }

    /// Waits until this many messages are complete at this member (all blocks here, nothing left
    /// to relay). With [`crate::Progress::Caller`] it drives, as [`Group::close`] does.
    ///
    /// Errors: the group fails, or closes with fewer; deadline; [`Error::InsideCallback`] if they are
    /// not and this call keeps them from completing; the context is closed or has failed.
    pub fn wait_complete(&self, messages: u64, timeout: Duration) -> Result<(), Error> {
        self.shared.wait_complete(messages, timeout)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let status = self.shared.status();
        let ended = status.closing || status.has_ended();
        drop(status);
        if !ended {
            self.shared.abort("its application dropped the group");
        }
    }
}

impl SendHandle {
    /// The message's number: how many were sent before it.
    pub fn message(&self) -> u64 {
        self.message
    }

    /// Whether the root is done with the message.
    pub fn is_complete(&self) -> bool {
        self.shared.status().completed > self.message
    }

    /// Waits until the root is done with the message: its memory is free again. Members may still
    /// be relaying it to each other; closing the group tells that all have it. With
    /// [`crate::Progress::Caller`] it drives, as [`Group::close`] does.
    ///
    /// Errors: as [`Group::wait_complete`].
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        self.shared.wait_complete(self.message + 1, timeout)
    }
}

impl Shared {
    pub(crate) fn new(
        settings: GroupSettings,
        made: engine::GroupSettings,
        offload: Offload,
        commands: Commands,
        caller: Option<Arc<Caller>>,
    ) -> Arc<Self> {
        let (status, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { settings, made, offload, commands, caller, status, changed })
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes note of an event before the application is told.
    pub(crate) fn note(&self, event: &Event) {
        let mut status = self.status();
        match event {
            Event::Incoming { message, bytes, .. } => {
                status.awaited.insert(*message, *bytes);
            }
            Event::Received { .. } => status.received += 1,
            Event::Complete { .. } => status.completed += 1,
            Event::Failed { failure, .. } => status.failure = Some(failure.clone()),
            Event::Closed { .. } => status.closed = true,
            _ => return,
        }
        drop(status);
        self.notify();
    }

    fn notify(&self) {
        self.changed.notify_all();
        if let Some(caller) = &self.caller {
            caller.notify();
        }
    }

    pub(crate) fn accept(&self, message: u64, region: Region) -> Result<(), Error> {
        let group = self.settings.number;
        let mut status = self.status();
        status.check_alive(group)?;
        let Some(&bytes) = status.awaited.get(&message) else {
            return Err(RelayError::Unknown { what: "message", number: message }.into());
        };
        check_region(group, message, bytes, &region)?;
        status.awaited.remove(&message);
        self.commands.give(Command::Accept { group, message, region })
    }

    pub(crate) fn abort(&self, reason: &str) {
        let group = self.settings.number;
        // A closed context has made the group fail already.
        let _ = self.commands.give(Command::Abort { group, reason: reason.to_owned() });
    }

    pub(crate) fn set_callback_thread(&self) {
        self.status().callback_thread = Some(thread::current().id());
    }

    /// Whether this group's callbacks wait for the calling thread.
    fn is_inside_callback(&self) -> bool {
        self.status().callback_thread == Some(thread::current().id())
            || self.caller.as_ref().is_some_and(|caller| caller.is_driven_here())
    }

    /// Creating the group has failed: makes it end without a word to the application.
    pub(crate) fn abandon(&self, reason: &str) {
        self.status().abandoned = true;
        self.abort(reason);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.status().abandoned
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.status().has_ended()
    }

    /// Whether the last callback has returned.
    pub(crate) fn is_finished(&self) -> bool {
        self.status().finished
    }

    pub(crate) fn set_finished(&self) {
        self.status().finished = true;
        self.notify();
    }

    fn wait_complete(&self, messages: u64, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        let call = ("wait", "use is_complete there");
        let is_over = |status: &Status| status.completed >= messages || status.has_ended();
        let number = self.settings.number;
        if !self.wait(call, deadline, is_over)? {
            let last = messages.saturating_sub(1);
            return Err(deadline.missed(format!("message {last} of group {number}")).into());
        }
        let status = self.status();
        if status.completed >= messages {
            return Ok(());
        }
        Err(status.failure.clone().map_or(Error::Closed(number), Error::Failed))
    }

    /// Waits until this holds; false at the deadline. `call`: what was called, and what to do in
    /// callbacks instead.
    ///
    /// Errors: called from a callback that it would wait for; the context is closed or has failed.
    fn wait(
        &self,
        call: (&'static str, &'static str),
        deadline: Deadline,
        done: impl Fn(&Status) -> bool,
    ) -> Result<bool, Error> {
        if let Some(caller) = &self.caller {
            return caller.wait(call, deadline, || done(&self.status()));
        }
        let status = self.status();
        if done(&status) {
            return Ok(true);
        }
        if status.callback_thread == Some(thread::current().id()) {
            return Err(Error::InsideCallback(call.0, call.1));
        }
        let (status, _) = self
            .changed
            .wait_timeout_while(status, deadline.left(), |status| !done(status))
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        Ok(done(&status))
    }
}

impl Status {
    fn has_ended(&self) -> bool {
        self.closed || self.failure.is_some()
    }

    fn check_open(&self, group: u64) -> Result<(), Error> {
        self.check_alive(group)?;
        if self.closing { Err(Error::Closed(group)) } else { Ok(()) }
    }

    fn check_alive(&self, group: u64) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(Error::Failed(failure.clone()));
        }
        if self.closed { Err(Error::Closed(group)) } else { Ok(()) }
    }
}
