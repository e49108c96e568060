//! Applies a switch's tables to frames.

use std::{net::IpAddr, sync::LazyLock};

use roce::{
    Headers, ICRC_BYTES, Malformed, Packet, ShiftTables,
    ethernet::{self, TYPE_IPV4, TYPE_IPV6, TYPE_SERVICE_TAG, TYPE_TAG},
};

use crate::{Counter, Decision, GroupKey, Port, Replication, Tables, resolve::resolve};

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
        let Some((kind, at)) = ethernet::contents(frame) else {
            self.tables.counters.count(Counter::Malformed);
            return Verdict::Pass;
        };
        let decision = match kind {
            TYPE_IPV4 | TYPE_IPV6 => match Packet::parse(&frame[at..]) {
                Ok(packet) => {
                    let headers = packet.headers;
                    let bytes = headers.packet_bytes(packet.payload.len()) as u64;
                    Ok((
                        self.tables.decide(now_ns, port, &frame[..at], &headers, bytes, || {
                            packet.is_intact()
                        }),
                        headers,
                    ))
                }
                Err(Malformed::Foreign(_) | Malformed::Opcode(_)) => return self.resolve(frame),
                Err(Malformed::Fragment) => Err(Counter::Fragment),
                Err(_) => Err(Counter::Malformed),
            },
            TYPE_TAG | TYPE_SERVICE_TAG => Err(Counter::TagUnsupported),
            _ => return self.resolve(frame),
        };
        match decision {
            Ok((decision, headers)) => {
                self.carry_out((now_ns, port), decision, &headers, frame, at, &mut send)
            }
            Err(counter) => {
                self.tables.counters.count(counter);
                Verdict::Pass
            }
        }
    }

    fn carry_out(
        &mut self,
        received: (u64, Port),
        decision: Decision,
        headers: &Headers,
        frame: &mut Vec<u8>,
        at: usize,
        send: &mut impl FnMut(Port, [&[u8]; 3]) -> bool,
    ) -> Verdict {
        match decision {
            Decision::Pass => Verdict::Pass,
            Decision::Drop => Verdict::Drop,
            Decision::Change(patch) => {
                let changed = patch.apply(&mut frame[at..], &SHIFT_TABLES);
                if changed.is_ok() { Verdict::Pass } else { Verdict::Drop }
            }
            Decision::Copy(replication) => {
                let (count, failed) = self.copy(&replication, headers, frame, at, send);
                self.tables.on_copied(received, headers, count, failed);
                Verdict::Drop
            }
            Decision::Refuse(answer) => {
                ethernet::swap_addresses(frame);
                frame.resize(at + answer.packet_bytes(0), 0);
                let written = answer.write(&[], &mut frame[at..]);
                if written.is_ok() { Verdict::Reflect } else { Verdict::Drop }
            }
        }
    }

    /// Returns how many copies were made, and a bit for each branch whose copy was not sent.
    fn copy(
        &mut self,
        replication: &Replication,
        headers: &Headers,
        frame: &[u8],
        at: usize,
        send: &mut impl FnMut(Port, [&[u8]; 3]) -> bool,
    ) -> (u64, u64) {
        let (mut count, mut failed) = (0, 0);
        for (place, branch) in replication.branches.iter().enumerate() {
            let Some(patch) = branch.patch(headers) else { continue };
            let patched = patch.of(&frame[at..], &SHIFT_TABLES);
            let is_sent = patched.is_ok_and(|patched| {
                self.head.clear();
                self.head.extend_from_slice(&frame[..at]);
                ethernet::set_target(&mut self.head, branch.mac);
                self.head.extend_from_slice(patched.headers());
                let (same, end) = frame.split_at(at + patched.icrc_at());
                self.tail.clear();
                self.tail.extend_from_slice(&patched.icrc());
                self.tail.extend_from_slice(&end[ICRC_BYTES..]);
                send(branch.port, [&self.head, &same[self.head.len()..], &self.tail])
            });
            count += 1;
            failed |= u64::from(!is_sent) << place;
        }
        (count, failed)
    }

    /// No longer waits for a member's answers; see [`Tables::remove_member`]. Whether it was a member, and not the last.
    /// If the group advances by that, the frame to be handled next, as if it had been received at that port: a member's
    /// last answer once more, by which the sender learns of it at once.
    pub fn remove_member(
        &mut self,
        key: GroupKey,
        member: IpAddr,
    ) -> (bool, Option<(Port, Vec<u8>)>) {
        let was_member = self.tables.remove_member(key, member);
        (was_member, self.tables.repeat(key).filter(|_| was_member))
    }

    fn resolve(&mut self, frame: &mut Vec<u8>) -> Verdict {
        let is_ours = resolve(frame, |address| self.tables.mac(address));
        let counter = if is_ours { Counter::Resolved } else { Counter::Foreign };
        self.tables.counters.count(counter);
        if is_ours { Verdict::Reflect } else { Verdict::Pass }
    }
}
