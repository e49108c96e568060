//! The state machine: messages in order, windows, credits.

mod cut_through;
mod offload;
mod waits;

use std::collections::{BTreeMap, VecDeque};

pub use waits::{Obstacle, Wait};

use crate::{Action, Part, ReceiveId, RelayError, SendId, Settings, message::Message};

/// How many sends are considered beyond the first that waits: a delayed target delays no other
/// until this many are queued behind it. The windows of the targets limit this long before.
const SENDS_QUEUED_MAX: usize = 32;

/// More credits than any window grants: a peer that grants more violates the protocol.
const CREDITS_MAX: u32 = 1 << 16;

/// Numbers of messages then take at most half of an immediate.
const OFFLOADED_MESSAGES_MAX: u32 = 1 << 16;

/// One group at one member: see the crate's documentation.
#[derive(Debug)]
pub struct Relay {
    settings: Settings,
    neighbours: Vec<Neighbour>,
    announcer: Option<u32>,
    /// Numbers and lengths of messages that are known but not activated.
    queued: VecDeque<(u64, u64)>,
    /// Activated messages that are not complete, in order.
    messages: VecDeque<Message>,
    /// How many messages were activated.
    activated: u64,
    /// The least number that the next message may have.
    next_number: u64,
    receives: BTreeMap<ReceiveId, Receive>,
    receives_posted: u32,
    sends: BTreeMap<SendId, Part>,
    sends_waiting: VecDeque<Part>,
    /// The receives that bring blocks which are not held yet, by message and block: with offload all,
    /// else those of blocks that are arriving.
    bringing: BTreeMap<(u64, u32), ReceiveId>,
    /// Offload: the last sends that were posted, as many as may run at once.
    sends_recent: VecDeque<(u32, SendId)>,
    next_id: u64,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
struct Neighbour {
    rank: u32,
    /// Receives that the neighbour has posted for this member, and that are not used.
    credits: u32,
    /// Whether this member announces messages to the neighbour.
    announced_by_us: bool,
}

/// A receive that is posted, or whose block cannot be placed yet.
#[derive(Debug)]
struct Receive {
    source: u32,
    /// `None` for a first block whose message is not known yet.
    part: Option<Part>,
    in_spare_memory: bool,
    /// The immediate of the block, once some of it has arrived before the rest.
    arriving: Option<u32>,
    arrived: Option<Arrival>,
    /// Whether the block is being copied out of spare memory.
    is_being_placed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    bytes: u64,
    immediate: u32,
}

impl Relay {
    /// Makes a relay without messages, which requests the receive of a first block at once.
    ///
    /// Errors: [`RelayError::Setting`].
    pub fn new(settings: Settings) -> Result<Self, RelayError> {
        check(&settings)?;
        let (schedule, rank) = (&settings.schedule, settings.rank);
        let mut neighbours: Vec<Neighbour> = schedule
            .neighbours(rank)
            .map(|other| Neighbour {
                rank: other,
                credits: 0,
                announced_by_us: schedule.announcer(other) == Some(rank),
            })
            .collect();
        neighbours.sort_unstable_by_key(|neighbour| neighbour.rank);
        let mut relay = Self {
            announcer: schedule.announcer(rank),
            settings,
            neighbours,
            queued: VecDeque::new(),
            messages: VecDeque::new(),
            activated: 0,
            next_number: 0,
            receives: BTreeMap::new(),
            receives_posted: 0,
            sends: BTreeMap::new(),
            sends_waiting: VecDeque::new(),
            bringing: BTreeMap::new(),
            sends_recent: VecDeque::new(),
            next_id: 0,
            actions: VecDeque::new(),
        };
        relay.advance()?;
        Ok(relay)
    }

    /// Returns the next action, if any.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns whether messages were sent or announced at this member that are not complete.
    pub fn has_messages(&self) -> bool {
        !self.messages.is_empty() || !self.queued.is_empty()
    }

    /// Returns whether a message was sent or announced at this member, and is not complete.
    pub fn knows(&self, message: u64) -> bool {
        self.message(message).is_some() || self.queued.iter().any(|&(number, _)| number == message)
    }

