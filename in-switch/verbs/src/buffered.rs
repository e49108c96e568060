//! A queue pair whose messages are leased memory: registered where it is, or else copied.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use memory::{ReadLease, WriteLease};

use crate::{
    Completion, Connection, DEPTH, Device, Event, Memory, Operation, QueuePair, Status, VerbsError,
    device::Registered,
    registrar::{Registrar, Span},
};

/// A completion.
#[derive(Debug)]
pub enum Ended {
    /// The peer has acknowledged the message, whose lease is dropped.
    Sent {
        /// The `id` of the send.
        id: u64,
    },
    /// A message has come, for the oldest receive.
    Received {
        /// The memory that was posted for it.
        into: WriteLease,
        /// The message's length.
        bytes: usize,
        /// The immediate, if any.
        immediate: Option<u32>,
    },
}

/// Where the device finds a message.
enum Place {
    /// In a lease's memory.
    Span(Span),
    /// In a copy.
    Copy(Memory),
}

impl Place {
    fn registered(&self, bytes: usize) -> Registered<'_> {
        match self {
            Self::Span(span) => span.registered(),
            Self::Copy(memory) => memory.registered(0..bytes),
        }
    }
}

/// A posted work request. The lease is dropped after the registration.
enum Open {
    Send { id: u64, place: Place, from: Arc<ReadLease> },
    Receive { place: Place, into: WriteLease },
}

/// A message that is not posted yet.
struct Waiting {
    id: u64,
    immediate: Option<u32>,
    from: Arc<ReadLease>,
}

/// A queue pair with a device of its own. Queues work requests beyond the device's depth.
///
/// Leases are kept until their completion is reported, or this is dropped.
pub struct BufferedQueuePair {
    // Dropped before the memory that the device accesses for it.
    queue_pair: QueuePair,
    open: BTreeMap<u64, Open>,
    next: u64,
    sends_open: usize,
    receives_open: usize,
    /// Queued beyond the device's depth.
    sends: VecDeque<Waiting>,
    receives: VecDeque<WriteLease>,
    /// Reused, since registering takes longer than sending.
    spare: Vec<Memory>,
    completions: Vec<Completion>,
    registrar: Registrar,
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
            registrar: Registrar::new(),
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

    /// Registered memory of its own for a message of this length, with arbitrary contents.
    fn buffer(&mut self, bytes: usize) -> Result<Memory, VerbsError> {
        let fitting = self.spare.iter().position(|memory| memory.bytes() >= bytes);
        if let Some(at) = fitting {
            return Ok(self.spare.swap_remove(at));
        }
        // One that is too short is deregistered.
        self.spare.pop();
        self.device.register(bytes, false)
    }

    /// Queues a message to be sent.
    pub fn send(
        &mut self,
        id: u64,
        immediate: Option<u32>,
        from: Arc<ReadLease>,
    ) -> Result<(), VerbsError> {
        self.sends.push_back(Waiting { id, immediate, from });
        self.post()
    }

    /// Queues a receive.
    pub fn receive(&mut self, into: WriteLease) -> Result<(), VerbsError> {
        self.receives.push_back(into);
        self.post()
    }

    /// Posts queued work requests, up to the device's depth.
    fn post(&mut self) -> Result<(), VerbsError> {
        while self.receives_open < DEPTH as usize
            && let Some(mut into) = self.receives.pop_front()
        {
            let (start, bytes) = (into.as_mut_ptr(), into.bytes());
            let place = match self.registrar.cover(&self.device, &into.memory(), start, bytes) {
                Some(span) => Place::Span(span),
                None => Place::Copy(self.buffer(bytes)?),
            };
            // SAFETY: the memory is this object's own, or leased for writing; `open` keeps the lease, and gives no access to
            // it before the device has completed the receive or the queue pair is gone.
            unsafe { self.queue_pair.receive_registered(self.next, place.registered(bytes)) }?;
            self.receives_open += 1;
            self.keep(Open::Receive { place, into });
        }
        while self.sends_open < DEPTH as usize
            && let Some(Waiting { id, immediate, from }) = self.sends.pop_front()
        {
            let (start, bytes) = (from.as_ptr(), from.bytes());
            let place = match self.registrar.cover(&self.device, &from.memory(), start, bytes) {
                Some(span) => Place::Span(span),
                None => {
                    let mut copy = self.buffer(bytes)?;
                    copy.write(0, &from)?;
                    Place::Copy(copy)
                }
            };
            let (send, memory) = (Operation::Send, place.registered(bytes));
            // SAFETY: as above; leased for reading.
            unsafe { self.queue_pair.send_registered(self.next, send, immediate, memory) }?;
            self.sends_open += 1;
            self.keep(Open::Send { id, place, from });
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
    pub fn progress(&mut self, mut ended: impl FnMut(Ended)) -> Result<(), VerbsError> {
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
        ended: &mut impl FnMut(Ended),
    ) -> Result<(), VerbsError> {
        let open = self.open.remove(&completion.id);
        match (open, completion.event) {
            (Some(Open::Send { id, place, from }), Some(Event::Sent)) => {
                self.sends_open -= 1;
                self.reuse(place);
                drop(from);
                ended(Ended::Sent { id });
            }
            (
                Some(Open::Receive { place, mut into }),
                Some(Event::Received { bytes, immediate }),
            ) => {
                self.receives_open -= 1;
                let bytes = bytes as usize;
                if let Place::Copy(copy) = &place {
                    let room = into.get_mut(..bytes);
                    copy.read_into(room.ok_or_else(|| self.failed(Status::RemoteOperation))?)?;
                }
                self.reuse(place);
                ended(Ended::Received { into, bytes, immediate });
            }
            // The device may still access it: dropped after the queue pair.
            (Some(open), _) => {
                self.open.insert(completion.id, open);
                return Err(self.failed(completion.status));
            }
            (None, _) => return Err(self.failed(completion.status)),
        }
        Ok(())
    }

    fn failed(&self, status: Status) -> VerbsError {
        VerbsError::Ended { device: self.device.name().to_owned(), status }
    }

    /// Keeps memory of its own; ends the use of others' memory.
    fn reuse(&mut self, place: Place) {
        if let Place::Copy(memory) = place {
            self.spare.push(memory);
        }
    }
}

impl AsFd for BufferedQueuePair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
