//! The relayed messages of one group at one member: executes the relay's actions, with the memory
//! that the application provided.

use std::{sync::Arc, time::Duration};

use relay::{Action, Blocks, ReceiveId, Relay, RelayError, SendId, Settings, Window};
use transport::{
    EndpointId, LeaseError, PostError, Region, Token, Transport, TriggeredSends, WriteLease,
};

use crate::{
    counters::Counters,
    credits::Credits,
    error::{Error, Fault},
    job_list::{Ended, Place, Then},
    jobs::{Digest, Disks, Lane},
    memory::range,
    messages::Messages,
    offload::Offload,
    outbox::{Contents, From, Outbox},
    peers::Peers,
    receives::Receives,
    settings::{GroupSettings, check_region},
    staging::Staging,
    timeline::Facts,
    verification::{Verdict, Verification},
    waits::Waits,
    watermark::Watermark,
    words::Word,
};

/// The relayed messages of one group at one member.
pub(crate) struct Transfers {
    pub(crate) settings: GroupSettings,
    pub(crate) offload: Offload,
    pub(crate) relay: Relay,
    pub(crate) messages: Messages,
    pub(crate) watermark: Watermark,
    pub(crate) peers: Peers,
    pub(crate) counters: Counters,
    /// Blocks between files and the network.
    pub(crate) staging: Staging,
    pub(crate) outbox: Outbox,
    /// In a group that verifies.
    pub(crate) verification: Option<Verification>,
    credits: Credits,
    receives: Receives,
}

fn triggered<T: Transport>(transport: &mut T) -> Result<&mut dyn TriggeredSends, PostError> {
    transport.triggered().ok_or(PostError::Unsupported("triggered sends"))
}

impl Transfers {
    pub(crate) fn new(
        settings: GroupSettings,
        offload: Offload,
        disks: Arc<dyn Disks>,
        id: u64,
    ) -> Result<Self, Error> {
        let relay = Relay::new(Settings {
            schedule: settings.schedule.clone(),
            rank: settings.rank,
            block_bytes: settings.block_bytes,
            window: settings.relay_window(),
            messages_in_flight: settings.messages_in_flight,
            offload: offload.limit(),
        })?;
        // At most one spare block for each message in flight waits for its memory. At the root, and
        // with algorithms that announce the size first, the spares are used only while the
        // application decides.
        let spare_count = if settings.is_root() { 0 } else { settings.messages_in_flight as usize };
        let lane = Lane { group: settings.number, id };
        let Window { receives, sends } = settings.window;
        let blocks = receives.saturating_add(sends) as usize;
        Ok(Self {
            outbox: Outbox::default(),
            staging: Staging::new(disks, lane, settings.block_bytes, blocks, offload.is_used()),
            receives: Receives::new(spare_count, settings.block_bytes),
            messages: Messages::new(settings.number, settings.rank, settings.report_blocks),
            watermark: Watermark::new(&settings.schedule, settings.rank),
            verification: settings.verify.then(|| {
                let in_flight = settings.messages_in_flight;
                Verification::new(
                    &settings.schedule,
                    settings.rank,
                    settings.block_bytes,
                    in_flight,
                )
            }),
            settings,
            offload,
            relay,
            peers: Peers::default(),
            counters: Counters::default(),
            credits: Credits::default(),
        })
    }

    /// Relays the message of this number at the root. Errors: too many blocks.
    pub(crate) fn send(
        &mut self,
        number: u64,
        region: &Region,
        now: Duration,
    ) -> Result<(), Error> {
        let bytes = region.len() as u64;
        if self.settings.is_root() && self.offload.is_used() {
            let blocks = Blocks::new(bytes, self.settings.block_bytes)?;
            blocks.check_offload(self.settings.messages_in_flight)?;
            if region.is_stored() || self.staging.has_unsent() {
                self.messages.unusable = self.staging.queue_message(number, region, now).err();
                return Ok(self.begin_verification(number, bytes)?);
            }
        }
        self.relay.send(number, bytes)?;
        Ok(self.begin_verification(number, bytes)?)
    }

