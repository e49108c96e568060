//! A trace of one group's packets: what came, and what was decided.

use std::net::IpAddr;

use roce::{Headers, NakCode, Opcode, Serial, Syndrome};

use crate::{Counter, Port};

/// Packets of a group that are kept until they are taken; further ones are lost.
pub const TRACE_KEPT_MAX: usize = 8192;

/// A packet of a group, as it was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedPacket {
    /// Time on the switch's clock.
    pub at_ns: u64,
    /// Where it was received.
    pub port: Port,
    /// Its opcode.
    pub opcode: Opcode,
    /// Its packet number: the sender's, or in an answer the member's.
    pub psn: Serial,
    /// Of an answer: where it came from, with the syndrome of its AETH. CNPs have none.
    pub answer: Option<(IpAddr, Option<Syndrome>)>,
    /// What was decided. Of a packet that was copied [`Counter::Copy`].
    pub decision: Counter,
    /// The copies' egress ports, and whether the port has taken it.
    pub copies: Vec<(Port, bool)>,
}

impl TracedPacket {
    /// A packet of a sender, or an answer to it, that was not copied.
    pub(crate) fn new(at_ns: u64, port: Port, headers: &Headers, decision: Counter) -> Self {
        let Headers { ip, bth, aeth, .. } = headers;
        let is_answer = !bth.opcode.has_payload();
        let answer = is_answer.then(|| (ip.source, aeth.map(|aeth| aeth.syndrome)));
        Self { at_ns, port, opcode: bth.opcode, psn: bth.psn, answer, decision, copies: Vec::new() }
    }

    /// What it is, in words.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self.answer.and_then(|(_, syndrome)| syndrome) {
            None => self.opcode.name(),
            Some(Syndrome::Ack(_)) => "ACK",
            Some(Syndrome::ReceiverNotReady(_)) => "RNR NAK",
            Some(Syndrome::Nak(NakCode::Sequence)) => "NAK (sequence error)",
            Some(Syndrome::Nak(NakCode::InvalidRequest)) => "NAK (invalid request)",
            Some(Syndrome::Nak(NakCode::RemoteAccess)) => "NAK (remote access error)",
            Some(Syndrome::Nak(NakCode::RemoteOperational)) => "NAK (remote operation error)",
            Some(Syndrome::Reserved(_)) => "answer with a reserved syndrome",
        }
    }
}

/// What was traced since the last time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traced {
    /// In the order in which they were decided; on several processors almost.
    pub packets: Vec<TracedPacket>,
    /// Packets that are missing, since the trace was begun: they were not taken in time.
    pub lost: u64,
}

impl Traced {
    /// Adds a packet, or counts it as lost if there are too many.
    pub fn add(&mut self, packet: TracedPacket) {
        if self.packets.len() < TRACE_KEPT_MAX {
            self.packets.push(packet);
        } else {
            self.lost += 1;
        }
    }

    /// Takes the packets.
    pub fn take(&mut self) -> Self {
        Self { packets: std::mem::take(&mut self.packets), lost: self.lost }
    }
}
