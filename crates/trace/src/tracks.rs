//! Where each moment goes: begins and ends become slices, on tracks where nothing overlaps.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use crate::{
    Moment, What,
    event::{Arguments, Label, Place, TraceEvent},
    file::Process,
};

/// A kind of tracks; its place among the tracks of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Messages,
    Waits,
    Sends,
    Receives,
    Copies,
    Application,
    Credits,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Waits => "waits before sending",
            Self::Sends => "sends",
            Self::Receives => "receives",
            Self::Copies => "copies",
            Self::Application => "application",
            Self::Credits => "credits",
        }
    }

    /// The category of its slices.
    fn category(self) -> &'static str {
        match self {
            Self::Messages => "message",
            Self::Waits => "wait",
            Self::Sends => "send",
            Self::Receives => "receive",
            Self::Copies => "copy",
            Self::Application => "memory",
            Self::Credits => "credit",
        }
    }
}

/// Tracks of one kind that one member can have; more at once share the last.
const LANES_MAX: u64 = 100;
/// The number of a process times this, plus a kind's and a lane's, is the number of a track.
const TRACKS_MAX: u64 = 1_000;

/// What has begun and not ended, by what begins and ends it.
type Key = (Kind, u64, u32, u64);

struct Open {
    since: Moment,
    lane: u64,
}

/// Makes events of moments, which are given in the order of their times.
///
/// Memory is of the order of what is under way at once, which the windows of the members bound.
pub(crate) struct Tracks {
    process: Option<Process>,
    open: BTreeMap<Key, Open>,
    /// Ends of receives whose message is not known yet, by group, member and post.
    unnamed: BTreeMap<(u64, u32, u64), Moment>,
    /// Lanes in use, by process and kind.
    lanes: BTreeSet<(u64, Kind, u64)>,
    /// Processes and, in them, tracks that have their names.
    labelled: BTreeSet<(u64, Option<u64>)>,
    last_ns: u64,
}

/// Where events go.
type Put<'a> = &'a mut dyn FnMut(&TraceEvent) -> io::Result<()>;

impl Tracks {
    /// All in one process; without one, each member is a process of its own.
    pub(crate) fn new(process: Option<Process>) -> Self {
        let (open, unnamed, lanes, labelled) = Default::default();
        Self { process, open, unnamed, lanes, labelled, last_ns: 0 }
    }

    pub(crate) fn take(&mut self, moment: &Moment, put: Put) -> io::Result<()> {
        self.last_ns = self.last_ns.max(moment.at_ns);
        let (post, message) = (moment.post.unwrap_or(0), moment.message.unwrap_or(0));
        let peer = moment.peer.unwrap_or(u32::MAX);
        match moment.what {
            What::Message => self.begin(Kind::Messages, message, moment),
            What::Incoming => {
                self.begin(Kind::Messages, message, moment);
                self.begin(Kind::Application, message, moment);
            }
            What::Grant => self.begin(Kind::Receives, post, moment),
            What::Send => self.begin(Kind::Sends, post, moment),
            What::Copy => {
                self.end_unnamed(moment, put)?;
                self.begin(Kind::Copies, message, moment);
            }
            What::Accepted => return self.end(Kind::Application, message, moment, put),
            What::Complete => return self.end(Kind::Messages, message, moment, put),
            What::Sent => return self.end(Kind::Sends, post, moment, put),
            What::Received if moment.message.is_none() => {
                self.unnamed.insert((moment.group, moment.member, post), *moment);
            }
            What::Received => return self.end(Kind::Receives, post, moment, put),
            What::Copied => return self.end(Kind::Copies, message, moment, put),
            What::WaitsForBlock | What::WaitsForCredit | What::WaitsForMemory => {
                self.end_wait(moment, put)?;
                self.begin(Kind::Waits, 0, moment);
            }
            What::WaitsNoMore => return self.end_wait(moment, put),
            What::Granted => {
                let name = format!("credit of member {peer}");
                return self.point(Kind::Credits, moment, &name, put);
            }
            What::Announce => {
                let name = format!("announces message {message} to member {peer}");
                return self.point(Kind::Credits, moment, &name, put);
            }
            What::Whole => {
                let name = format!("message {message} is whole");
                return self.point(Kind::Messages, moment, &name, put);
            }
            What::Failed => return self.point(Kind::Messages, moment, "the group fails", put),
            What::Unknown => {}
        }
        Ok(())
    }

