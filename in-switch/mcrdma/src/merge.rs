//! Merges the members' answers into those of one peer (the paper's section IV-C and IV-D).
//!
//! The group's expected PSN is the earliest that any member expects. No answer to the sender
//! acknowledges more than that, so a packet is acknowledged only when every member has it.

use std::{net::IpAddr, ops::RangeInclusive};

use roce::{Aeth, NakCode, Serial, Syndrome};

use crate::{Merging, Source};

/// A NAK of the same PSN is forwarded once in this time: members that miss the same packet send theirs
/// almost at once, and each NAK makes the sender go back.
pub const HOLD_NS: u64 = 200_000;
/// The most CNPs by which a member's count may trail the count of forwarded CNPs. A member that becomes the most congested has at
/// most this many CNPs absorbed before its own are forwarded. Smaller: a faster reaction, but more CNPs in all when several
/// members are equally congested, since by chance each sends a few more than the others for a while.
pub const LAG_MAX: u32 = 32;
/// After this long without a CNP of its own, or without any forwarded, a member's count is no longer held back. Longer than the
/// silence of a congested member by chance; a sender's own memory, DCQCN's alpha, fades in 14 ms.
pub const SILENCE_NS: u64 = 20_000_000;

/// Between CNPs of a member whose packets are all marked: receivers send one in 50 us (DCQCN's paper, section 3.2), give or take
/// what queues delay them.
pub const PACE_NS: RangeInclusive<u64> = 40_000..=60_000;
/// After this many such intervals in a row a member's count catches up, once: its link has just become the tightest. Members
/// whose links have been congested for long send only one or two CNPs per millisecond. Where receivers send CNPs faster, counts
/// catch up soon without this.
pub const PACED: u32 = 2;

/// How far a member's expected PSN may be ahead of what was forwarded. A sender never has half of the numbers outstanding (IBA 9.7.2), so
/// what is beyond was not sent; and comparing serial numbers is transitive only within half of the number space.
pub const AHEAD_MAX: i32 = (1 << 23) - 2;

/// Credit code without a limit (IBA table 45).
const CREDITS_UNLIMITED: u8 = 31;

/// State of one member.
#[derive(Clone, Copy, Debug)]
struct Record {
    address: IpAddr,
    psn_offset: u32,
    /// The next PSN that it expects, in the sender's numbering.
    expected: Serial,
    /// Its message sequence number: messages completed.
    msn: Serial,
    credits: u8,
    /// It has sent a NAK at `expected`, and none at that or an earlier number has been forwarded since.
    is_nak_pending: bool,
    notifications: Notified,
    /// Intervals of [`PACE_NS`] in a row between its CNPs until the last; at most one more than [`PACED`].
    paced: u32,
}

/// What becomes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {
    /// Forwarded to the sender, rewritten to this.
    Forward {
        /// In the sender's numbering.
        psn: Serial,
        /// ACK, NAK or RNR NAK, with the slowest member's message number.
        aeth: Aeth,
    },
    /// Recorded, and dropped: the group's state has not changed.
    Suppress,
    /// Not from a current member, or with a reserved syndrome.
    Unknown,
}

/// One group's answers, at the sender's first switch.
#[derive(Clone, Debug)]
pub struct Merger {
    records: Vec<Record>,
    /// The highest expected PSN that has been forwarded.
    forwarded: Serial,
    /// PSN of the last NAK that was forwarded, and until when it is not repeated.
    nak_forwarded: (Serial, u64),
    /// PSN of the last RNR NAK that was forwarded, and until when the sender waits.
    not_ready: (Serial, u64),
    notifications: Notifications,
}

