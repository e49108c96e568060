//! An application's handle to a group.

use std::{sync::Arc, time::Duration};

use session::Deadline;
use transport::Region;

use crate::{
    Error, Failure, GroupSettings, Message, Offload, Schedule, SendHandle,
    caller::Call,
    inbox::Given,
    shared::{Shared, Status},
};

/// The call, and its replacement in callbacks.
const RECEIVE: Call = Call { name: "receive", instead: "receive on another thread" };

/// One group at one member. Created by [`crate::Context::create_group`], to receive with
/// [`Group::receive`], or by [`crate::Context::create_group_with`], to receive through callbacks.
///
/// All methods may be called on any thread. Dropping a group that is not closed fails the group at all
/// members.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    /// The neighbours with which this member shares memory.
    sharing: Vec<u32>,
}

impl Group {
    pub(crate) fn new(shared: Arc<Shared>, sharing: Vec<u32>) -> Self {
        Self { shared, sharing }
    }

    /// Returns the settings of the group. Those that were left open contain the root's choice: an algorithm, a block
    /// size and windows are always set.
    pub fn settings(&self) -> &GroupSettings {
        &self.shared.settings
    }

    /// Returns the schedule, which is the same at all members.
    pub fn schedule(&self) -> &Schedule {
        &self.shared.made.schedule
    }

    /// Returns the length in bytes of every block but the last of a message, the same at all members.
    pub fn block_bytes(&self) -> u64 {
        self.shared.made.block_bytes
    }

    /// Returns the neighbours in the schedule, in ascending order, to whom this member's links go through shared memory in place of TCP:
    /// processes of this user on this machine, unless there is a rate limit, [`crate::TcpSettings::direct_copies`] is off or a link has
    /// several streams.
    pub fn shares_memory_with(&self) -> &[u32] {
        &self.sharing
    }

    /// Returns whether the network itself relays this group's blocks.
    pub fn offload(&self) -> Offload {
        self.shared.offload
    }