    /// Queues a message at the root, which has all its blocks. Numbers grow from message to message, not
    /// necessarily by one: the caller may have messages that are not relayed.
    ///
    /// Errors: [`RelayError::NotRoot`], [`RelayError::TooManyBlocks`], or [`RelayError::Unknown`] for a
    /// number that is not greater than the last; nothing is queued then.
    pub fn send(&mut self, message: u64, bytes: u64) -> Result<(), RelayError> {
        let (root, rank) = (self.settings.schedule.root(), self.settings.rank);
        if rank != root {
            return Err(RelayError::NotRoot { root, rank });
        }
        self.cut(bytes)?;
        if !self.queue(message, bytes) {
            return Err(RelayError::Unknown { what: "message", number: message });
        }
        self.advance()
    }

    /// Handles the announcement by `source` of the next message, with its number and its length.
    ///
    /// Errors: [`RelayError::Peer`] if `source` is not this member's announcer, if the number is not
    /// greater than the last or the length is impossible, or if more messages are announced than may be in
    /// flight.
    pub fn announced(&mut self, source: u32, message: u64, bytes: u64) -> Result<(), RelayError> {
        let wrong = |what: &str| Err(RelayError::peer(source, what));
        if self.announcer != Some(source) {
            return wrong("announced a message that is not its to announce");
        }
        if let Err(error) = self.cut(bytes) {
            return wrong(&format!("announced an impossible message: {error}"));
        }
        // The announcer activates a message only when all but `messages_in_flight` before it are
        // complete there. It sends this member a block of each of them (`Schedule::announcer`), so they are granted here,
        // hence activated here.
        let known = self.messages.len() + self.queued.len();
        if known >= 2 * self.settings.messages_in_flight as usize {
            return wrong("announced more messages than may be in flight");
        }
        if !self.queue(message, bytes) {
            return wrong("announced messages out of order");
        }
        self.advance()
    }

    /// Queues a message, unless its number is not greater than the last, or the greatest of all: so
    /// counting never overflows.
    fn queue(&mut self, message: u64, bytes: u64) -> bool {
        let is_next = message >= self.next_number && message < u64::MAX;
        if is_next {
            self.next_number = message + 1;
            self.queued.push_back((message, bytes));
        }
        is_next
    }

    /// Handles `count` credits: `target` has posted this many more receives for this member.
    ///
    /// Errors: [`RelayError::Peer`] if it is no neighbour, or grants more credits than any window
    /// has.
    pub fn granted(&mut self, target: u32, count: u32) -> Result<(), RelayError> {
        let neighbour = self
            .neighbour(target)
            .ok_or_else(|| RelayError::peer(target, "granted a credit but is no neighbour"))?;
        if count > CREDITS_MAX - neighbour.credits {
            return Err(RelayError::peer(target, "granted more credits than any window has"));
        }
        neighbour.credits += count;
        self.advance()
    }

    /// Returns whether `target` has posted a receive for this member that is not used.
    pub fn has_credit(&self, target: u32) -> bool {
        self.credits(target) > 0
    }

    /// Returns the length of a message for which the application has not provided memory.
    ///
    /// Errors: [`RelayError::Unknown`] if none was asked for, or it was given already.
    pub fn awaits_memory(&self, message: u64) -> Result<u64, RelayError> {
        self.message(message)
            .filter(|message| !message.has_memory())
            .map(|message| message.blocks.bytes())
            .ok_or(RelayError::Unknown { what: "message", number: message })
    }

    /// Records that the application has provided memory for this message.
    ///
    /// Errors: [`RelayError::Unknown`] if none was asked for, or it was given already.
    pub fn accepted(&mut self, message: u64) -> Result<(), RelayError> {
        if !self.message_mut(message).is_some_and(Message::accept) {
            return Err(RelayError::Unknown { what: "message", number: message });
        }
        let early: Vec<ReceiveId> = self
            .receives
            .iter()
            .filter(|(_, receive)| receive.part.is_some_and(|part| part.message == message))
            .map(|(&id, _)| id)
            .collect();
        for id in early {
            self.follow(id)?;
            self.place(id)?;
        }
        self.advance()
    }