impl Merger {
    /// At the start: every member expects the first PSN.
    #[must_use]
    pub fn new(merging: &Merging) -> Self {
        let first = merging.psn_first;
        let record = |source: &Source| Record {
            address: source.address,
            psn_offset: source.psn_offset,
            expected: first,
            msn: Serial::new(0),
            credits: CREDITS_UNLIMITED,
            is_nak_pending: false,
            notifications: Notified::default(),
            paced: 0,
        };
        Self {
            records: merging.members.iter().map(record).collect(),
            forwarded: first,
            nak_forwarded: (first, 0),
            not_ready: (first, 0),
            notifications: Notifications::new(merging.all_notifications),
        }
    }

    /// Takes an ACK, NAK or RNR NAK, numbered as the member does.
    pub fn answer(&mut self, now_ns: u64, from: IpAddr, psn: Serial, aeth: Aeth) -> Merged {
        let Some(record) = self.records.iter_mut().find(|record| record.address == from) else {
            return Merged::Unknown;
        };
        let psn = psn.minus(record.psn_offset);
        let expected = match aeth.syndrome {
            Syndrome::Ack(credits) => {
                record.credits = credits;
                psn.plus(1)
            }
            Syndrome::Nak(NakCode::Sequence) | Syndrome::ReceiverNotReady(_) => psn,
            // The connection ends; nothing more is acknowledged.
            Syndrome::Nak(_) => return self.forward(self.expected(), aeth.syndrome),
            Syndrome::Reserved(_) => return Merged::Unknown,
        };
        let is_repeated = expected == record.expected;
        let is_possible = (1..=AHEAD_MAX).contains(&expected.ahead_of(self.forwarded));
        if expected.is_after(record.expected) && is_possible {
            (record.expected, record.msn) = (expected, record.msn.max(aeth.msn));
            record.is_nak_pending = false;
        }
        // A NAK that was reordered behind a later answer is stale.
        let is_nak =
            aeth.syndrome == Syndrome::Nak(NakCode::Sequence) && expected == record.expected;
        record.is_nak_pending |= is_nak;
        let group = self.expected();
        match aeth.syndrome {
            Syndrome::ReceiverNotReady(timer) => self.not_ready(now_ns, group, timer),
            _ if is_nak && self.may_nak(now_ns, group) => self.nak(now_ns, group),
            _ => self.acknowledge(now_ns, group, is_repeated && expected == group && !is_nak),
        }
    }

    /// The earliest PSN that a member expects.
    fn expected(&self) -> Serial {
        let all = self.records.iter().map(|record| record.expected);
        all.reduce(Serial::min).unwrap_or(self.forwarded)
    }

    fn may_nak(&self, now_ns: u64, group: Serial) -> bool {
        let (number, until_ns) = self.nak_forwarded;
        group.is_after(self.forwarded) || number != group || now_ns >= until_ns
    }

    fn nak(&mut self, now_ns: u64, group: Serial) -> Merged {
        self.nak_forwarded = (group, now_ns + HOLD_NS);
        // The sender sends everything from the group's number on again: what each of them lacks.
        for record in &mut self.records {
            record.is_nak_pending = false;
        }
        self.forward(group, Syndrome::Nak(NakCode::Sequence))
    }

    fn not_ready(&mut self, now_ns: u64, group: Serial, timer: u8) -> Merged {
        let until_ns = now_ns + Syndrome::not_ready_ns(timer);
        let (number, forwarded_until_ns) = self.not_ready;
        let is_forwarded = number == group && now_ns < forwarded_until_ns;
        if is_forwarded && until_ns <= forwarded_until_ns + HOLD_NS {
            return Merged::Suppress;
        }
        self.not_ready = (group, until_ns);
        self.forward(group, Syndrome::ReceiverNotReady(timer))
    }

    fn acknowledge(&mut self, now_ns: u64, group: Serial, is_repeated: bool) -> Merged {
        if !group.is_after(self.forwarded) && !is_repeated {
            return Merged::Suppress;
        }
        // A member sent a NAK at this PSN before the group had advanced to it, and will not repeat it.
        if self.records.iter().any(|record| record.is_nak_pending && record.expected == group) {
            return self.nak(now_ns, group);
        }
        let credits = self.records.iter().map(|record| record.credits).min();
        self.forward(group, Syndrome::Ack(credits.unwrap_or(CREDITS_UNLIMITED)))
    }