    /// Moments are missing: forgets what may never end.
    pub(crate) fn skip(&mut self, lost: u64, put: Put) -> io::Result<()> {
        self.open.clear();
        self.unnamed.clear();
        self.lanes.clear();
        let moment = Moment { at_ns: self.last_ns, ..Moment::default() };
        self.point(Kind::Messages, &moment, &format!("{lost} events were lost"), put)
    }

    /// Writes what has not ended, but not the receive that waits for a message that never came.
    pub(crate) fn finish(&mut self, put: Put) -> io::Result<()> {
        let last_ns = self.last_ns;
        for ((_, _, post), end) in std::mem::take(&mut self.unnamed) {
            self.end(Kind::Receives, post, &end, put)?;
        }
        for ((kind, ..), Open { since, lane }) in std::mem::take(&mut self.open) {
            if kind == Kind::Receives && since.block.is_none() {
                continue;
            }
            let place = self.place(&since, kind, lane, put)?;
            let args = Arguments::from(&since).unfinished();
            put(&slice(kind, &name_of(kind, &since), since.at_ns, last_ns, place, args))?;
        }
        Ok(())
    }

    fn begin(&mut self, kind: Kind, number: u64, moment: &Moment) {
        let pid = self.pid(moment);
        let free = (0..LANES_MAX).find(|&lane| !self.lanes.contains(&(pid, kind, lane)));
        let lane = free.unwrap_or(LANES_MAX - 1);
        self.lanes.insert((pid, kind, lane));
        let open = Open { since: *moment, lane };
        self.open.insert((kind, moment.group, moment.member, number), open);
    }

    /// Ends what has begun; without a beginning, this is a point.
    fn end(&mut self, kind: Kind, number: u64, moment: &Moment, put: Put) -> io::Result<()> {
        let begun = self.open.remove(&(kind, moment.group, moment.member, number));
        let Some(Open { since, lane }) = begun else {
            return self.point(kind, moment, &name_of(kind, moment), put);
        };
        self.lanes.remove(&(self.pid(moment), kind, lane));
        let place = self.place(moment, kind, lane, put)?;
        // The beginning of a send and the end of a receive have more fields than their other ends.
        let facts = if kind == Kind::Receives { moment } else { &since };
        let name = name_of(kind, facts);
        put(&slice(kind, &name, since.at_ns, moment.at_ns, place, facts.into()))?;
        self.arrow(kind, &since, moment, place, put)
    }

    /// The copy of a first block has the number of its message, where the block came before its
    /// announcement.
    fn end_unnamed(&mut self, copy: &Moment, put: Put) -> io::Result<()> {
        let post = copy.post.unwrap_or(0);
        match self.unnamed.remove(&(copy.group, copy.member, post)) {
            Some(end) => {
                let end = Moment { message: copy.message, ..end };
                self.end(Kind::Receives, post, &end, put)
            }
            None => Ok(()),
        }
    }

    fn end_wait(&mut self, moment: &Moment, put: Put) -> io::Result<()> {
        let key = (Kind::Waits, moment.group, moment.member, 0);
        if self.open.contains_key(&key) { self.end(Kind::Waits, 0, moment, put) } else { Ok(()) }
    }

