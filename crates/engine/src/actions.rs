//! Carrying out what the relay asks for.

use relay::{Action, ReceiveId};
use transport::{LeaseError, Region, Token, Transport};

use crate::{
    counters::Counters,
    event::Event,
    group::{Group, range},
    timeline::Facts,
    words::Word,
};

impl Group {
    /// Carries out one action. Errors: memory that cannot be leased.
    pub(crate) fn act<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        action: Action,
    ) -> Result<(), LeaseError> {
        let group = self.settings.number;
        match action {
            Action::PostFirst { source, id } => {
                // The relay never asks for more than the pool holds; were it ever to, a fresh
                // region costs an allocation and nothing else.
                let block_bytes = self.settings.block_bytes as usize;
                let region = self.spare.take().unwrap_or_else(|| Region::zeroed(block_bytes));
                let lease = region.write(0..block_bytes)?;
                self.spare_used.insert(id, region);
                self.post_receive(transport, source, id, lease);
            }
            Action::PostReceive { source, id, message, offset, bytes } => {
                let region = self.region(message);
                let lease = match region.is_stored() {
                    true => self.land(id, message, offset, bytes)?,
                    false => region.write(range(offset, bytes))?,
                };
                self.post_receive(transport, source, id, lease);
            }
            Action::PostSend { target, id, message, block, offset, bytes } => {
                counters.blocks_sent += 1;
                counters.bytes_sent += bytes;
                self.note_send("send", target, id, bytes);
                self.queue_send(transport, target, (id, block), message, (offset, bytes))?;
            }
            Action::Announce { target, bytes } => {
                let told = self.announced.entry(target).or_default();
                let number = self.order.number_of(*told).unwrap_or(u64::MAX);
                *told += 1;
                self.note("announce", |_| Facts::of(target).message(number).bytes(bytes));
                self.write_word(transport, target, &Word::Announce { number, bytes });
            }
            Action::PlaceFirst { id, message, offset, bytes } => {
                counters.bytes_copied += bytes;
                // With the post: a block that came before its announcement had no message then.
                let facts =
                    |group: &Self| Facts::default().relayed(group, message).bytes(bytes).post(id.0);
                self.note("copy", facts);
                self.place_first(id, message, (offset, bytes), transport.now())?;
                self.note("copied", facts);
            }
            Action::Incoming { message, bytes } => {
                self.order.incoming(self.number_of(message), bytes);
            }
            Action::BlockReady { message, offset, bytes, .. } => {
                let message = self.number_of(message);
                if self.settings.report_blocks {
                    self.events.push_back(Event::Block { group, message, offset, bytes });
                }
            }
            Action::Received { message } => self.order.received(self.number_of(message)),
            Action::Complete { message } => {
                let number = self.number_of(message);
                self.staging.forget(number);
                self.order.complete(number);
                self.order.retire();
            }
            offloaded => self.act_offloaded(transport, counters, offloaded)?,
        }
        Ok(())
    }

    /// Tells neighbours of the receives that are posted for them, where it is time.
    pub(crate) fn grant<T: Transport>(&mut self, transport: &mut T) {
        while let Some((rank, count)) = self.credits.due() {
            self.write_word(transport, rank, &Word::Grant { count });
        }
    }

    fn post_receive<T: Transport>(
        &mut self,
        transport: &mut T,
        source: u32,
        id: ReceiveId,
        lease: transport::WriteLease,
    ) {
        let Some(endpoint) = self.peer(source) else { return };
        let posted = transport.post_receive(endpoint, lease, Token(id.0));
        if self.is_posted(source, posted) {
            self.credits.posted(source);
            self.note_receive("grant", source, id, None);
        }
    }
}