    /// Handles a block that has filled a posted receive.
    ///
    /// Errors: [`RelayError::Peer`] if it is not the block of the schedule, or has another length;
    /// [`RelayError::Unknown`].
    pub fn received(
        &mut self,
        id: ReceiveId,
        bytes: u64,
        immediate: u32,
    ) -> Result<(), RelayError> {
        let receive = self
            .receives
            .get_mut(&id)
            .filter(|receive| receive.arrived.is_none())
            .ok_or(RelayError::Unknown { what: "receive", number: id.0 })?;
        receive.arrived = Some(Arrival { bytes, immediate });
        self.receives_posted -= 1;
        self.place(id)?;
        self.advance()
    }

    /// Records that a posted send is done.
    ///
    /// Errors: [`RelayError::Unknown`].
    pub fn sent(&mut self, id: SendId) -> Result<(), RelayError> {
        let send =
            self.sends.remove(&id).ok_or(RelayError::Unknown { what: "send", number: id.0 })?;
        if let Some(message) = self.message_mut(send.message) {
            message.sends_open -= 1;
        }
        self.advance()
    }

    /// Takes all actions that have become possible, until there are no more.
    fn advance(&mut self) -> Result<(), RelayError> {
        loop {
            self.activate()?;
            if let Some(limit) = self.settings.offload {
                self.post_offloaded(limit);
            } else {
                self.post_receives()?;
                self.queue_sends();
                self.post_sends();
            }
            if !self.retire() {
                return Ok(());
            }
        }
    }

    /// Activates queued messages while fewer than the limit are unfinished.
    fn activate(&mut self) -> Result<(), RelayError> {
        while self.messages.len() < self.settings.messages_in_flight as usize {
            let Some((message, bytes)) = self.queued.pop_front() else { break };
            let (blocks, tag) = (self.cut(bytes)?, self.tag(self.activated));
            self.activated += 1;
            let is_root = self.announcer.is_none();
            self.messages.push_back(if is_root {
                Message::at_root(message, blocks, tag)
            } else {
                Message::at_receiver(message, blocks, tag)
            });
            for neighbour in self.neighbours.iter().filter(|neighbour| neighbour.announced_by_us) {
                self.actions.push_back(Action::Announce { target: neighbour.rank, message, bytes });
            }
            if !is_root {
                self.actions.push_back(Action::Incoming { message, bytes });
                self.adopt_first_block()?;
            }
        }
        Ok(())
    }

    /// Assigns the receive that was posted before its message was known to the last message.
    fn adopt_first_block(&mut self) -> Result<(), RelayError> {
        let standing = self.receives.iter_mut().find(|(_, receive)| receive.part.is_none());
        let Some((&id, receive)) = standing else { return Ok(()) };
        if let Some(message) = self.messages.back_mut() {
            receive.part = message.take_receive(&self.settings.schedule, self.settings.rank);
        }
        self.follow(id)?;
        self.place(id)
    }

    /// Processes a block that has arrived, if its message is known and has memory.
    fn place(&mut self, id: ReceiveId) -> Result<(), RelayError> {
        let Some(receive) = self.receives.get(&id) else { return Ok(()) };
        let (Some(arrival), Some(part)) = (receive.arrived, receive.part) else {
            return Ok(());
        };
        let (source, spare) = (receive.source, receive.in_spare_memory);
        let Part { message: number, transfer } = part;
        let Some(message) = self.message(number) else { return Ok(()) };
        let immediate = message.immediate(transfer.block);
        let range = message.blocks.range(transfer.block);
        if (arrival.immediate, arrival.bytes) != (immediate, range.bytes) {
            let what = format!(
                "sent block {} of {} bytes where step {} of message {number} has block {} of {}",
                arrival.immediate, arrival.bytes, transfer.step, immediate, range.bytes
            );
            return Err(RelayError::peer(source, what));
        }
        if !message.has_memory() {
            return Ok(());
        }
        if !spare {
            self.hold(id, part);
        } else if let Some(receive) = self.receives.get_mut(&id)
            && !std::mem::replace(&mut receive.is_being_placed, true)
        {
            let (offset, bytes) = (range.offset, range.bytes);
            self.actions.push_back(Action::PlaceFirst { id, message: number, offset, bytes });
        }
        Ok(())
    }

