//! The sending end: segments messages into packets, retransmits, and completes them.

use alloc::collections::VecDeque;

use crate::{Aeth, NakCode, Opcode, Reth, Serial, Syndrome};

use super::{Rate, RateConfig};

/// Parameters of a requester.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequesterConfig {
    /// Payload of a packet, in bytes; a multiple of 4.
    pub mtu_bytes: u32,
    /// Packets in flight.
    pub window_packets: u32,
    /// AckReq is set at least once in this many packets, and at each message's end.
    pub ack_packets: u32,
    /// Retransmission timeout after the last packet: the first unacknowledged packet is sent again as a probe,
    /// the rest once that is answered.
    pub timeout_ns: u64,
    /// Timeouts in a row before the connection fails.
    pub retries: u32,
    /// RNR NAKs in a row before the connection fails.
    pub not_ready_retries: u32,
    /// DCQCN; `None`: no rate limit.
    pub rate: Option<RateConfig>,
}

impl Default for RequesterConfig {
    /// 1024 bytes, 256 packets, 67 ms as network cards have it (timeout code 14), 7 times.
    fn default() -> Self {
        Self {
            mtu_bytes: 1024,
            window_packets: 256,
            ack_packets: 32,
            timeout_ns: 67_108_864,
            retries: 7,
            not_ready_retries: 7,
            rate: None,
        }
    }
}

/// The operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// SEND, to a posted receive.
    Send,
    /// WRITE, to the receiver's memory.
    Write {
        /// The virtual address.
        address: u64,
        /// The key of the memory.
        key: u32,
    },
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// The caller's name for it.
    pub id: u64,
    /// Its operation.
    pub kind: Kind,
    /// Its length; at most 2^31.
    pub bytes: u32,
    /// Delivered to the receiver's program with the message.
    pub immediate: Option<u32>,
}

/// A packet to send now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// `id` of its message.
    pub id: u64,
    /// Offset of its payload in the message, in bytes.
    pub offset: u32,
    /// Length of its payload in bytes.
    pub bytes: u32,
    /// What it is.
    pub opcode: Opcode,
    /// Its number.
    pub psn: Serial,
    /// AckReq.
    pub ack_requested: bool,
    /// Of a WRITE's first packet.
    pub reth: Option<Reth>,
    /// Of the last packet of a message that has one.
    pub immediate: Option<u32>,
    /// It is a retransmission.
    pub is_repeated: bool,
}

/// How a message ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// All of it was acknowledged.
    Done,
    /// The receiver refused it.
    Refused(NakCode),
    /// No answer, after all retries.
    NoAnswer,
    /// No receive was posted, after all retries.
    NeverReady,
    /// The connection had failed before.
    Flushed,
}

/// A message that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The caller's name for it.
    pub id: u64,
    /// Whether it has arrived, or why not.
    pub status: Status,
}

/// Why a message was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkRefused {
    /// It is too long.
    #[error("a message of {bytes} bytes; at most 2^31 (2147483648)")]
    TooLong {
        /// Its length.
        bytes: u32,
    },
    /// The connection has ended.
    #[error("the connection has ended; make a new one")]
    Ended,
}

/// A message with its packets' places in the sequence of all.
#[derive(Clone, Copy, Debug)]
struct Open {
    work: Work,
    begin: u64,
    end: u64,
}

/// The sending end of a connection. Packets are counted from 0 on; numbers on the wire wrap.
#[derive(Clone, Debug)]
pub struct Requester {
    config: RequesterConfig,
    psn_first: Serial,
    open: VecDeque<Open>,
    /// All before it was acknowledged.
    acked: u64,
    /// The next to be sent.
    next: u64,
    /// All before it was sent at least once.
    sent: u64,
    /// One behind the last message's last packet.
    end: u64,
    retries_left: u32,
    not_ready_left: u32,
    /// Answers have to come until then; `None` while nothing is open.
    deadline_ns: Option<u64>,
    /// After a timeout: one packet probes whether the others were lost or the receiver is only late, so that an
    /// overloaded receiver does not get the whole window again.
    is_probing: bool,
    /// Until then after an RNR NAK.
    waits_until_ns: u64,
    rate: Option<Rate>,
    has_ended: bool,
    completions: VecDeque<Completion>,
}

