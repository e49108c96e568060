//! Cut-through: blocks that are sent on while they arrive.

use super::Relay;
use crate::{Part, ReceiveId, RelayError};

impl Relay {
    /// Handles a block of which some has arrived in a posted receive, where the network can send it
    /// on before the rest has.
    ///
    /// Errors: [`RelayError::Peer`] if it is not the block of the schedule; [`RelayError::Unknown`].
    pub fn arriving(&mut self, id: ReceiveId, immediate: u32) -> Result<(), RelayError> {
        let receive = self
            .receives
            .get_mut(&id)
            .filter(|receive| receive.arrived.is_none() && receive.arriving.is_none())
            .ok_or(RelayError::Unknown { what: "receive", number: id.0 })?;
        receive.arriving = Some(immediate);
        self.follow(id)?;
        self.advance()
    }

    /// Lets the block of a receive be sent on, if it is arriving, is known to be the right one, and
    /// its message has memory.
    pub(super) fn follow(&mut self, id: ReceiveId) -> Result<(), RelayError> {
        let Some(receive) = self.receives.get(&id) else { return Ok(()) };
        let (Some(came), Some(part)) = (receive.arriving, receive.part) else {
            return Ok(());
        };
        let (source, Part { message: number, transfer }) = (receive.source, part);
        let Some(message) = self.message(number) else { return Ok(()) };
        let immediate = message.immediate(transfer.block);
        if came != immediate {
            let step = transfer.step;
            let what = format!(
                "sends block {came} where step {step} of message {number} has block {immediate}"
            );
            return Err(RelayError::peer(source, what));
        }
        if message.has_memory() {
            self.bringing.insert((number, transfer.block), id);
        }
        Ok(())
    }

    /// Returns whether the block is here, or arriving.
    pub(super) fn can_send(&self, send: &Part) -> bool {
        self.holds(send) || self.bringing.contains_key(&(send.message, send.transfer.block))
    }

    /// Returns the member that a send waits for because its block has not arrived as a whole.
    pub(super) fn awaited_source(&self, send: &Part) -> Option<u32> {
        let id = self.bringing.get(&(send.message, send.transfer.block))?;
        self.receives
            .get(id)
            .filter(|receive| receive.arrived.is_none())
            .map(|receive| receive.source)
    }
}