    /// Queues the whole region as a message to all members. Waits while
    /// [`GroupSettings::send_queue_max`] queued messages are not complete at this member.
    /// Messages are delivered in the order of these calls. The region is returned by
    /// [`SendHandle::into_region`], or by [`crate::Application::complete`] in a group with
    /// callbacks; until then no write lease of it is granted. If a part is already leased for writing, the
    /// group fails.
    ///
    /// With [`crate::Progress::Caller`] the call makes progress while it waits, as [`Group::close`] does.
    ///
    /// # Errors
    /// [`Error::QueueFull`], with the region, at the deadline, or at once in a callback
    /// that the wait depends on. Otherwise as for [`Group::try_send`].
    pub fn send(&self, region: Region, timeout: Duration) -> Result<SendHandle, Error> {
        let deadline = Deadline::after(timeout);
        let mut region = region;
        loop {
            let (group, messages) = match self.try_send(region) {
                Err(Error::QueueFull { group, messages, region: back }) => {
                    region = back;
                    (group, messages)
                }
                sent => return sent,
            };
            match self.shared.wait_for_room(deadline) {
                Ok(true) => {}
                Ok(false) | Err(Error::InsideCallback(..)) => {
                    return Err(Error::QueueFull { group, messages, region });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Queues a message as [`Group::send`] does; a future for any executor. Dropping the future before it is
    /// ready queues nothing.
    ///
    /// With [`crate::Progress::Caller`] this and all other futures of this library become ready only while
    /// another call makes progress.
    ///
    /// # Errors
    /// As for [`Group::try_send`], except [`Error::QueueFull`].
    #[cfg(feature = "async")]
    pub async fn send_async(&self, region: Region) -> Result<SendHandle, Error> {
        let mut region = region;
        loop {
            match self.try_send(region) {
                Err(Error::QueueFull { region: back, .. }) => region = back,
                sent => return sent,
            }
            self.shared.until(|status| self.shared.check_room(status)).await;
        }
    }

    /// Queues a message as [`Group::send`] does, but never waits.
    ///
    /// # Errors
    /// [`Error::QueueFull`], with the region; this member is not the root, the message has
    /// too many blocks, or the group is closed or has failed. On an error nothing is queued.
    pub fn try_send(&self, region: Region) -> Result<SendHandle, Error> {
        let message = self.shared.send(region)?;
        Ok(SendHandle::new(Arc::clone(&self.shared), message))
    }

    /// Returns the next message once it is announced. Its bytes may still be arriving;
    /// [`Message`] reads them as they arrive. Returns `None` once the group is closed and all messages
    /// were received; at the root, which receives no messages, once the group is closed. Messages that were
    /// whole before the group failed are returned before the failure is reported.
    ///
    /// The memory comes from [`Group::post_receive_buffer`]; otherwise the library allocates it, at most
    /// [`GroupSettings::receive_bytes_max`] for messages that were not yet received. Beyond this limit
    /// the root waits.
    ///
    /// With [`crate::Progress::Caller`] the call makes progress, as [`Group::close`] does.
    ///
    /// # Errors
    /// - [`Error::RegionTooSmall`], with the region that was posted, and [`Error::Region`] if memory cannot be
    ///   allocated. In both cases the message remains the next one; it uses the region that is posted next, or
    ///   memory that the library allocates.
    /// - [`Error::Failed`]; [`Error::Timeout`]; [`Error::HasCallbacks`]; [`Error::InsideCallback`]; the
    ///   context is closed or has failed.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        let deadline = Deadline::after(timeout);
        let step = |status: &mut Status| self.try_receive(status);
        self.shared.wait(RECEIVE, deadline, step)?.unwrap_or_else(|| {
            let what = format!("the next message of group {}", self.shared.settings.number);
            Err(deadline.missed(what).into())
        })
    }

    /// Returns the next message as [`Group::receive`] does; a future for any executor. Dropping the future before
    /// it is ready receives nothing. Wakers are called on the thread that makes progress, and must not block; if a
    /// waker panics, the group fails. This holds for all futures of this library.
    ///
    /// # Errors
    /// As for [`Group::receive`], except [`Error::Timeout`] and [`Error::InsideCallback`].
    #[cfg(feature = "async")]
    pub async fn receive_async(&self) -> Result<Option<Message>, Error> {
        self.shared.until(|status| self.try_receive(status)).await
    }

    /// Iterates over messages through [`Group::receive`], with this timeout for each. Ends when the
    /// group ends, and after an error.
    pub fn messages(&self, timeout: Duration) -> impl Iterator<Item = Result<Message, Error>> {
        let mut has_ended = false;
        std::iter::from_fn(move || {
            if has_ended {
                return None;
            }
            let next = self.receive(timeout).transpose();
            has_ended = !matches!(next, Some(Ok(_)));
            next
        })
    }

    /// Returns the next message; `None` if the caller has to wait for it.
    fn try_receive(&self, status: &mut Status) -> Option<Result<Option<Message>, Error>> {
        let number = self.shared.settings.number;
        let has_ended = status.has_ended();
        let Some(inbox) = &mut status.inbox else { return Some(Err(Error::HasCallbacks(number))) };
        if has_ended && !inbox.is_next_whole() {
            let failure = status.failure.clone();
            return Some(failure.map_or(Ok(None), |failure| Err(Error::Failed(failure))));
        }
        let mut given = Given::new();
        let received = inbox.receive(&mut given);
        let handed_on = self.shared.give(given);
        match (received, handed_on) {
            (Err(error), _) | (Ok(Some(_)), Err(error)) => Some(Err(error)),
            (Ok(Some(received)), Ok(())) => {
                Some(Ok(Some(Message::new(Arc::clone(&self.shared), received))))
            }
            (Ok(None), _) => None,
        }
    }

    /// Provides memory before a message arrives (`post_receive_buffer` in DSN 2018 figure 1).
    /// Messages without memory take posted regions in order, one each, whatever their lengths.
    /// [`Message::into_region`] returns the region; until then no write lease of the bytes in place is
    /// granted. If the region is too small, [`Group::receive`] returns an error. If any part of the region is
    /// in use when a message needs it, for example by a lease or an earlier message, the group fails.
    ///
    /// # Errors
    /// [`Error::RegionReadOnly`], with the region; [`Error::HasCallbacks`]; the group has
    /// failed or is closed.
    pub fn post_receive_buffer(&self, region: Region) -> Result<(), Error> {
        let group = self.shared.settings.number;
        if !region.is_writable() {
            return Err(Error::RegionReadOnly { group, region });
        }
        let mut status = self.shared.status();
        if status.has_ended() {
            return Err(status.ended(group));
        }
        let inbox = status.inbox.as_mut().ok_or(Error::HasCallbacks(group))?;
        let given = inbox.post(region);
        let handed_on = self.shared.give(given);
        // A message whose region was too small can be received now.
        self.shared.changed(status);
        handed_on
    }

    /// Provides memory for a message after [`crate::Incoming::Later`].
    ///
    /// # Errors
    /// [`Error::RegionTooSmall`] and [`Error::RegionReadOnly`], with the region (another
    /// may be provided); the message does not wait for memory; the group has failed.
    pub fn accept(&self, message: u64, region: Region) -> Result<(), Error> {
        self.shared.accept(message, region)
    }

    /// Closes the group and waits until it has ended. At the root no more messages can be sent after this
    /// call; at other members the call waits until the root closes the group. Success means that every
    /// message has reached every member and that the last callback has returned. A message that has
    /// no memory because it was not received keeps the group from closing: call [`Group::receive`] until it
    /// returns `None`.
    ///
    /// With [`crate::Progress::Caller`] the call makes progress and runs callbacks for all groups of the
    /// context, as [`crate::Context::progress`] does; it returns after the deadline only if a
    /// callback does.
    ///
    /// # Errors
    /// [`Error::Failed`]; [`Error::Timeout`] (the group then fails at all members);
    /// [`Error::Closed`] if it was closed before; [`Error::InsideCallback`]; the context is closed or
    /// has failed.
    pub fn close(&self, timeout: Duration) -> Result<(), Error> {
        let call = Call { name: "close", instead: "use start_close there" };
        if self.shared.is_inside_callback() {
            return Err(Error::InsideCallback(call.name, call.instead));
        }
        self.start_close()?;
        let deadline = Deadline::after(timeout);
        if self.shared.wait(call, deadline, Status::is_over)?.is_some() {
            return self.failure().map_or(Ok(()), |failure| Err(Error::Failed(failure)));
        }
        let what = format!("closing group {}", self.shared.settings.number);
        self.shared.abort(&format!("{what} took longer than {} ms", timeout.as_millis()));
        Err(deadline.missed(what).into())
    }

    /// Closes the group as [`Group::close`] does; a future for any executor.
    ///
    /// # Errors
    /// [`Error::Failed`]; [`Error::Closed`] if it was closed before; the context is closed or
    /// has failed.
    #[cfg(feature = "async")]
    pub async fn close_async(&self) -> Result<(), Error> {
        self.start_close()?;
        self.shared.until(Status::is_over).await;
        self.failure().map_or(Ok(()), |failure| Err(Error::Failed(failure)))
    }

    /// Starts to close the group without waiting. [`crate::Application::closed`],
    /// [`crate::Application::failed`] or [`Group::receive`] reports the outcome. May be called in
    /// callbacks.
    ///
    /// # Errors
    /// The group was closed before, or has failed.
    pub fn start_close(&self) -> Result<(), Error> {
        self.shared.start_close()
    }

    /// Returns whether the group has ended, or [`Group::close`] or [`Group::start_close`] was called.
    pub fn is_closing(&self) -> bool {
        let status = self.shared.status();
        status.closing || status.has_ended()
    }

    /// Fails the group at all members, for this reason.
    pub fn abort(&self, reason: &str) {
        self.shared.abort(reason);
    }

    /// Returns why the group has failed, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.status().failure.clone()
    }

    /// Waits until this many messages are complete at this member (all blocks received, nothing
    /// left to relay). With [`crate::Progress::Caller`] the call makes progress, as [`Group::close`]
    /// does.
    ///
    /// # Errors
    /// The group fails, or closes with fewer messages; the timeout expires;
    /// [`Error::InsideCallback`] if the messages are not complete and cannot be while this callback runs;
    /// the context is closed or has failed.
    pub fn wait_complete(&self, messages: u64, timeout: Duration) -> Result<(), Error> {
        self.shared.wait_complete(messages, timeout)
    }

    /// Returns how many messages, counted from the first, every member has: a lower bound. At the root it
    /// grows with [`GroupSettings::report_delivered`], or while [`Group::wait_delivered`] waits; at other
    /// members it is 0 until the group has ended. Once the group has ended, every member returns the number of
    /// all messages after success, and [`Failure::delivered`] after a failure.
    pub fn delivered(&self) -> u64 {
        self.shared.status().delivered
    }

    /// Waits, at the root, until every member has the first `count` messages. The messages are then in place
    /// at every member, and remain in place if members fail later. Messages may be sent while this call
    /// waits, including those it waits for. With [`crate::Progress::Caller`] the call makes progress, as
    /// [`Group::close`] does.
    ///
    /// If a member's application provides no memory for a message, this call waits until the timeout. This
    /// alone does not fail the group, unless blocks wait for that member or the group closes.
    ///
    /// Costs two control messages on each edge of the announcement tree.
    ///
    /// # Errors
    /// This member is not the root; the group fails, or closes with fewer messages; the timeout expires;
    /// [`Error::InsideCallback`] if not every member has the messages and this cannot be reported while this
    /// callback runs; the context is closed or has failed.
    pub fn wait_delivered(&self, count: u64, timeout: Duration) -> Result<(), Error> {
        self.shared.wait_delivered(count, timeout)
    }

    /// Waits as [`Group::wait_delivered`] does; a future for any executor.
    ///
    /// # Errors
    /// This member is not the root; the group fails, or closes with fewer messages; the context is closed
    /// or has failed.
    #[cfg(feature = "async")]
    pub async fn wait_delivered_async(&self, count: u64) -> Result<(), Error> {
        self.shared.ask_delivered(count)?;
        let group = self.shared.settings.number;
        self.shared.until(|status| status.check_delivered(group, count)).await
    }

    /// Waits as [`Group::wait_complete`] does; a future for any executor.
    ///
    /// # Errors
    /// The group fails, or closes with fewer messages.
    #[cfg(feature = "async")]
    pub async fn wait_complete_async(&self, messages: u64) -> Result<(), Error> {
        let group = self.shared.settings.number;
        self.shared.until(|status| status.check_complete(group, messages)).await
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_closing() {
            self.shared.abort("its application dropped the group");
        }
    }
}
