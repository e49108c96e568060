//! A group as its application holds it.

use std::{sync::Arc, time::Duration};

use session::Deadline;
use transport::Region;

use crate::{
    Error, Failure, GroupSettings, Message, Offload, SendHandle,
    inbox::Given,
    shared::{Call, Shared, Status},
};

/// What waits for a message, and what to do in callbacks instead.
const RECEIVE: Call = ("receive", "receive on another thread");

/// One group at one member. Made by [`crate::Context::create_group`], to receive by
/// [`Group::receive`], or by [`crate::Context::create_group_with`], to receive by callbacks.
///
/// Any thread may call. Dropping a group that is not closed makes it fail at all members.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
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

    /// Queues a message for all members: the whole region. Waits while
    /// [`GroupSettings::send_queue_max`] messages are queued that are not complete at this member.
    /// Messages are delivered in the order of these calls. The region comes back by
    /// [`SendHandle::into_region`], or in [`crate::Application::complete`] of a group with callbacks.
    ///
    /// With [`crate::Progress::Caller`] it drives while it waits, as [`Group::close`] does.
    ///
    /// Errors: [`Error::QueueFull`] at the deadline, with the region; in a callback that it would wait
    /// for, at once. As [`Group::try_send`] otherwise.
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

    /// As [`Group::send`], as a future, for any executor. Dropping it before it is ready queues
    /// nothing.
    ///
    /// With [`crate::Progress::Caller`] it is ready only when something else drives; so are all
    /// futures of this library.
    ///
    /// Errors: as [`Group::try_send`], but [`Error::QueueFull`].
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

    /// As [`Group::send`], but never waits.
    ///
    /// Errors: [`Error::QueueFull`], with the region; not the root, too many blocks for the block
    /// size, group closed or failed. Nothing is queued then.
    pub fn try_send(&self, region: Region) -> Result<SendHandle, Error> {
        let message = self.shared.send(region)?;
        Ok(SendHandle::new(Arc::clone(&self.shared), message))
    }

    /// Receives the next message, from its announcement on: its bytes may still be arriving, and
    /// [`Message`] reads them as they do. `None` once the group is closed and all messages were
    /// received; at the root there are none. Messages that were whole before the group failed are
    /// received before the failure is reported.
    ///
    /// Memory: what [`Group::post_receive_buffer`] has given, or else the library allocates it; for
    /// messages that were not received yet [`GroupSettings::receive_bytes_max`] at most, beyond which
    /// the root waits.
    ///
    /// With [`crate::Progress::Caller`] it drives, as [`Group::close`] does.
    ///
    /// Errors: [`Error::Failed`]; [`Error::Timeout`]; [`Error::RegionTooSmall`], with the region that
    /// was posted, and [`Error::Region`] if there is no memory (the message is still the next one, and
    /// gets what is posted next, or else memory is allocated); [`Error::HasCallbacks`];
    /// [`Error::InsideCallback`]; the context is closed or has failed.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        let deadline = Deadline::after(timeout);
        let step = |status: &mut Status| self.try_receive(status);
        self.shared.wait(RECEIVE, deadline, step)?.unwrap_or_else(|| {
            let what = format!("the next message of group {}", self.shared.settings.number);
            Err(deadline.missed(what).into())
        })
    }

    /// As [`Group::receive`], as a future, for any executor. Dropping it before it is ready receives
    /// nothing.
    ///
    /// Errors: as [`Group::receive`], but those of waiting.
    #[cfg(feature = "async")]
    pub async fn receive_async(&self) -> Result<Option<Message>, Error> {
        self.shared.until(|status| self.try_receive(status)).await
    }

    /// Iterates over messages by [`Group::receive`], with this timeout for each. Ends when the group
    /// does, and after an error.
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

    /// The next message; `None` if it has to be waited for.
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
        let handed_on = self.shared.give(status, given);
        match (received, handed_on) {
            (Err(error), _) | (Ok(Some(_)), Err(error)) => Some(Err(error)),
            (Ok(Some(received)), Ok(())) => {
                Some(Ok(Some(Message::new(Arc::clone(&self.shared), received))))
            }
            (Ok(None), _) => None,
        }
    }

    /// Gives memory ahead of a message (`post_receive_buffer` in DSN 2018 figure 1). Messages that have
    /// no memory take posted regions in order, one each, whatever their lengths; it comes back by
    /// [`Message::into_region`]. One that is too small is an error of [`Group::receive`].
    ///
    /// Errors: [`Error::RegionReadOnly`], with the region; [`Error::HasCallbacks`]; group failed or
    /// closed.
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
        let handed_on = self.shared.give(&mut status, given);
        // A message whose region was too small can be received now.
        self.shared.changed(status);
        handed_on
    }

    /// Gives memory for a message after [`crate::Incoming::Later`].
    ///
    /// Errors: [`Error::RegionTooSmall`] and [`Error::RegionReadOnly`], with the region (another may be
    /// given); not asked for, group failed.
    pub fn accept(&self, message: u64, region: Region) -> Result<(), Error> {
        self.shared.accept(message, region)
    }

    /// Closes the group and waits for it: at the root no more messages can be sent, elsewhere the
    /// root is awaited. Success means that every message reached every member, and that the last
    /// callback has returned. A message that has no memory yet, since it was not received, keeps the
    /// group from closing: receive until there are no more.
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
        if self.shared.wait(call, deadline, Status::is_over)?.is_some() {
            return self.failure().map_or(Ok(()), |failure| Err(Error::Failed(failure)));
        }
        let what = format!("closing group {}", self.shared.settings.number);
        self.shared.abort(&format!("{what} took longer than {} ms", timeout.as_millis()));
        Err(deadline.missed(what).into())
    }

    /// As [`Group::close`], as a future, for any executor.
    ///
    /// Errors: [`Error::Failed`]; [`Error::Closed`] if it was closed before; the context is closed or
    /// has failed.
    #[cfg(feature = "async")]
    pub async fn close_async(&self) -> Result<(), Error> {
        self.start_close()?;
        self.shared.until(Status::is_over).await;
        self.failure().map_or(Ok(()), |failure| Err(Error::Failed(failure)))
    }

    /// Starts to close the group without waiting; [`crate::Application::closed`] or
    /// [`crate::Application::failed`] tells the outcome, or [`Group::receive`]. May be called in
    /// callbacks.
    ///
    /// Errors: the group was closed before, or has failed.
    pub fn start_close(&self) -> Result<(), Error> {
        self.shared.start_close()
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
