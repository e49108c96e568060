//! Many members' answers as those of one peer (the paper's section IV-C and IV-D).
//!
//! The group expects the earliest packet that any of its members expects. Everything that is told to
//! the sender says no more than that, so it never takes for received what some member lacks.

use std::net::IpAddr;

use roce::{Aeth, NakCode, Serial, Syndrome};

use crate::{Merging, Source};

/// For so long a NAK of the same number is not told again: members that miss the same packet say so
/// at almost the same time, and each NAK makes the sender begin again.
pub const HOLD_NS: u64 = 200_000;
/// Congestion notifications are compared within windows of this length. Receivers send one in 50 µs
/// at most (DCQCN), so that there are up to 20 of each.
pub const WINDOW_NS: u64 = 1_000_000;

/// All messages that there may be (IBA table 45).
const CREDITS_UNLIMITED: u8 = 31;

/// What one member has said.
#[derive(Clone, Copy, Debug)]
struct Record {
    address: IpAddr,
    psn_offset: u32,
    /// The next packet that it expects, by the sender's numbers.
    expected: Serial,
    /// Messages that it has completed.
    msn: Serial,
    credits: u8,
    /// It has said that `expected` is missing, and the sender has not heard of it.
    is_nak_held: bool,
    notifications: Notified,
}

/// What becomes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {
    /// The sender is told this.
    Tell {
        /// By the sender's numbers.
        psn: Serial,
        /// ACK, NAK or RNR NAK, with the slowest member's message number.
        aeth: Aeth,
    },
    /// It changes nothing that the sender would have to know.
    Hold,
    /// It is of nobody in the group any more, or says nothing that is known.
    Foreign,
}

/// One group's answers, at the sender's first switch.
#[derive(Clone, Debug)]
pub struct Merger {
    records: Vec<Record>,
    /// The sender has been told of all before it.
    told: Serial,
    /// A NAK of this number was told; not again until then.
    nak_told: (Serial, u64),
    /// The sender was told to wait at this number until then.
    waits: (Serial, u64),
    notifications: Notifications,
}

impl Merger {
    /// Nobody has received anything.
    #[must_use]
    pub fn new(merging: &Merging) -> Self {
        let first = merging.psn_first;
        let record = |source: &Source| Record {
            address: source.address,
            psn_offset: source.psn_offset,
            expected: first,
            msn: Serial::new(0),
            credits: CREDITS_UNLIMITED,
            is_nak_held: false,
            notifications: Notified::default(),
        };
        Self {
            records: merging.members.iter().map(record).collect(),
            told: first,
            nak_told: (first, 0),
            waits: (first, 0),
            notifications: Notifications::new(merging.all_notifications),
        }
    }

    /// An ACK, NAK or RNR NAK with a number of the member's.
    pub fn answer(&mut self, now_ns: u64, from: IpAddr, psn: Serial, aeth: Aeth) -> Merged {
        let Some(record) = self.records.iter_mut().find(|record| record.address == from) else {
            return Merged::Foreign;
        };
        let psn = psn.minus(record.psn_offset);
        let expected = match aeth.syndrome {
            Syndrome::Ack(credits) => {
                record.credits = credits;
                psn.plus(1)
            }
            Syndrome::Nak(NakCode::Sequence) | Syndrome::ReceiverNotReady(_) => psn,
            // The connection ends. What was not acknowledged stays so.
            Syndrome::Nak(_) => return self.tell(self.expected(), aeth.syndrome),
            Syndrome::Reserved(_) => return Merged::Foreign,
        };
        let is_repeated = expected == record.expected;
        if expected.is_after(record.expected) {
            (record.expected, record.msn) = (expected, record.msn.max(aeth.msn));
            record.is_nak_held = false;
        }
        // An old answer that others have overtaken says nothing.
        let is_nak =
            aeth.syndrome == Syndrome::Nak(NakCode::Sequence) && expected == record.expected;
        record.is_nak_held |= is_nak;
        let group = self.expected();
        match aeth.syndrome {
            Syndrome::ReceiverNotReady(timer) => self.not_ready(now_ns, group, timer),
            _ if is_nak && self.may_nak(now_ns, group) => self.nak(now_ns, group),
            _ => self.acknowledge(now_ns, group, is_repeated && expected == group && !is_nak),
        }
    }