    /// Records that the block of [`Action::PlaceFirst`] was copied to its position.
    ///
    /// Errors: [`RelayError::Unknown`].
    pub fn placed(&mut self, id: ReceiveId) -> Result<(), RelayError> {
        let unknown = RelayError::Unknown { what: "receive", number: id.0 };
        let receive = self.receives.get(&id).filter(|receive| receive.is_being_placed);
        let part = receive.and_then(|receive| receive.part).ok_or(unknown)?;
        self.hold(id, part);
        self.advance()
    }

    /// Records that a block is at its position, and its receive done.
    fn hold(&mut self, id: ReceiveId, Part { message, transfer }: Part) {
        let block = transfer.block;
        self.receives.remove(&id);
        self.bringing.remove(&(message, block));
        let Some(held) = self.message_mut(message) else { return };
        held.hold(block);
        let range = held.blocks.range(block);
        let (offset, bytes) = (range.offset, range.bytes);
        self.actions.push_back(Action::BlockReady { message, block, offset, bytes });
    }

    /// Posts receives in the order of messages and steps, as far as the window allows.
    fn post_receives(&mut self) -> Result<(), RelayError> {
        if self.announcer.is_none() {
            return Ok(());
        }
        while self.receives_posted < self.settings.window.receives {
            let receiving = self.messages.iter().position(|message| message.receives_untaken > 0);
            let posted = match receiving {
                Some(index) => self.post_next_receive(index),
                None => self.post_standing_receive(),
            };
            if !posted {
                break;
            }
        }
        Ok(())
    }

    /// Posts the next receive of an activated message. Without memory only its first is possible.
    fn post_next_receive(&mut self, index: usize) -> bool {
        let message = &mut self.messages[index];
        let in_spare_memory = !message.has_memory();
        if in_spare_memory && !message.is_untouched() {
            return false;
        }
        let part = message.take_receive(&self.settings.schedule, self.settings.rank);
        let Some(Part { message: number, transfer }) = part else { return false };
        let range = message.blocks.range(transfer.block);
        let source = transfer.source;
        let id = ReceiveId(self.new_id());
        self.actions.push_back(if in_spare_memory {
            Action::PostFirst { source, id }
        } else {
            let (offset, bytes) = (range.offset, range.bytes);
            Action::PostReceive { source, id, message: number, offset, bytes }
        });
        self.insert_receive(id, source, part, in_spare_memory);
        true
    }

    /// Posts the receive for the first block of a message that is not known yet.
    fn post_standing_receive(&mut self) -> bool {
        let room = self.messages.len() < self.settings.messages_in_flight as usize;
        let standing = self.receives.values().any(|receive| receive.part.is_none());
        let source = self.settings.schedule.first_source(self.settings.rank);
        let Some(source) = source.filter(|_| room && !standing) else { return false };
        let id = ReceiveId(self.new_id());
        self.actions.push_back(Action::PostFirst { source, id });
        self.insert_receive(id, source, None, true);
        true
    }

    fn insert_receive(
        &mut self,
        id: ReceiveId,
        source: u32,
        part: Option<Part>,
        in_spare_memory: bool,
    ) {
        self.receives_posted += 1;
        let receive = Receive {
            source,
            part,
            in_spare_memory,
            arriving: None,
            arrived: None,
            is_being_placed: false,
        };
        self.receives.insert(id, receive);
    }

    /// Takes sends out of the schedule, in order of messages and steps, into the waiting list.
    fn queue_sends(&mut self) {
        let (schedule, rank) = (&self.settings.schedule, self.settings.rank);
        for message in &mut self.messages {
            while !message.sends_taken() {
                if self.sends_waiting.len() >= SENDS_QUEUED_MAX {
                    return;
                }
                self.sends_waiting.extend(message.take_send(schedule, rank));
            }
        }
    }

