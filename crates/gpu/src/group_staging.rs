//! Messages of groups in the memory of a device.

use std::time::Duration;

use rdmc::{Group, Message, Region, SendHandle, WriteLease};
use session::Deadline;

use crate::{Device, DeviceMemory, Error, Event, Stream, Transfer, Upload, download};

/// Copies messages of groups between memory of the host, where they are sent, received and relayed as always, and a device.
///
/// What the application does on the device is ordered by a stream of its own, which every call is given: copies begin after what
/// was queued there before the call, and what is queued there afterwards comes after the copies. The host waits for neither.
///
/// # Failures
/// If the device fails or is too late ([`Error::Cuda`], [`Error::Timeout`]), the group fails at all members, with the text. Other
/// errors of calls leave it as it is.
#[derive(Debug)]
pub struct GroupStaging {
    device: Device,
    up: Vec<Stream>,
    down: Stream,
}

impl GroupStaging {
    /// Makes the streams: one for copies from the device, and so many for copies to it, 1 to 16. One fills a device's link if
    /// copies are long.
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

    /// Copies this memory to the host, after what `stream` has to do, and then queues it as a message of the group, of which this
    /// member is the root. The whole copy comes first: nothing is sent before. The message is sent from `region`, pinned
    /// ([`crate::pinned`]) if it is to be fast, of which it takes as many bytes as it has; [`SendHandle::into_region`] returns
    /// that part. The device's memory is free when this returns.
    ///
    /// Errors: [`Error::Call`] if the memory is another device's; [`Error::Lease`] if the region is too short, in use or in a
    /// file; [`Error::Cuda`], [`Error::Timeout`]; [`Error::Rdmc`] as of [`Group::send`].
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

    /// Copies a message to the beginning of this memory while it arrives. Returns when all of it has arrived and all copies are
    /// queued: the message is on the device for what is queued on `stream` from then on. The message stays whole in the host's
    /// memory: members that this one relays to get it from there.
    ///
    /// Memory that was posted with [`Group::post_receive_buffer`] and is pinned ([`crate::pinned`]) is copied in the
    /// background; of other memory each copy waits for those before. With [`rdmc::GroupSettings::receive_bytes_max`] 0 messages
    /// wait for memory that is posted. It must not be posted again, or written, before the [`Upload`] is done:
    /// [`Upload::wait`].
    ///
    /// Errors: [`Error::Call`] if the memory is too short or another device's; [`Error::Lease`] if the message is received into a
    /// file; [`Error::Cuda`], [`Error::Timeout`]; [`Error::Rdmc`] as of [`Message::next_block`].
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
            // The other members are told before anybody waits for the copies again.
            abort(group, &error);
            // What was queued may still use the application's memory. A second error would say no more than the first.
            let _ = upload.finish(stream);
            return Err(error);
        }
        Ok(upload)
    }

    /// Copies all of a region to the beginning of this memory: for messages that have arrived before. Otherwise as
    /// [`GroupStaging::receive`], but no group is told of errors.
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
