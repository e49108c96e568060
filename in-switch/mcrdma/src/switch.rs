//! Applies a switch's tables to frames.

use std::sync::LazyLock;

use roce::{
    Headers, ICRC_BYTES, Malformed, Packet, ShiftTables,
    ethernet::{self, ETHERNET_BYTES, TYPE_IPV4, TYPE_IPV6},
};

use crate::{Counter, Decision, Port, Replication, Tables, resolve::resolve};

static SHIFT_TABLES: LazyLock<ShiftTables> = LazyLock::new(ShiftTables::new);

/// What becomes of the original frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Forwarded as usual; it may have been rewritten.
    Pass,
    /// Dropped.
    Drop,
    /// Sent back out of its ingress port.
    Reflect,
}

/// A switch that copies: its tables, applied to frames.
#[derive(Default)]
pub struct Switch {
    /// Tables and counters.
    pub tables: Tables,
    /// Headers and end of the copy that is made.
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Switch {
    /// Without groups.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles a frame, from its Ethernet header on, that was received at `port`. `send` transmits a copy
    /// out of a port and returns whether that succeeded. It gets the copy in three parts: new headers, what is the same in
    /// `frame` at that place, and the new CRC with what followed the old one.
    pub fn handle(
        &mut self,
        now_ns: u64,
        port: Port,
        frame: &mut Vec<u8>,
        mut send: impl FnMut(Port, [&[u8]; 3]) -> bool,
    ) -> Verdict {
        let decision = match ethernet::frame_type(frame) {
            Some(TYPE_IPV4 | TYPE_IPV6) => match Packet::parse(&frame[ETHERNET_BYTES..]) {
                Ok(packet) => {
                    let headers = packet.headers;
                    Ok((self.tables.decide(now_ns, port, &headers, || packet.is_intact()), headers))
                }
                Err(Malformed::Foreign(_)) => return self.resolve(frame),
                Err(Malformed::Fragment) => Err(Counter::Fragment),
                Err(_) => Err(Counter::Malformed),
            },
            Some(_) => return self.resolve(frame),
            None => Err(Counter::Malformed),
        };
        match decision {
            Ok((decision, headers)) => self.carry_out(decision, &headers, frame, &mut send),
            Err(counter) => {
                self.tables.counters.count(counter);
                Verdict::Pass
            }
        }
    }

    fn carry_out(
        &mut self,
        decision: Decision,
        headers: &Headers,
        frame: &mut Vec<u8>,
        send: &mut impl FnMut(Port, [&[u8]; 3]) -> bool,
    ) -> Verdict {
        match decision {
            Decision::Pass => Verdict::Pass,
            Decision::Drop => Verdict::Drop,
            Decision::Change(patch) => {
                let changed = patch.apply(&mut frame[ETHERNET_BYTES..], &SHIFT_TABLES);
                if changed.is_ok() { Verdict::Pass } else { Verdict::Drop }
            }
            Decision::Copy(replication) => {
                self.copy(&replication, headers, frame, send);
                Verdict::Drop
            }
            Decision::Refuse(answer) => {
                ethernet::swap_addresses(frame);
                frame.resize(ETHERNET_BYTES + answer.packet_bytes(0), 0);
                let written = answer.write(&[], &mut frame[ETHERNET_BYTES..]);
                if written.is_ok() { Verdict::Reflect } else { Verdict::Drop }
            }
        }
    }

    fn copy(
        &mut self,
        replication: &Replication,
        headers: &Headers,
        frame: &[u8],
        send: &mut impl FnMut(Port, [&[u8]; 3]) -> bool,
    ) {
        for branch in &replication.branches {
            let Some(patch) = branch.patch(headers) else { continue };
            let patched = patch.of(&frame[ETHERNET_BYTES..], &SHIFT_TABLES);
            let is_sent = patched.is_ok_and(|patched| {
                self.head.clear();
                self.head.extend_from_slice(&frame[..ETHERNET_BYTES]);
                ethernet::set_target(&mut self.head, branch.mac);
                self.head.extend_from_slice(patched.headers());
                let (same, end) = frame.split_at(ETHERNET_BYTES + patched.icrc_at());
                self.tail.clear();
                self.tail.extend_from_slice(&patched.icrc());
                self.tail.extend_from_slice(&end[ICRC_BYTES..]);
                send(branch.port, [&self.head, &same[self.head.len()..], &self.tail])
            });
            let counter = if is_sent { Counter::Copy } else { Counter::CopyFailed };
            self.tables.counters.count(counter);
        }
    }

    fn resolve(&mut self, frame: &mut Vec<u8>) -> Verdict {
        let is_ours = resolve(frame, |address| self.tables.mac(address));
        let counter = if is_ours { Counter::Resolved } else { Counter::Foreign };
        self.tables.counters.count(counter);
        if is_ours { Verdict::Reflect } else { Verdict::Pass }
    }
}
