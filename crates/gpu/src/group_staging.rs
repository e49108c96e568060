//! Messages of groups in the memory of a device.

use std::time::Duration;

use rdmc::{Group, Message, Region, SendHandle, WriteLease};
use session::Deadline;

use crate::{Device, DeviceMemory, Error, Event, Stream, Transfer, Upload, download};

/// Copies messages of groups between host memory, where they are sent, received and relayed as usual, and a device.
///
/// Each call takes a stream of the application: copies run after work queued on it before the call, and before work queued on it
/// afterwards. The host waits for neither.
///
/// # Failures
/// If the device fails or does not complete its work in time ([`Error::Cuda`], [`Error::Timeout`]), the group fails at all members,
/// with the text of the error. Other errors of calls have no effect on the group.
#[derive(Debug)]
pub struct GroupStaging {
    device: Device,
    up: Vec<Stream>,
    down: Stream,
}

impl GroupStaging {
    /// Creates the streams: one for copies from the device, and `streams`, 1 to 16, for copies to it. One stream fills a device's
    /// link if copies are long.
    ///
    /// Errors: [`Error::Call`] if there are too few or too many; [`Error::Cuda`].
    pub fn new(device: &Device, streams: u32) -> Result<Self, Error> {
        if !(1..=16).contains(&streams) {
            return Err(Error::Call(format!("{streams} streams: use 1 to 16")));
        }
        let up = (0..streams).map(|_| Stream::new(device)).collect::<Result<_, _>>()?;
        Ok(Self { device: device.clone(), up, down: Stream::new(device)? })
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Copies this memory to the host, after the work that is queued on `stream`, and then queues it as a message of the group, of
    /// which this member is the root. Nothing is sent before the whole copy is complete. The message is sent from the beginning of
    /// `region`, which should be pinned ([`crate::pinned`]) for speed; [`SendHandle::into_region`] returns that part. The device
    /// memory may be changed when this returns.
    ///
    /// Errors: [`Error::Call`] if the memory belongs to another device; [`Error::Lease`] if the region is too short, in use or in a
    /// file; [`Error::Cuda`], [`Error::Timeout`]; [`Error::Rdmc`] as for [`Group::send`].
    pub fn send(
        &self,
        group: &Group,
        memory: &DeviceMemory,
        region: &Region,
        stream: &Stream,
        timeout: Duration,
    ) -> Result<SendHandle, Error> {
        let deadline = Deadline::after(timeout);
        let tell = |error: &Error| abort(group, error);
        let (part, copy) = self.start_down(memory, region, stream).inspect_err(tell)?;
        copy.wait(deadline.left()).inspect_err(tell)?;
        drop(copy);
        Ok(group.send(part, deadline.left())?)
    }

    /// Returns the part of the region that becomes the message, and the copy to it.
    fn start_down(
        &self,
        memory: &DeviceMemory,
        region: &Region,
        stream: &Stream,
    ) -> Result<(Region, Transfer<WriteLease>), Error> {
        let bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let part = region.slice(0..bytes)?;
        let lease = part.write(0..bytes)?;
        Event::record(stream)?.hold(&self.down)?;
        Ok((part, download(&self.down, memory, lease)?))
    }

    /// Copies a message to the beginning of this memory while the message arrives. Returns when all of it has arrived and all
    /// copies are queued: work that is queued on `stream` afterwards finds the message on the device. The message remains in host
    /// memory, from which this member relays it.
    ///
    /// Pinned memory ([`crate::pinned`]) that was posted with [`Group::post_receive_buffer`] is copied in the background; with other
    /// memory each copy waits for the previous ones. With [`rdmc::GroupSettings::receive_bytes_max`] 0, messages wait for posted
    /// memory. It must not be posted again, or written, before the [`Upload`] is done: [`Upload::wait`].
    ///
    /// Errors: [`Error::Call`] if the memory is too short or belongs to another device; [`Error::Lease`] if the message is received
    /// into a file; [`Error::Cuda`], [`Error::Timeout`]; [`Error::Rdmc`] as for [`Message::next_block`].
    pub fn receive(
        &self,
        group: &Group,
        message: &mut Message,
        memory: &DeviceMemory,
        stream: &Stream,
        timeout: Duration,
    ) -> Result<Upload, Error> {
        let deadline = Deadline::after(timeout);
        let tell = |error: &Error| abort(group, error);
        let memory = memory.slice(0..message.len())?;
        let mut upload = Upload::begin(&memory, &self.up, stream).inspect_err(tell)?;
        let followed = follow(message, &mut upload, stream, deadline);
        if let Err(error) = followed {
            // The other members are notified before the copies are waited for again.
            abort(group, &error);
            // What was queued may still use the application's memory. A second error would say no more than the first.
            let _ = upload.finish(stream);
            return Err(error);
        }
        Ok(upload)
    }

    /// Copies all of a region to the beginning of this memory, for messages that have already arrived. Otherwise as
    /// [`GroupStaging::receive`], but errors are reported to no group.
    ///
    /// Errors: [`Error::Call`], [`Error::Lease`], [`Error::Cuda`], [`Error::Timeout`].
    pub fn upload(
        &self,
        region: &Region,
        memory: &DeviceMemory,
        stream: &Stream,
        timeout: Duration,
    ) -> Result<Upload, Error> {
        let bytes = region.len() as u64;
        let memory = memory.slice(0..bytes)?;
        let mut upload = Upload::begin(&memory, &self.up, stream)?;
        upload.add(region, 0..bytes, Deadline::after(timeout))?;
        upload.finish(stream)?;
        Ok(upload)
    }
}

/// Copies blocks of the message as they arrive.
fn follow(
    message: &mut Message,
    upload: &mut Upload,
    stream: &Stream,
    deadline: Deadline,
) -> Result<(), Error> {
    while let Some(range) = message.next_block(deadline.left())? {
        upload.add(message.region(), range, deadline)?;
    }
    upload.finish(stream)
}

/// Fails the group at all members if the device is the reason.
fn abort(group: &Group, error: &Error) {
    if matches!(error, Error::Cuda { .. } | Error::Timeout { .. }) {
        group.abort(&error.reason());
    }
}
