//! Events as the format has them (Trace Event Format, JSON array): one object each.

use serde::{Serialize, Serializer};

use crate::Moment;

/// A point on a track.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Place {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
}

/// One object of a trace. Times are in ns here, and in µs in the file, as the format requires.
#[derive(Debug, Serialize)]
#[serde(tag = "ph")]
pub(crate) enum TraceEvent<'a> {
    /// Something that lasted.
    #[serde(rename = "X")]
    Slice {
        name: &'a str,
        cat: &'static str,
        #[serde(serialize_with = "micros")]
        ts: u64,
        #[serde(serialize_with = "micros")]
        dur: u64,
        #[serde(flatten)]
        place: Place,
        args: Arguments,
    },
    #[serde(rename = "i")]
    Point {
        name: &'a str,
        cat: &'static str,
        #[serde(serialize_with = "micros")]
        ts: u64,
        /// As wide as its track.
        s: &'static str,
        #[serde(flatten)]
        place: Place,
        args: Arguments,
    },
    /// An arrow starts in the slice that is there at this time.
    #[serde(rename = "s")]
    FlowStart {
        name: &'static str,
        cat: &'static str,
        id: u64,
        #[serde(serialize_with = "micros")]
        ts: u64,
        #[serde(flatten)]
        place: Place,
    },
    /// It ends in the slice that is there at this time (`bp`).
    #[serde(rename = "f")]
    FlowEnd {
        name: &'static str,
        cat: &'static str,
        id: u64,
        bp: &'static str,
        #[serde(serialize_with = "micros")]
        ts: u64,
        #[serde(flatten)]
        place: Place,
    },
    /// Names a process or a track, or gives it its place.
    #[serde(rename = "M")]
    Label {
        name: &'static str,
        #[serde(flatten)]
        place: Place,
        args: Label<'a>,
    },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Label<'a> {
    Name { name: &'a str },
    Order { sort_index: u64 },
}

/// What is shown of an event when it is chosen.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Arguments {
    group: u64,
    member: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unfinished: bool,
}

impl Arguments {
    /// Of something whose end was not recorded.
    pub(crate) fn unfinished(self) -> Self {
        Self { unfinished: true, ..self }
    }
}

impl From<&Moment> for Arguments {
    fn from(moment: &Moment) -> Self {
        let Moment { group, member, peer, message, step, block, bytes, .. } = *moment;
        Self { group, member, peer, message, step, block, bytes, unfinished: false }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn micros<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ns as f64 / 1e3)
}