/// Longest message (IBA 9.7.4).
const WORK_BYTES_MAX: u32 = 1 << 31;

impl Requester {
    /// `psn_first`: number of the first packet.
    #[must_use]
    pub fn new(config: RequesterConfig, psn_first: Serial) -> Self {
        Self {
            config,
            psn_first,
            open: VecDeque::new(),
            acked: 0,
            next: 0,
            sent: 0,
            end: 0,
            retries_left: config.retries,
            not_ready_left: config.not_ready_retries,
            deadline_ns: None,
            is_probing: false,
            waits_until_ns: 0,
            rate: config.rate.map(Rate::new),
            has_ended: false,
            completions: VecDeque::new(),
        }
    }

    /// Posts a message, behind those that were posted before.
    pub fn post(&mut self, work: Work) -> Result<(), WorkRefused> {
        if self.has_ended {
            return Err(WorkRefused::Ended);
        }
        if work.bytes > WORK_BYTES_MAX {
            return Err(WorkRefused::TooLong { bytes: work.bytes });
        }
        let packets = work.bytes.div_ceil(self.config.mtu_bytes).max(1);
        let begin = self.end;
        self.end += u64::from(packets);
        self.open.push_back(Open { work, begin, end: self.end });
        Ok(())
    }

    /// The next packet to send, if there is one that may go now.
    pub fn send(&mut self, now_ns: u64) -> Option<Request> {
        self.check_deadline(now_ns);
        if !self.may_send() || now_ns < self.ready_ns() {
            return None;
        }
        let at = self.open.partition_point(|open| open.end <= self.next);
        let open = *self.open.get(at)?;
        let request = self.request(&open);
        if let Some(rate) = &mut self.rate {
            // Ethernet, IP, UDP, BTH and both CRCs; preamble and gap.
            rate.sent(now_ns, u64::from(request.bytes) + 14 + 20 + 8 + 12 + 4 + 4 + 20);
        }
        // Restarted with each packet: at a low rate it may take longer until a packet with AckReq is sent.
        self.deadline_ns = Some(now_ns + self.config.timeout_ns);
        self.next += 1;
        self.sent = self.sent.max(self.next);
        Some(request)
    }

    /// A packet could not be sent, and is the next again: the last that [`Requester::send`] returned and that was not
    /// taken back. No answer may have come in between.
    pub fn take_back(&mut self, request: &Request) {
        self.next = self.next.saturating_sub(1).max(self.acked);
        if !request.is_repeated {
            self.sent = self.sent.min(self.next);
        }
    }

    fn may_send(&self) -> bool {
        let is_open = self.next - self.acked < self.window_packets();
        !self.has_ended && self.next < self.end && is_open
    }

    fn window_packets(&self) -> u64 {
        if self.is_probing { 1 } else { self.config.window_packets.into() }
    }

    fn ready_ns(&self) -> u64 {
        self.waits_until_ns.max(self.rate.as_ref().map_or(0, Rate::ready_ns))
    }

    /// When [`Requester::send`] should be called next; `None`: after the next answer or message.
    #[must_use]
    pub fn wakes_ns(&self) -> Option<u64> {
        if self.has_ended {
            return None;
        }
        let send = self.may_send().then(|| self.ready_ns());
        [send, self.deadline_ns].into_iter().flatten().min()
    }

    fn request(&self, open: &Open) -> Request {
        let mtu = self.config.mtu_bytes;
        let Open { work, begin, end } = *open;
        let index = (self.next - begin) as u32;
        let (is_first, is_last) = (index == 0, self.next + 1 == end);
        let offset = index * mtu;
        let opcode = opcode(work, is_first, is_last);
        let reth = match work.kind {
            Kind::Write { address, key } if is_first => {
                Some(Reth { address, key, bytes: work.bytes })
            }
            _ => None,
        };
        let is_window_full = self.next + 1 - self.acked == self.window_packets();
        let is_time = (self.next + 1).is_multiple_of(u64::from(self.config.ack_packets));
        Request {
            id: work.id,
            offset,
            bytes: (work.bytes - offset).min(mtu),
            opcode,
            psn: self.psn_first.plus(self.next as u32),
            ack_requested: is_last || is_window_full || is_time,
            reth,
            immediate: work.immediate.filter(|_| is_last),
            is_repeated: self.next < self.sent,
        }
    }