    /// Adds a relayed message that is sent or announced, if the group verifies. Errors: too many blocks,
    /// which the relay has refused before.
    fn begin_verification(&mut self, number: u64, bytes: u64) -> Result<(), RelayError> {
        self.verification.as_mut().map_or(Ok(()), |verification| verification.begin(number, bytes))
    }

    /// Provides memory for a relayed message. Errors: the message does not wait for memory; the
    /// region is too small or read-only.
    pub(crate) fn accept(&mut self, message: u64, region: Region) -> Result<(), Error> {
        let bytes = self.relay.awaits_memory(message)?;
        check_region(self.settings.number, message, bytes, &region)?;
        self.messages.memory.insert(message, region);
        Ok(self.relay.accepted(message)?)
    }

    /// Processes a neighbour's announcement of a message.
    pub(crate) fn announced(
        &mut self,
        rank: u32,
        number: u64,
        bytes: u64,
    ) -> Result<(), RelayError> {
        self.check_unused(rank, number)?;
        self.relay.announced(rank, number, bytes)?;
        self.begin_verification(number, bytes)
    }

    /// Checks that `rank` has used a number of no other message. The greatest is not used, so that counting
    /// never overflows.
    pub(crate) fn check_unused(&self, rank: u32, number: u64) -> Result<(), RelayError> {
        let is_used = self.messages.order.has_arrived(number) || self.relay.knows(number);
        if is_used || number == u64::MAX {
            return Err(RelayError::peer(rank, "used a message number twice"));
        }
        Ok(())
    }

    /// Processes the completion of a send.
    pub(crate) fn sent(&mut self, rank: u32, id: SendId) -> Result<(), RelayError> {
        let facts = || Facts::of_send(&self.relay, rank, id, None);
        self.messages.timeline.note("sent", facts);
        self.relay.sent(id)
    }

    /// Processes the completion of a receive, whose block is written to its file first if it
    /// belongs to one.
    pub(crate) fn received(
        &mut self,
        rank: u32,
        id: ReceiveId,
        bytes: u64,
        immediate: u32,
        now: Duration,
    ) -> Result<(), RelayError> {
        self.credits.used(rank);
        self.counters.blocks_received += 1;
        self.counters.bytes_received += bytes;
        let came = Some((bytes, immediate));
        let facts = || Facts::of_receive(&self.relay, rank, id, came);
        self.messages.timeline.note("received", facts);
        match self.staging.landed(id, bytes, immediate, now)? {
            true => Ok(()),
            false => self.in_memory(id, bytes, immediate),
        }
    }

    /// Reports to the relay that the block of a receive is in its memory, and written to its file if
    /// it has one.
    fn in_memory(&mut self, id: ReceiveId, bytes: u64, immediate: u32) -> Result<(), RelayError> {
        self.relay.received(id, bytes, immediate)?;
        self.forget_if_held(id);
        Ok(())
    }

    /// Reports to the relay that a first block is in its place.
    fn placed(&mut self, id: ReceiveId, spare: Region) -> Result<(), RelayError> {
        self.receives.put_spare(spare);
        self.relay.placed(id)?;
        self.forget_if_held(id);
        Ok(())
    }

    fn forget_if_held(&mut self, id: ReceiveId) {
        if !self.relay.is_open(id) {
            self.receives.forget(id);
        }
    }

    /// Notes that a receive was not executed.
    pub(crate) fn missed(&mut self, id: ReceiveId) {
        self.receives.forget(id);
        self.staging.blocks.missed(id);
    }

    /// Executes the relay's next action. Returns `false` if there is none.
    pub(crate) fn step<T: Transport>(&mut self, transport: &mut T) -> Result<bool, Fault> {
        if let Some(error) = self.messages.unusable.take() {
            return Err(error.into());
        }
        let Some(action) = self.relay.poll_action() else { return Ok(false) };
        self.act(transport, action).map(|()| true)
    }

