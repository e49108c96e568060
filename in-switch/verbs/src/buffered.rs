//! A queue pair with memory of its own, for messages that are copied into it and out of it.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd},
};

use crate::{
    Completion, Connection, DEPTH, Device, Event, Memory, Operation, QueuePair, Status, VerbsError,
};

/// Memory of a device that is its holder's alone: a queue pair that has it is its holder.
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

/// Something that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended<'a> {
    /// The peer has the message.
    Sent {
        /// The caller's name for it.
        id: u64,
    },
    /// A message has come.
    Received {
        /// All of it.
        message: &'a [u8],
        /// What came with it.
        immediate: Option<u32>,
    },
}

/// What the device has.
enum Open {
    Send { id: u64, buffer: Buffer },
    Receive { buffer: Buffer },
}

/// A queue pair that has a device to itself. It keeps what is posted beyond what the device takes.
pub struct BufferedQueuePair {
    // Goes before the memory that the device reads and writes for it.
    queue_pair: QueuePair,
    open: BTreeMap<u64, Open>,
    next: u64,
    sends_open: usize,
    receives_open: usize,
    /// Beyond what the device takes.
    sends: VecDeque<(u64, Option<u32>, Buffer)>,
    receives: VecDeque<usize>,
    /// Used again, since registering takes longer than sending.
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

    /// What it is on.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Connects it; once. See [`QueuePair::connect`].
    pub fn connect(&mut self, connection: &Connection) -> Result<(), VerbsError> {
        self.queue_pair.connect(connection)
    }

    /// Memory for a message of this length, with whatever bytes.
    pub fn buffer(&mut self, bytes: usize) -> Result<Buffer, VerbsError> {
        let fitting = self.spare.iter().position(|memory| memory.bytes() >= bytes);
        let memory = match fitting {
            Some(at) => self.spare.swap_remove(at),
            None => {
                // What is too short would stay so.
                self.spare.pop();
                self.device.register(bytes, false)?
            }
        };
        Ok(Buffer { memory, bytes })
    }

    /// Sends a message, once it is its turn.
    pub fn send(
        &mut self,
        id: u64,
        immediate: Option<u32>,
        message: Buffer,
    ) -> Result<(), VerbsError> {
        self.sends.push_back((id, immediate, message));
        self.post()
    }

    /// Takes a message of at most this length, once it is its turn.
    pub fn receive(&mut self, bytes: usize) -> Result<(), VerbsError> {
        self.receives.push_back(bytes);
        self.post()
    }

    /// Hands what waits to the device, as far as that takes it.
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

    /// Tells of all that has ended, and does not wait. Afterwards its descriptor is readable when there
    /// is more.
    ///
    /// Errors: the connection has ended, or the device.
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
            // What the device may still have goes after the queue pair.
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
