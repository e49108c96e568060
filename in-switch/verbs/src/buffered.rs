//! A queue pair with its own registered memory, into and out of which messages are copied.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd},
};

use crate::{
    Completion, Connection, DEPTH, Device, Event, Memory, Operation, QueuePair, Status, VerbsError,
};

/// Registered memory with one owner: the holder, or the queue pair while it is posted.
pub struct Buffer {
    memory: Memory,
    bytes: usize,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: peers cannot write it, as it was registered. No queue pair has it: those that do are
        // in `BufferedQueuePair::open` until they have ended, where nobody derefs them.
        unsafe { &self.memory.slice()[..self.bytes] }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { &mut self.memory.slice_mut()[..self.bytes] }
    }
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended<'a> {
    /// The peer has acknowledged the message.
    Sent {
        /// The `id` of the send.
        id: u64,
    },
    /// A message has come.
    Received {
        /// Its contents.
        message: &'a [u8],
        /// The immediate, if any.
        immediate: Option<u32>,
    },
}

/// A posted work request.
enum Open {
    Send { id: u64, buffer: Buffer },
    Receive { buffer: Buffer },
}

/// A queue pair with a device of its own. Queues work requests beyond the device's depth.
pub struct BufferedQueuePair {
    // Dropped before the memory that the device accesses for it.
    queue_pair: QueuePair,
    open: BTreeMap<u64, Open>,
    next: u64,
    sends_open: usize,
    receives_open: usize,
    /// Queued beyond the device's depth.
    sends: VecDeque<(u64, Option<u32>, Buffer)>,
    receives: VecDeque<usize>,
    /// Reused, since registering takes longer than sending.
    spare: Vec<Memory>,
    completions: Vec<Completion>,
    device: Device,
}

impl BufferedQueuePair {
    /// A queue pair that is not connected yet.
    pub fn new(device: Device) -> Result<Self, VerbsError> {
        Ok(Self {
            queue_pair: device.queue_pair()?,
            open: BTreeMap::new(),
            next: 0,
            sends_open: 0,
            receives_open: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            spare: Vec::new(),
            completions: Vec::new(),
            device,
        })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.queue_pair.number()
    }

    /// Its device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Connects it; once. See [`QueuePair::connect`].
    pub fn connect(&mut self, connection: &Connection) -> Result<(), VerbsError> {
        self.queue_pair.connect(connection)
    }

    /// Memory for a message of this length, with arbitrary contents.
    pub fn buffer(&mut self, bytes: usize) -> Result<Buffer, VerbsError> {
        let fitting = self.spare.iter().position(|memory| memory.bytes() >= bytes);
        let memory = match fitting {
            Some(at) => self.spare.swap_remove(at),
            None => {
                // One that is too short is deregistered.
                self.spare.pop();
                self.device.register(bytes, false)?
            }
        };
        Ok(Buffer { memory, bytes })
    }

    /// Queues a message to be sent.
    pub fn send(
        &mut self,
        id: u64,
        immediate: Option<u32>,
        message: Buffer,
    ) -> Result<(), VerbsError> {
        self.sends.push_back((id, immediate, message));
        self.post()
    }

    /// Queues a receive of this length.
    pub fn receive(&mut self, bytes: usize) -> Result<(), VerbsError> {
        self.receives.push_back(bytes);
        self.post()
    }

    /// Posts queued work requests, up to the device's depth.
    fn post(&mut self) -> Result<(), VerbsError> {
        while self.receives_open < DEPTH as usize
            && let Some(bytes) = self.receives.pop_front()
        {
            let buffer = self.buffer(bytes)?;
            self.queue_pair.receive(self.next, &buffer.memory, 0..bytes)?;
            self.receives_open += 1;
            self.keep(Open::Receive { buffer });
        }
        while self.sends_open < DEPTH as usize
            && let Some((id, immediate, buffer)) = self.sends.pop_front()
        {
            let (next, range) = (self.next, 0..buffer.bytes);
            self.queue_pair.send(next, Operation::Send, &buffer.memory, range, immediate)?;
            self.sends_open += 1;
            self.keep(Open::Send { id, buffer });
        }
        Ok(())
    }

    fn keep(&mut self, open: Open) {
        self.open.insert(self.next, open);
        self.next += 1;
    }

    /// Passes all completions to `ended`, without waiting, and arms the descriptor: it is readable when there are
    /// more.
    ///
    /// Errors: the connection or the device has failed.
    pub fn progress(&mut self, mut ended: impl FnMut(Ended<'_>)) -> Result<(), VerbsError> {
        while self.device.poll_or_arm(&mut self.completions)? > 0 {
            for completion in std::mem::take(&mut self.completions) {
                self.end(&completion, &mut ended)?;
            }
            self.post()?;
        }
        Ok(())
    }

    fn end(
        &mut self,
        completion: &Completion,
        mut ended: impl FnMut(Ended<'_>),
    ) -> Result<(), VerbsError> {
        let failed = |status| VerbsError::Ended { device: self.device.name().to_owned(), status };
        let open = self.open.remove(&completion.id);
        let buffer = match (open, completion.event) {
            (Some(Open::Send { id, buffer }), Some(Event::Sent)) => {
                self.sends_open -= 1;
                ended(Ended::Sent { id });
                buffer
            }
            (Some(Open::Receive { buffer }), Some(Event::Received { bytes, immediate })) => {
                self.receives_open -= 1;
                let message = buffer.get(..bytes as usize);
                let message = message.ok_or_else(|| failed(Status::RemoteOperation))?;
                ended(Ended::Received { message, immediate });
                buffer
            }
            // The device may still access it: dropped after the queue pair.
            (Some(open), _) => {
                self.open.insert(completion.id, open);
                return Err(failed(completion.status));
            }
            (None, _) => return Err(failed(completion.status)),
        };
        self.spare.push(buffer.memory);
        Ok(())
    }
}

impl AsFd for BufferedQueuePair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