    fn act<T: Transport>(&mut self, transport: &mut T, action: Action) -> Result<(), Fault> {
        match action {
            Action::PostFirst { source, id } => {
                let lease = self.receives.lease_spare(id)?;
                self.post_receive(transport, source, id, lease);
            }
            Action::PostReceive { source, id, message, offset, bytes } => {
                let lease = self.lease_place(id, message, offset, bytes)?;
                self.post_receive(transport, source, id, lease);
            }
            Action::PostSend { target, id, after, message, block, offset, bytes } => {
                let place = (message, offset);
                self.queue_send(transport, target, id, block, place, bytes, after)?;
            }
            Action::Announce { target, message: number, bytes } => {
                if let Some(verification) = &mut self.verification {
                    verification.announced(number);
                }
                let facts = || Facts::of(target).message(number).bytes(bytes);
                self.messages.timeline.note("announce", facts);
                let delivered = self.watermark.everywhere(self.in_place());
                self.peers.write(
                    transport,
                    target,
                    &Word::Announce { number, bytes, delivered },
                )?;
            }
            Action::PlaceFirst { id, message, offset, bytes } => {
                self.counters.bytes_copied += bytes;
                // The event contains the post: a block that arrived before its announcement had no
                // message then.
                let facts = Facts::default().message(message).bytes(bytes).post(id.0);
                self.messages.timeline.note("copy", || facts);
                self.place_first(id, message, offset, bytes, transport.now())?;
                self.messages.timeline.note("copied", || facts);
            }
            Action::Incoming { message, bytes } => {
                let verification = self.verification.as_mut();
                if verification.is_none_or(|verification| verification.admits(message, bytes)) {
                    self.messages.order.incoming(message, bytes);
                }
            }
            Action::BlockReady { message, block, offset, bytes } => {
                if let Some(verification) = &mut self.verification {
                    verification.held(message, block);
                }
                self.messages.held(message, offset, bytes);
            }
            Action::Received { message } if self.verification.is_none() => {
                self.messages.order.received(message);
            }
            // Once it is known to be the root's.
            Action::Received { .. } => {}
            Action::Complete { message } => {
                self.staging.forget(message);
                match &mut self.verification {
                    Some(verification) => verification.complete(message),
                    None => self.messages.order.complete(message),
                }
            }
            offloaded => self.act_offloaded(transport, offloaded)?,
        }
        Ok(())
    }

