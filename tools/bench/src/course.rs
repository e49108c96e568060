//! The course of a message: which block was in transit when, and which member waited. It is taken from what members have
//! recorded in memory, or from a trace file.

use std::{collections::HashMap, ops::Range};

use serde_json::{Value, json};
use trace::{Lasting, Moment, Reason, Slice, What};

use crate::report::{Report, number};

/// A block in transit, from the source's post to the target's completion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Rank of the source.
    pub from: u32,
    /// Rank of the target.
    pub to: u32,
    /// Its index in the message.
    pub block: u32,
    /// The schedule's step, if it is known.
    pub step: Option<u64>,
    /// In ns.
    pub time: Range<u64>,
}

/// Time in which a member sent nothing, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The member that waited.
    pub member: u32,
    /// The member it waited for; `None`: its application.
    pub peer: Option<u32>,
    /// What for.
    pub reason: Reason,
    /// The block that it had to send, if it is known.
    pub block: Option<u32>,
    /// In ns.
    pub time: Range<u64>,
}

/// What the members of one group did. Times are in ns from the same moment for all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Course {
    /// In the order of their ends.
    pub transfers: Vec<Transfer>,
    /// Within the time of the transfers.
    pub waits: Vec<Wait>,
    /// The longest block.
    pub block_bytes: u64,
    /// Receives whose send is not known; they are left out.
    pub without_send: u64,
    /// Blocks that arrive before they are sent, by clocks that differ.
    pub backwards: u64,
}

/// A block between two members.
type Hop = (u64, u32, u32, u32);

impl Course {
    /// Of what each member has recorded, by rank. `None` if a block was received without a send.
    pub fn of_members<'a>(timelines: impl IntoIterator<Item = &'a [Moment]>) -> Option<Self> {
        let mut slices = Vec::new();
        for (rank, timeline) in (0..).zip(timelines) {
            slices.extend(slices_of(rank, timeline));
        }
        let course = Self::of_slices(&slices);
        (course.without_send == 0).then_some(course)
    }

    /// Of messages of one group.
    pub fn of_slices(slices: &[Slice]) -> Self {
        let sends: HashMap<Hop, &Slice> = of_kind(slices, Lasting::Send)
            .filter_map(|send| Some((hop(send, send.member, send.peer?)?, send)))
            .collect();
        let mut course = Self::default();
        for receive in of_kind(slices, Lasting::Receive).filter(|slice| !slice.unfinished) {
            let hop = receive.peer.and_then(|from| hop(receive, from, receive.member));
            let found = hop.and_then(|hop| Some((hop, sends.get(&hop)?)));
            let Some(((_, block, from, to), send)) = found else {
                course.without_send += 1;
                continue;
            };
            course.backwards += u64::from(send.start_ns > receive.end_ns);
            let time = send.start_ns.min(receive.end_ns)..receive.end_ns;
            course.transfers.push(Transfer { from, to, block, step: send.step, time });
            course.block_bytes = course.block_bytes.max(receive.bytes.unwrap_or(0));
        }
        course.transfers.sort_by_key(|transfer| transfer.time.end);
        let span = course.span();
        for slice in slices {
            let time = slice.start_ns.max(span.start)..slice.end_ns.min(span.end);
            let Slice { member, peer, block, .. } = *slice;
            if let Lasting::Wait(reason) = slice.what
                && !time.is_empty()
            {
                course.waits.push(Wait { member, peer, reason, block, time });
            }
        }
        course
    }

    /// From the first post to the last arrival.
    pub fn span(&self) -> Range<u64> {
        let start = self.transfers.iter().map(|transfer| transfer.time.start).min();
        let end = self.transfers.iter().map(|transfer| transfer.time.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// How many members it shows.
    pub fn members(&self) -> u32 {
        let ends = self.transfers.iter().map(|transfer| transfer.from.max(transfer.to));
        ends.max().map_or(0, |last| last + 1)
    }

    /// Adds the tables that a picture is drawn from; times are since the first post.
    pub fn add_to(&self, report: &mut Report) {
        let start_ns = self.span().start;
        let us = |ns: u64| number((ns - start_ns) as f64 / 1e3);
        report.data("transfers");
        for transfer in &self.transfers {
            report.row([
                ("source", json!(transfer.from)),
                ("target", json!(transfer.to)),
                ("block", json!(transfer.block)),
                ("step", json!(transfer.step)),
                ("start_us", us(transfer.time.start)),
                ("end_us", us(transfer.time.end)),
            ]);
        }
        report.data("waits");
        for wait in &self.waits {
            report.row([
                ("member", json!(wait.member)),
                ("of_member", json!(wait.peer)),
                ("reason", Value::from(reason_name(wait.reason))),
                ("block", json!(wait.block)),
                ("start_us", us(wait.time.start)),
                ("end_us", us(wait.time.end)),
            ]);
        }
    }
}

/// As tables name it.
pub fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Block => "block",
        Reason::Credit => "credit",
        Reason::Memory => "memory",
    }
}

fn of_kind(slices: &[Slice], kind: Lasting) -> impl Iterator<Item = &Slice> {
    slices.iter().filter(move |slice| slice.what == kind)
}

fn hop(slice: &Slice, from: u32, to: u32) -> Option<Hop> {
    Some((slice.message.unwrap_or(u64::MAX), slice.block?, from, to))
}