    /// `group` is the group's expected PSN; an ACK carries the one before it.
    fn forward(&mut self, group: Serial, syndrome: Syndrome) -> Merged {
        self.forwarded = self.forwarded.max(group);
        let slowest = self.records.iter().find(|record| record.expected == group);
        let msn = slowest.map_or(Serial::new(0), |record| record.msn);
        let is_ack = matches!(syndrome, Syndrome::Ack(_));
        let psn = if is_ack { group.minus(1) } else { group };
        Merged::Forward { psn, aeth: Aeth { syndrome, msn } }
    }

    /// Takes a member's CNP: whether to forward it. `None`: not from a current member.
    pub fn notify(&mut self, now_ns: u64, from: IpAddr) -> Option<bool> {
        let record = self.records.iter_mut().find(|record| record.address == from)?;
        Some(self.notifications.notify(now_ns, record))
    }

    /// Removes a member. Whether it was one, and not the last.
    ///
    /// If the group advances by that, the sender gets the ACK with the next answer: [`Merger::repeat`].
    pub fn remove(&mut self, member: IpAddr) -> bool {
        let count = self.records.len();
        if count > 1 {
            self.records.retain(|record| record.address != member);
        }
        self.records.len() < count
    }

    /// If the group has advanced without an answer: the last ACK of its slowest member, numbered as it does. Taken as an
    /// answer, it is forwarded as the group's.
    #[must_use]
    pub fn repeat(&self) -> Option<(IpAddr, Serial, Aeth)> {
        let group = self.expected();
        let slowest = self.records.iter().find(|record| record.expected == group)?;
        let aeth = Aeth { syndrome: Syndrome::Ack(slowest.credits), msn: slowest.msn };
        let psn = group.minus(1).plus(slowest.psn_offset);
        group.is_after(self.forwarded).then_some((slowest.address, psn, aeth))
    }

    /// Members, with the PSN that each expects next and its MSN.
    pub fn members(&self) -> impl Iterator<Item = (IpAddr, Serial, Serial)> {
        self.records.iter().map(|record| (record.address, record.expected, record.msn))
    }
}

/// A member's CNPs, or those that were forwarded.
#[derive(Clone, Copy, Debug, Default)]
struct Notified {
    /// Modulo 2^32.
    count: u32,
    /// Time of the last.
    at_ns: u64,
}

/// Which CNPs are forwarded: as many as the most congested member sends. Were all forwarded, ten
/// slightly congested members would slow the sender down tenfold (the paper calls its own rule an
/// over-reaction, section IV-D).
#[derive(Clone, Copy, Debug)]
struct Notifications {
    forward_all: bool,
    forwarded: Notified,
}

impl Notifications {
    const fn new(forward_all: bool) -> Self {
        Self { forward_all, forwarded: Notified { count: 0, at_ns: 0 } }
    }

    /// A CNP is forwarded if its member has now sent more than were forwarded.
    fn notify(&mut self, now_ns: u64, record: &mut Record) -> bool {
        let (forwarded, member) = (&mut self.forwarded, &mut record.notifications);
        let since = |notified: &Notified| now_ns.saturating_sub(notified.at_ns);
        let is_in_pace = PACE_NS.contains(&since(member));
        record.paced = if is_in_pace { PACED.min(record.paced) + 1 } else { 0 };
        let is_silent = since(member).max(since(forwarded)) >= SILENCE_NS;
        let lag_max = if is_silent || record.paced == PACED { 0 } else { LAG_MAX };
        let lag = forwarded.count.wrapping_sub(member.count).min(lag_max);
        member.count = forwarded.count.wrapping_sub(lag).wrapping_add(1);
        member.at_ns = now_ns;
        let is_most = lag == 0;
        if is_most {
            *forwarded = *member;
        }
        is_most || self.forward_all
    }
}