    /// Executes an action that only an offloading relay returns; ignores others.
    fn act_offloaded<T: Transport>(
        &mut self,
        transport: &mut T,
        action: Action,
    ) -> Result<(), Fault> {
        match action {
            Action::PostOffloadedReceive { source, id, message, immediate, offset, bytes } => {
                let lease = self.lease_place(id, message, offset, bytes)?;
                self.post(transport, source, |transport, endpoint| {
                    let sends = triggered(transport)?;
                    sends.post_offloaded_receive(endpoint, lease, immediate, Token(id.0))
                });
            }
            Action::Grant { source, count } => self.write_grant(transport, source, count)?,
            Action::PostOffloadedSend {
                target,
                id,
                message,
                immediate,
                offset,
                bytes,
                after_receive,
                after_send,
            } => {
                let whole = self.staging.whole(message, self.messages.region(message));
                let from = whole.future_read(range(offset, bytes))?;
                // The network may have no record of receives that are done; their blocks are in
                // memory.
                let open = after_receive.filter(|&(_, id)| !self.staging.blocks.has_landed(id));
                let receive = open.map(|(source, id)| (source, Token(id.0)));
                let send = after_send.map(|(target, id)| (target, Token(id.0)));
                let mut after = Vec::with_capacity(2);
                for (rank, token) in receive.into_iter().chain(send) {
                    // A neighbour that is disconnected will not complete anything.
                    let Some(endpoint) = self.peers.get(rank) else { return Ok(()) };
                    after.push((endpoint, token));
                }
                self.counters.blocks_sent += 1;
                self.counters.bytes_sent += bytes;
                self.post(transport, target, |transport, endpoint| {
                    let sends = triggered(transport)?;
                    sends.post_offloaded_send(endpoint, from, immediate, Token(id.0), &after)
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends the grants of posted receives that are due.
    pub(crate) fn grant<T: Transport>(&mut self, transport: &mut T) -> Result<(), Fault> {
        while let Some((rank, count)) = self.credits.due() {
            self.write_grant(transport, rank, count)?;
        }
        Ok(())
    }

    fn write_grant<T: Transport>(
        &self,
        transport: &mut T,
        source: u32,
        count: u32,
    ) -> Result<(), Fault> {
        let received = self.watermark.subtree(self.in_place());
        self.peers.write(transport, source, &Word::Grant { count, received })
    }

    /// Notes how many messages are in place at every member.
    pub(crate) fn note_everywhere(&mut self, delivered: u64) {
        self.watermark.note_everywhere(delivered, self.in_place());
    }

    /// Returns how many messages, from the first, are in place here.
    pub(crate) fn in_place(&self) -> u64 {
        if self.settings.is_root() {
            self.messages.order.known()
        } else {
            self.messages.order.received_count()
        }
    }

    /// Posts a send behind those to the same target, once its bytes are in memory; or as they arrive by the
    /// receive `after`.
    fn queue_send<T: Transport>(
        &mut self,
        transport: &mut T,
        target: u32,
        id: SendId,
        block: u32,
        place: Place,
        bytes: u64,
        after: Option<ReceiveId>,
    ) -> Result<(), LeaseError> {
        self.counters.blocks_sent += 1;
        self.counters.bytes_sent += bytes;
        let facts = || Facts::of_send(&self.relay, target, id, Some(bytes));
        self.messages.timeline.note("send", facts);
        let region = self.messages.region(place.0);
        let from = if let Some(arriving) = after.and_then(|after| self.receives.arriving(after)) {
            From::Ready(Contents::Arriving(arriving.read(bytes as usize)?))
        } else if region.is_stored() {
            self.staging.load(place, &region, bytes, transport.now())?;
            From::Block(place, bytes)
        } else {
            From::Ready(Contents::Whole(region.read(range(place.1, bytes))?))
        };
        self.outbox.queue(target, id, block, from);
        self.post_sends(transport, target)
    }

    /// Leases the memory into which the network writes a block: the message's own, or that of a
    /// block to be written to a file.
    fn lease_place(
        &mut self,
        id: ReceiveId,
        message: u64,
        offset: u64,
        bytes: u64,
    ) -> Result<WriteLease, LeaseError> {
        let region = self.messages.region(message);
        match region.is_stored() {
            true => self.staging.land(id, region, (message, offset), bytes),
            false => region.write(range(offset, bytes)),
        }
    }

    fn post_receive<T: Transport>(
        &mut self,
        transport: &mut T,
        source: u32,
        id: ReceiveId,
        mut lease: WriteLease,
    ) {
        self.receives.follow(transport, id, &mut lease);
        let token = Token(id.0);
        if self.post(transport, source, |transport, to| transport.post_receive(to, lease, token)) {
            self.credits.posted(source);
            let facts = || Facts::of_receive(&self.relay, source, id, None);
            self.messages.timeline.note("grant", facts);
        }
    }

    /// Posts for a neighbour, if it is connected. Returns whether the transport has accepted the post.
    fn post<T: Transport>(
        &mut self,
        transport: &mut T,
        rank: u32,
        post: impl FnOnce(&mut T, EndpointId) -> Result<(), PostError>,
    ) -> bool {
        let posted = self.peers.get(rank).map(|endpoint| post(transport, endpoint));
        posted.is_some_and(|posted| self.peers.record_post(rank, posted))
    }

    /// Posts the sends to `target` whose bytes are in memory, in order.
    fn post_sends<T: Transport>(
        &mut self,
        transport: &mut T,
        target: u32,
    ) -> Result<(), LeaseError> {
        while let Some(ready) = self.outbox.take_ready(target, &mut self.staging.blocks) {
            let (id, block, contents) = ready?;
            let token = Token(id.0);
            self.post(transport, target, |transport, endpoint| match contents {
                Contents::Whole(lease) => transport.post_send(endpoint, lease, block, token),
                Contents::Arriving(read) => match transport.cut_through() {
                    Some(sends) => sends.post_cut_through_send(endpoint, read, block, token),
                    None => Err(PostError::Unsupported("cut-through sends")),
                },
            });
        }
        Ok(())
    }

    /// Copies a first block to its place, and reports it to the relay, at once or after it is
    /// written to a file.
    fn place_first(
        &mut self,
        id: ReceiveId,
        message: u64,
        offset: u64,
        bytes: u64,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let Some(spare) = self.receives.take_spare(id) else { return Ok(()) };
        let region = self.messages.region(message);
        let from = spare.read(range(0, bytes))?;
        if region.is_stored() {
            let then = Then::Placed { id, spare };
            return self.staging.store(from, &region, (message, offset), then, now);
        }
        region.write(range(offset, bytes))?.copy_from_slice(&from);
        drop(from);
        // The relay has just asked for it.
        let placed = self.placed(id, spare);
        debug_assert_eq!(placed, Ok(()));
        Ok(())
    }

    /// In a group that verifies: computes digests of what is in place, passes the root's on, and reports
    /// messages of which the copy here is the same. Errors: it is another.
    pub(crate) fn verify<T: Transport>(&mut self, transport: &mut T) -> Result<(), Fault> {
        let Some(verification) = &mut self.verification else { return Ok(()) };
        if let Some(request) = verification.next_job(&self.messages.memory)? {
            self.staging.jobs.submit(request, transport.now());
        }
        for (rank, word) in verification.next_words() {
            self.peers.write(transport, rank, &word)?;
        }
        while let Some(verdict) = verification.next_verdict() {
            match verdict {
                Verdict::Same { message } if !self.settings.is_root() => {
                    self.messages.order.received(message)
                }
                Verdict::Same { .. } => {}
                Verdict::Complete { message } => self.messages.order.complete(message),
                Verdict::Differs { message, bytes } => {
                    return Err(Fault::Differs { message, bytes });
                }
            }
        }
        while let Some((message, bytes)) = verification.next_incoming() {
            self.messages.order.incoming(message, bytes);
        }
        Ok(())
    }

    /// Executes what follows a job, which has computed these digests.
    pub(crate) fn follow<T: Transport>(
        &mut self,
        transport: &mut T,
        ended: Ended,
        digests: Vec<Digest>,
    ) -> Result<(), Fault> {
        let message = ended.message;
        match ended.then {
            Then::Received { id, bytes, immediate, memory, place } => {
                self.staging.written(id, place, memory);
                self.in_memory(id, bytes, immediate)?;
            }
            Then::Placed { id, spare } => self.placed(id, spare)?,
            Then::Loaded { place } => {
                self.staging.blocks.loaded(place);
                for target in self.outbox.targets() {
                    self.post_sends(transport, target)?;
                }
            }
            Then::SmallTaken { bytes } => self.messages.small_taken(message, bytes),
            Then::Shadowed => {
                for (number, bytes) in self.staging.shadowed(message) {
                    self.relay.send(number, bytes)?;
                }
            }
            Then::Digested { blocks } => {
                if let Some(verification) = &mut self.verification {
                    verification.computed(message, blocks.into_iter().zip(digests).collect());
                }
            }
        }
        Ok(())
    }

    /// Returns a view of what this member waits for.
    pub(crate) fn waits(&self) -> Waits<'_> {
        Waits { settings: &self.settings, relay: &self.relay, order: &self.messages.order }
    }
}