    /// The first packet that some member lacks.
    fn expected(&self) -> Serial {
        let all = self.records.iter().map(|record| record.expected);
        all.reduce(Serial::min).unwrap_or(self.told)
    }

    fn may_nak(&self, now_ns: u64, group: Serial) -> bool {
        let (number, until_ns) = self.nak_told;
        group.is_after(self.told) || number != group || now_ns >= until_ns
    }

    fn nak(&mut self, now_ns: u64, group: Serial) -> Merged {
        self.nak_told = (group, now_ns + HOLD_NS);
        for record in self.records.iter_mut().filter(|record| record.expected == group) {
            record.is_nak_held = false;
        }
        self.tell(group, Syndrome::Nak(NakCode::Sequence))
    }

    fn not_ready(&mut self, now_ns: u64, group: Serial, timer: u8) -> Merged {
        let until_ns = now_ns + Syndrome::not_ready_ns(timer);
        let (number, told_until_ns) = self.waits;
        let is_told = number == group && now_ns < told_until_ns;
        if is_told && until_ns <= told_until_ns + HOLD_NS {
            return Merged::Hold;
        }
        self.waits = (group, until_ns);
        self.tell(group, Syndrome::ReceiverNotReady(timer))
    }

    fn acknowledge(&mut self, now_ns: u64, group: Serial, is_repeated: bool) -> Merged {
        if !group.is_after(self.told) && !is_repeated {
            return Merged::Hold;
        }
        // Somebody misses the packet that the group has come to, and said so while the group was
        // further behind; nobody says so twice.
        if self.records.iter().any(|record| record.is_nak_held && record.expected == group) {
            return self.nak(now_ns, group);
        }
        let credits = self.records.iter().map(|record| record.credits).min();
        self.tell(group, Syndrome::Ack(credits.unwrap_or(CREDITS_UNLIMITED)))
    }

    /// `group` is what the group expects: an ACK is of the packet before.
    fn tell(&mut self, group: Serial, syndrome: Syndrome) -> Merged {
        self.told = self.told.max(group);
        let slowest = self.records.iter().find(|record| record.expected == group);
        let msn = slowest.map_or(Serial::new(0), |record| record.msn);
        let is_ack = matches!(syndrome, Syndrome::Ack(_));
        let psn = if is_ack { group.minus(1) } else { group };
        Merged::Tell { psn, aeth: Aeth { syndrome, msn } }
    }

    /// A member has met congestion: whether the sender is told. `None`: nobody in the group.
    pub fn notify(&mut self, now_ns: u64, from: IpAddr) -> Option<bool> {
        let record = self.records.iter_mut().find(|record| record.address == from)?;
        Some(self.notifications.notify(now_ns, &mut record.notifications))
    }

    /// The group goes on without a member. Whether it was one, and not the last.
    ///
    /// What the others have received and the sender does not know of is told when they are next
    /// asked: the sender repeats what nobody answers.
    pub fn remove(&mut self, member: IpAddr) -> bool {
        let count = self.records.len();
        if count > 1 {
            self.records.retain(|record| record.address != member);
        }
        self.records.len() < count
    }

    /// Members, with the number of the packet that each expects next, and that of messages that it
    /// has completed.
    pub fn members(&self) -> impl Iterator<Item = (IpAddr, Serial, Serial)> {
        self.records.iter().map(|record| (record.address, record.expected, record.msn))
    }
}

/// How often a member has met congestion in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Notified {
    window: u64,
    count: u32,
}

/// Which congestion notifications the sender hears.
///
/// It is slowed down as often as the member that met most congestion asked for. If it heard all, ten
/// members that are a little congested would slow it down tenfold (the paper calls its own rule an
/// over-reaction, section IV-D).
#[derive(Clone, Copy, Debug)]
struct Notifications {
    tells_all: bool,
    told: Notified,
}

impl Notifications {
    const fn new(tells_all: bool) -> Self {
        Self { tells_all, told: Notified { window: 0, count: 0 } }
    }

    fn notify(&mut self, now_ns: u64, member: &mut Notified) -> bool {
        let window = now_ns / WINDOW_NS;
        for notified in [&mut *member, &mut self.told] {
            if notified.window != window {
                *notified = Notified { window, count: 0 };
            }
        }
        member.count += 1;
        let is_most = member.count > self.told.count;
        self.told.count = self.told.count.max(member.count);
        is_most || self.tells_all
    }
}