    /// An answer has come.
    pub fn answered(&mut self, now_ns: u64, psn: Serial, aeth: Aeth) {
        let is_ack = matches!(aeth.syndrome, Syndrome::Ack(_));
        let expected = if is_ack { psn.plus(1) } else { psn };
        let ahead = expected.ahead_of(self.psn_first.plus(self.acked as u32));
        let Some(place) = self.acked.checked_add_signed(ahead.into()) else { return };
        // Old, or beyond what was sent.
        if self.has_ended || ahead < 0 || place > self.sent {
            return;
        }
        if place > self.acked {
            self.advance(now_ns, place);
        }
        match aeth.syndrome {
            Syndrome::Ack(_) | Syndrome::Reserved(_) => {}
            Syndrome::Nak(NakCode::Sequence) => self.repeat(now_ns),
            Syndrome::ReceiverNotReady(timer) => {
                if self.not_ready_left == 0 {
                    return self.fail(Status::NeverReady);
                }
                self.not_ready_left -= 1;
                self.waits_until_ns = now_ns + Syndrome::not_ready_ns(timer);
                self.repeat(self.waits_until_ns);
            }
            Syndrome::Nak(code) => self.fail(Status::Refused(code)),
        }
    }

    /// A congestion notification has come.
    pub fn notified(&mut self, now_ns: u64) {
        if let Some(rate) = &mut self.rate {
            rate.notified(now_ns);
        }
    }

    /// How fast it may send, in bits per second, if that is limited.
    #[must_use]
    pub fn bits_per_s(&self) -> Option<f64> {
        self.rate.as_ref().map(Rate::bits_per_s)
    }

