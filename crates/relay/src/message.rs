//! One message at one member: which blocks have arrived, and which transfers come next.

use schedule::Schedule;

use crate::{Blocks, Part, blocks::Tag};

/// State of one activated message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) number: u64,
    pub(crate) blocks: Blocks,
    tag: Tag,
    pub(crate) memory: Memory,
    /// The first step whose receive is not posted yet.
    receive_step: u64,
    /// The first step whose send is not queued yet; `None` when all are.
    send_step: Option<u64>,
    /// Blocks for which no receive has been posted. At zero, receives of the next message may be
    /// posted: blocks match receives by their order on each connection.
    pub(crate) receives_untaken: u32,
    pub(crate) receives_missing: u32,
    pub(crate) sends_open: u32,
    pub(crate) received_reported: bool,
}

/// Whether the message has its memory, and which blocks it holds.
#[derive(Debug)]
pub(crate) enum Memory {
    /// The application has not provided memory yet.
    Awaited,
    /// At the root: all blocks are there.
    Full,
    /// At a receiver: one bit a block.
    Partial(Vec<u64>),
}

impl Message {
    pub(crate) fn at_root(number: u64, blocks: Blocks, tag: Tag) -> Self {
        Self {
            memory: Memory::Full,
            receives_untaken: 0,
            receives_missing: 0,
            received_reported: true,
            ..Self::at_receiver(number, blocks, tag)
        }
    }

    pub(crate) fn at_receiver(number: u64, blocks: Blocks, tag: Tag) -> Self {
        Self {
            number,
            blocks,
            tag,
            memory: Memory::Awaited,
            receive_step: 0,
            send_step: Some(0),
            receives_untaken: blocks.count(),
            receives_missing: blocks.count(),
            sends_open: 0,
            received_reported: false,
        }
    }

    /// Records that the application has provided memory. Returns false if none was awaited.
    pub(crate) fn accept(&mut self) -> bool {
        if !matches!(self.memory, Memory::Awaited) {
            return false;
        }
        self.memory = Memory::Partial(vec![0; self.blocks.count().div_ceil(64) as usize]);
        true
    }

    pub(crate) fn has_memory(&self) -> bool {
        !matches!(self.memory, Memory::Awaited)
    }

    pub(crate) fn holds(&self, block: u32) -> bool {
        match &self.memory {
            Memory::Awaited => false,
            Memory::Full => true,
            Memory::Partial(bits) => bits[block as usize / 64] >> (block % 64) & 1 == 1,
        }
    }

    /// Marks a block as arrived.
    pub(crate) fn hold(&mut self, block: u32) {
        if let Memory::Partial(bits) = &mut self.memory {
            bits[block as usize / 64] |= 1 << (block % 64);
        }
        self.receives_missing -= 1;
    }

    /// Returns the immediate that a block is sent with.
    pub(crate) fn immediate(&self, block: u32) -> u32 {
        (block << self.tag.bits) | self.tag.value
    }

    /// Takes the next receive of the schedule: it is about to be posted.
    pub(crate) fn take_receive(&mut self, schedule: &Schedule, rank: u32) -> Option<Part> {
        let next = schedule.next_receive(rank, self.receive_step, self.blocks.count())?;
        self.receive_step = next.step + 1;
        self.receives_untaken -= 1;
        Some(Part { message: self.number, transfer: next })
    }

    /// Returns whether no receive was taken.
    pub(crate) fn is_untouched(&self) -> bool {
        self.receives_untaken == self.blocks.count()
    }

    /// Takes the next send of the schedule; it is open until it has been sent.
    pub(crate) fn take_send(&mut self, schedule: &Schedule, rank: u32) -> Option<Part> {
        let next = schedule.next_send(rank, self.send_step?, self.blocks.count());
        self.send_step = next.map(|transfer| transfer.step + 1);
        self.sends_open += u32::from(next.is_some());
        next.map(|transfer| Part { message: self.number, transfer })
    }

    /// Returns whether every send was taken, as far as [`Message::take_send`] has determined.
    pub(crate) fn sends_taken(&self) -> bool {
        self.send_step.is_none()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.receives_missing == 0 && self.sends_taken() && self.sends_open == 0
    }
}