/// What one member has kept, as slices. The beginnings of sends and the ends of receives are all
/// that a [`Course`] asks for of these.
fn slices_of(rank: u32, timeline: &[Moment]) -> Vec<Slice> {
    let mut slices = Vec::new();
    let mut waiting: Option<Slice> = None;
    // The copy of a first block has the number of its message; the receive has none if the block
    // arrived before the announcement.
    let copies: HashMap<_, _> = timeline
        .iter()
        .filter(|moment| moment.what == What::Copy)
        .map(|copy| ((copy.group, copy.post), copy.message))
        .collect();
    for moment in timeline {
        let begin = |what| Some(Slice { member: rank, ..instant(what, moment) });
        let reason = match moment.what {
            What::Send => {
                slices.extend(begin(Lasting::Send));
                continue;
            }
            What::Received => {
                let message = || copies.get(&(moment.group, moment.post)).copied().flatten();
                let message = moment.message.or_else(message);
                slices.extend(begin(Lasting::Receive).map(|slice| Slice { message, ..slice }));
                continue;
            }
            What::WaitsForBlock => Some(Reason::Block),
            What::WaitsForCredit => Some(Reason::Credit),
            What::WaitsForMemory => Some(Reason::Memory),
            What::WaitsNoMore => None,
            _ => continue,
        };
        slices.extend(waiting.take().map(|wait| Slice { end_ns: moment.at_ns, ..wait }));
        waiting = reason.and_then(|reason| begin(Lasting::Wait(reason)));
    }
    slices
}

fn instant(what: Lasting, moment: &Moment) -> Slice {
    let Moment { at_ns, group, member, peer, message, step, block, bytes, .. } = *moment;
    let (start_ns, end_ns, unfinished) = (at_ns, at_ns, false);
    Slice { what, start_ns, end_ns, group, member, peer, message, step, block, bytes, unfinished }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(what: Lasting, member: u32, peer: u32, block: u32, time: Range<u64>) -> Slice {
        let moment = Moment { peer: Some(peer), block: Some(block), ..Moment::default() };
        Slice { member, start_ns: time.start, end_ns: time.end, ..instant(what, &moment) }
    }

    #[test]
    fn a_transfer_lasts_from_the_send_to_the_end_of_its_receive() {
        let slices = [
            slice(Lasting::Send, 0, 1, 7, 100..110),
            slice(Lasting::Send, 0, 2, 7, 110..120),
            slice(Lasting::Receive, 2, 0, 7, 60..150),
            slice(Lasting::Receive, 1, 0, 7, 50..130),
            slice(Lasting::Send, 1, 2, 9, 180..190),
            // By a clock that is late.
            slice(Lasting::Receive, 2, 1, 9, 150..170),
            slice(Lasting::Receive, 2, 1, 8, 150..160),
            Slice { unfinished: true, ..slice(Lasting::Receive, 2, 1, 10, 150..160) },
        ];
        let course = Course::of_slices(&slices);
        let hops: Vec<_> =
            course.transfers.iter().map(|it| (it.from, it.to, it.block, it.time.clone())).collect();
        assert_eq!(hops, [(0, 1, 7, 100..130), (0, 2, 7, 110..150), (1, 2, 9, 170..170)]);
        assert_eq!((course.without_send, course.backwards, course.members()), (1, 1, 3));
        assert_eq!(course.span(), 100..170);
    }

    #[test]
    fn a_block_that_overtakes_its_announcement_is_of_the_message_of_its_copy() {
        let at = |at_ns, what, peer, message, post| Moment {
            at_ns,
            what,
            peer,
            message,
            post: Some(post),
            ..Moment::default()
        };
        let block = |moment| Moment { block: Some(0), ..moment };
        let root = [block(at(5, What::Send, Some(1), Some(2), 7))];
        let receiver = [
            block(at(30, What::Received, Some(0), None, 4)),
            at(33, What::Copy, None, Some(2), 4),
            at(34, What::Copied, None, Some(2), 4),
        ];
        let course = Course::of_members([&root[..], &receiver]).unwrap();
        assert_eq!(course.transfers[0].time, 5..30);
        assert!(
            Course::of_members([&root[..], &receiver[..1]]).is_none(),
            "without the copy its message is unknown"
        );
    }

    #[test]
    fn waits_count_while_blocks_are_on_their_way() {
        let waits = Lasting::Wait(Reason::Credit);
        let slices = [
            slice(Lasting::Send, 0, 1, 0, 100..110),
            slice(Lasting::Receive, 1, 0, 0, 100..200),
            slice(waits, 0, 1, 1, 50..120),
            slice(waits, 0, 1, 2, 150..900),
            slice(waits, 0, 1, 3, 20..30),
        ];
        let course = Course::of_slices(&slices);
        let times: Vec<_> = course.waits.iter().map(|wait| wait.time.clone()).collect();
        assert_eq!(times, [100..120, 150..200]);
    }

    #[test]
    fn records_of_members_make_the_same_timeline() {
        let at = |at_ns, what, peer, block| Moment {
            at_ns,
            what,
            peer: Some(peer),
            block: Some(block),
            ..Moment::default()
        };
        let root = [
            at(10, What::WaitsForCredit, 1, 0),
            at(20, What::WaitsForMemory, 1, 0),
            at(25, What::WaitsNoMore, 1, 0),
            at(5, What::Send, 1, 0),
        ];
        let receiver =
            [at(30, What::Received, 0, 0), at(31, What::Copy, 0, 0), at(33, What::Copied, 0, 0)];
        let course = Course::of_members([&root[..], &receiver]).unwrap();
        assert_eq!(course.transfers.len(), 1);
        assert_eq!(course.transfers[0].time, 5..30);
        let waits: Vec<_> = course.waits.iter().map(|it| (it.reason, it.time.clone())).collect();
        assert_eq!(waits, [(Reason::Credit, 10..20), (Reason::Memory, 20..25)]);
        let gap: [&[Moment]; 2] = [&[], &[at(30, What::Received, 0, 0)]];
        assert!(Course::of_members(gap).is_none(), "a block without a send");
    }
}