    /// A message that has ended, in the order in which they were posted.
    pub fn completed(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Whether all messages have ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    fn advance(&mut self, now_ns: u64, acked: u64) {
        // More than the probe was acknowledged: answers were late, and nothing was lost.
        let was_late = core::mem::take(&mut self.is_probing) && acked > self.next;
        self.acked = acked;
        self.next = if was_late { self.sent } else { self.next.max(acked) };
        self.retries_left = self.config.retries;
        self.not_ready_left = self.config.not_ready_retries;
        self.deadline_ns = (acked < self.sent).then_some(now_ns + self.config.timeout_ns);
        while let Some(open) = self.open.front().filter(|open| open.end <= acked) {
            let completion = Completion { id: open.work.id, status: Status::Done };
            self.completions.push_back(completion);
            self.open.pop_front();
        }
    }

    /// Goes back to the first packet that was not acknowledged.
    fn repeat(&mut self, from_ns: u64) {
        self.next = self.acked;
        self.deadline_ns = (self.acked < self.sent).then_some(from_ns + self.config.timeout_ns);
    }

    fn check_deadline(&mut self, now_ns: u64) {
        if self.has_ended || self.deadline_ns.is_none_or(|deadline_ns| now_ns < deadline_ns) {
            return;
        }
        if self.retries_left == 0 {
            return self.fail(Status::NoAnswer);
        }
        self.retries_left -= 1;
        self.is_probing = true;
        self.repeat(now_ns);
    }

    fn fail(&mut self, status: Status) {
        self.has_ended = true;
        self.deadline_ns = None;
        for (open, status) in
            self.open.drain(..).zip([status].into_iter().chain(core::iter::repeat(Status::Flushed)))
        {
            self.completions.push_back(Completion { id: open.work.id, status });
        }
    }
}

fn opcode(work: Work, is_first: bool, is_last: bool) -> Opcode {
    let with_immediate = work.immediate.is_some();
    match (work.kind, is_first, is_last, with_immediate) {
        (Kind::Send, true, true, false) => Opcode::SendOnly,
        (Kind::Send, true, true, true) => Opcode::SendOnlyImmediate,
        (Kind::Send, true, false, _) => Opcode::SendFirst,
        (Kind::Send, false, false, _) => Opcode::SendMiddle,
        (Kind::Send, false, true, false) => Opcode::SendLast,
        (Kind::Send, false, true, true) => Opcode::SendLastImmediate,
        (Kind::Write { .. }, true, true, false) => Opcode::WriteOnly,
        (Kind::Write { .. }, true, true, true) => Opcode::WriteOnlyImmediate,
        (Kind::Write { .. }, true, false, _) => Opcode::WriteFirst,
        (Kind::Write { .. }, false, false, _) => Opcode::WriteMiddle,
        (Kind::Write { .. }, false, true, false) => Opcode::WriteLast,
        (Kind::Write { .. }, false, true, true) => Opcode::WriteLastImmediate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT_NS: u64 = 1_000;

    /// With one message of ten packets on its way.
    fn under_way() -> Requester {
        let config = RequesterConfig { timeout_ns: TIMEOUT_NS, ..RequesterConfig::default() };
        let mut requester = Requester::new(config, Serial::new(0));
        let work = Work { id: 1, kind: Kind::Send, bytes: 10 * 1024, immediate: None };
        requester.post(work).unwrap();
        assert_eq!(sent(&mut requester, 0), (0..10).collect::<Vec<_>>());
        requester
    }

    /// The packets that may go now.
    fn sent(requester: &mut Requester, now_ns: u64) -> Vec<u32> {
        let next = || requester.send(now_ns).map(|request| request.offset / 1024);
        core::iter::from_fn(next).collect()
    }

    fn acknowledge(requester: &mut Requester, now_ns: u64, psn: u32) {
        let aeth = Aeth { syndrome: Syndrome::Ack(0), msn: Serial::new(0) };
        requester.answered(now_ns, Serial::new(psn), aeth);
    }

    #[test]
    fn packets_that_were_taken_back_are_sent_for_the_first_time() {
        let mut requester = under_way();
        let nak = Aeth { syndrome: Syndrome::Nak(NakCode::Sequence), msn: Serial::new(0) };
        requester.answered(0, Serial::new(8), nak);
        requester.post(Work { id: 2, kind: Kind::Send, bytes: 4 * 1024, immediate: None }).unwrap();
        let send_all = |requester: &mut Requester| {
            core::iter::from_fn(|| requester.send(0)).collect::<Vec<Request>>()
        };
        let first = send_all(&mut requester);
        // Packets 8 and 9 again, and 10 to 13: all but the first two are taken back, the last one first.
        first[2..].iter().rev().for_each(|request| requester.take_back(request));
        let again = send_all(&mut requester);
        assert_eq!(again, first[2..]);
        assert!(again.iter().all(|request| !request.is_repeated), "{again:?}");
        first.iter().rev().for_each(|request| requester.take_back(request));
        assert_eq!(send_all(&mut requester), first);
        assert!(first[..2].iter().all(|request| request.is_repeated), "{first:?}");
    }

    #[test]
    fn a_late_receiver_gets_one_probe_per_timeout() {
        let mut requester = under_way();
        for timeout in 1..4 {
            assert_eq!(sent(&mut requester, timeout * TIMEOUT_NS), [0], "timeout {timeout}");
        }
        acknowledge(&mut requester, 4 * TIMEOUT_NS, 6);
        assert_eq!(sent(&mut requester, 4 * TIMEOUT_NS), [], "those were sent, and are not late");
        acknowledge(&mut requester, 4 * TIMEOUT_NS, 9);
        assert_eq!(requester.completed(), Some(Completion { id: 1, status: Status::Done }));
    }

    #[test]
    fn lost_packets_follow_the_probe() {
        let mut requester = under_way();
        acknowledge(&mut requester, 0, 3);
        assert_eq!(sent(&mut requester, TIMEOUT_NS), [4]);
        acknowledge(&mut requester, TIMEOUT_NS, 4);
        assert_eq!(sent(&mut requester, TIMEOUT_NS), [5, 6, 7, 8, 9]);
    }
}