    /// Posts waiting sends that have their credit, and their block or its beginning, as far as the
    /// window allows.
    ///
    /// Sends to one target keep their order, by which they match its receives. A send overtakes an
    /// earlier one that waits only if nothing else is being sent: posting it behind another would
    /// make the earlier one, which may become ready any moment, wait for both (the priority
    /// inversion of DSN 2018 section 2). With a window of one send none overtakes: a late send would be
    /// overtaken each time, and the members would leave the schedule's order for good.
    fn post_sends(&mut self) {
        let keeps_order = self.settings.window.sends == 1;
        let mut index = 0;
        while index < self.sends_waiting.len()
            && self.sends.len() < self.settings.window.sends as usize
            && (index == 0 || (!keeps_order && self.sends.is_empty()))
        {
            let send = self.sends_waiting[index];
            let target = send.transfer.target;
            let first_to_target =
                self.sends_waiting.range(..index).all(|other| other.transfer.target != target);
            if first_to_target && self.credits(target) > 0 && self.can_send(&send) {
                self.sends_waiting.remove(index);
                self.post_send(send);
                index = 0;
            } else {
                index += 1;
            }
        }
    }

    fn post_send(&mut self, send: Part) {
        let (target, block) = (send.transfer.target, send.transfer.block);
        let id = SendId(self.new_id());
        if let Some(neighbour) = self.neighbour(target) {
            neighbour.credits -= 1;
        }
        let Some(message) = self.message(send.message) else { return };
        let (range, is_held) = (message.blocks.range(block), message.holds(block));
        let (message, offset, bytes) = (send.message, range.offset, range.bytes);
        let after = self.bringing.get(&(message, block)).filter(|_| !is_held).copied();
        self.actions.push_back(Action::PostSend {
            target,
            id,
            after,
            message,
            block,
            offset,
            bytes,
        });
        self.sends.insert(id, send);
    }

    /// Reports received and complete messages, in order. Returns whether a message was removed.
    fn retire(&mut self) -> bool {
        for message in self.messages.iter_mut().take_while(|it| it.receives_missing == 0) {
            if !std::mem::replace(&mut message.received_reported, true) {
                self.actions.push_back(Action::Received { message: message.number });
            }
        }
        let mut retired = false;
        while let Some(message) = self.messages.front().filter(|it| it.is_complete()) {
            self.actions.push_back(Action::Complete { message: message.number });
            self.messages.pop_front();
            retired = true;
        }
        retired
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn index(&self, number: u64) -> Option<usize> {
        let first = self.messages.front()?.number;
        // It is here unless messages between them are not relayed.
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        match self.messages.get(index) {
            Some(message) if message.number == number => Some(index),
            _ => self.messages.binary_search_by_key(&number, |message| message.number).ok(),
        }
    }

    fn message(&self, number: u64) -> Option<&Message> {
        self.index(number).map(|index| &self.messages[index])
    }

    fn message_mut(&mut self, number: u64) -> Option<&mut Message> {
        self.index(number).map(|index| &mut self.messages[index])
    }

    fn holds(&self, send: &Part) -> bool {
        self.message(send.message).is_some_and(|message| message.holds(send.transfer.block))
    }

    fn neighbour(&mut self, rank: u32) -> Option<&mut Neighbour> {
        let index = self.neighbours.binary_search_by_key(&rank, |other| other.rank).ok()?;
        self.neighbours.get_mut(index)
    }

    fn credits(&self, rank: u32) -> u32 {
        self.neighbours
            .binary_search_by_key(&rank, |other| other.rank)
            .map_or(0, |index| self.neighbours[index].credits)
    }
}

fn check(settings: &Settings) -> Result<(), RelayError> {
    let rules = [
        (settings.rank < settings.schedule.members(), "the rank must be below the group's size"),
        (settings.block_bytes > 0, "a block must have at least one byte"),
        (settings.window.receives > 0, "the window must allow at least one receive"),
        (settings.window.sends > 0, "the window must allow at least one send"),
        (settings.messages_in_flight > 0, "at least one message must be in flight"),
        (settings.offload != Some(0), "offload must allow at least one operation"),
        (
            settings.offload.is_none() || settings.messages_in_flight <= OFFLOADED_MESSAGES_MAX,
            "with offload at most 65,536 messages can be in flight",
        ),
    ];
    match rules.into_iter().find(|(holds, _)| !holds) {
        Some((_, broken)) => Err(RelayError::Setting(broken)),
        None => Ok(()),
    }
}