    /// From a send to its receive, wherever that is.
    fn arrow(
        &self,
        kind: Kind,
        since: &Moment,
        until: &Moment,
        place: Place,
        put: Put,
    ) -> io::Result<()> {
        let (name, cat) = ("block", "block");
        match kind {
            Kind::Sends => {
                let id = flow(since, since.member, since.peer);
                put(&TraceEvent::FlowStart { name, cat, id, ts: since.at_ns, place })
            }
            Kind::Receives => {
                let id = flow(until, until.peer.unwrap_or(u32::MAX), Some(until.member));
                // Inside the slice, whose end is no longer part of it.
                let ts = until.at_ns.saturating_sub(1).max(since.at_ns);
                put(&TraceEvent::FlowEnd { name, cat, id, bp: "e", ts, place })
            }
            _ => Ok(()),
        }
    }

    fn point(&mut self, kind: Kind, moment: &Moment, name: &str, put: Put) -> io::Result<()> {
        let place = self.place(moment, kind, 0, put)?;
        let (cat, ts, args) = (kind.category(), moment.at_ns, moment.into());
        put(&TraceEvent::Point { name, cat, ts, s: "t", place, args })
    }

    /// Numbers begin at 1: tools take process 0 for the idle one.
    fn pid(&self, moment: &Moment) -> u64 {
        1 + u64::from(self.process.as_ref().map_or(moment.member, |process| process.number))
    }

    /// A track, which is labelled when it is first used.
    fn place(&mut self, moment: &Moment, kind: Kind, lane: u64, put: Put) -> io::Result<Place> {
        let pid = self.pid(moment);
        let order = kind as u64 * LANES_MAX + lane;
        let place = Place { pid, tid: pid * TRACKS_MAX + order };
        if self.labelled.insert((pid, None)) {
            let name = match &self.process {
                Some(process) => process.name.clone(),
                None => format!("member {}", moment.member),
            };
            let mut label = |name, args| put(&TraceEvent::Label { name, place, args });
            label("process_name", Label::Name { name: &name })?;
            label("process_sort_index", Label::Order { sort_index: pid })?;
        }
        if self.labelled.insert((pid, Some(order))) {
            let mut label = |name, args| put(&TraceEvent::Label { name, place, args });
            label("thread_name", Label::Name { name: kind.name() })?;
            label("thread_sort_index", Label::Order { sort_index: order })?;
        }
        Ok(place)
    }
}

fn slice(
    kind: Kind,
    name: &str,
    from_ns: u64,
    to_ns: u64,
    place: Place,
    args: Arguments,
) -> TraceEvent<'_> {
    let (ts, dur) = (from_ns, to_ns.saturating_sub(from_ns));
    TraceEvent::Slice { name, cat: kind.category(), ts, dur, place, args }
}

fn name_of(kind: Kind, facts: &Moment) -> String {
    let (block, message) = (facts.block.unwrap_or(0), facts.message.unwrap_or(0));
    let peer = facts.peer.unwrap_or(u32::MAX);
    match (kind, facts.what) {
        (Kind::Waits, What::WaitsForCredit) => {
            format!("waits for credit of member {peer} for block {block}")
        }
        (Kind::Waits, What::WaitsForMemory) => "waits for memory of the application".to_owned(),
        (Kind::Waits, _) => format!("waits for block {block} from member {peer}"),
        (Kind::Messages, _) => format!("message {message}"),
        (Kind::Application, _) => format!("memory for message {message}"),
        (Kind::Copies, _) => "first block".to_owned(),
        (Kind::Sends | Kind::Receives | Kind::Credits, _) => format!("block {block}"),
    }
}

/// The number of the arrow of a block from one member to another, the same at both. Numbers stay
/// below 2^53, which every reader of JSON has.
fn flow(moment: &Moment, source: u32, target: Option<u32>) -> u64 {
    let parts = [
        moment.group,
        moment.message.unwrap_or(u64::MAX),
        moment.block.map_or(u64::MAX, u64::from),
        u64::from(source),
        target.map_or(u64::MAX, u64::from),
    ];
    // Multiplication by an odd constant and folding of the high bits, as splitmix64 does.
    let mixed = parts.into_iter().fold(0_u64, |mixed, part| {
        let sum = (mixed ^ part).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let product = (sum ^ (sum >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        product ^ (product >> 31)
    });
    mixed >> 11
}
