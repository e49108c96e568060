//! One event of the library, taken out of `tracing`.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    layer::{Context, Filter},
    registry::LookupSpan,
};

/// What happened at a member; the names of `rdmc::timeline` in its documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the documentation of the library has each")]
pub enum What {
    #[default]
    Unknown,
    Message,
    Announce,
    Incoming,
    Accepted,
    Grant,
    Granted,
    Send,
    Sent,
    Received,
    Copy,
    Copied,
    WaitsForBlock,
    WaitsForCredit,
    WaitsForMemory,
    WaitsNoMore,
    Whole,
    Complete,
    Failed,
}

impl What {
    fn named(name: &str) -> Self {
        match name {
            "message" => Self::Message,
            "announce" => Self::Announce,
            "incoming" => Self::Incoming,
            "accepted" => Self::Accepted,
            "grant" => Self::Grant,
            "granted" => Self::Granted,
            "send" => Self::Send,
            "sent" => Self::Sent,
            "received" => Self::Received,
            "copy" => Self::Copy,
            "copied" => Self::Copied,
            "waits_for_block" => Self::WaitsForBlock,
            "waits_for_credit" => Self::WaitsForCredit,
            "waits_for_memory" => Self::WaitsForMemory,
            "waits_no_more" => Self::WaitsNoMore,
            "whole" => Self::Whole,
            "complete" => Self::Complete,
            "failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }
}

/// One thing that happened at a member, with what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moment {
    /// When, by the clock of the recorder; 0 until then.
    pub at_ns: u64,
    /// What has happened.
    pub what: What,
    /// Number of the group.
    pub group: u64,
    /// Where: the rank of this member.
    pub member: u32,
    /// The other member.
    pub peer: Option<u32>,
    /// Message number.
    pub message: Option<u64>,
    /// Step of the schedule.
    pub step: Option<u64>,
    /// Block number.
    pub block: Option<u32>,
    /// Length of the block or message.
    pub bytes: Option<u64>,
    /// The send or receive, by which its beginning and end are matched.
    pub post: Option<u64>,
}

/// A layer that gives each event of `rdmc::timeline` to `take`, on the thread where it happens, and
/// leaves all others alone. `take` should be quick, since a member's progress waits for it.
pub fn layer<S>(take: impl Fn(Moment) + Send + Sync + 'static) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let only: Box<dyn Filter<S> + Send + Sync> =
        Box::new(Targets::new().with_target("rdmc::timeline", Level::TRACE));
    Recorder { take }.with_filter(only)
}

struct Recorder<F> {
    take: F,
}

impl<S: Subscriber, F: Fn(Moment) + Send + Sync + 'static> Layer<S> for Recorder<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut moment = Moment::default();
        event.record(&mut moment);
        if moment.what != What::Unknown {
            (self.take)(moment);
        }
    }
}

impl Visit for Moment {
    fn record_u64(&mut self, field: &Field, value: u64) {
        let short = u32::try_from(value).ok();
        match field.name() {
            "group" => self.group = value,
            "member" => self.member = short.unwrap_or(u32::MAX),
            "peer" => self.peer = short,
            "message" => self.message = Some(value),
            "step" => self.step = Some(value),
            "block" => self.block = short,
            "bytes" => self.bytes = Some(value),
            "post" => self.post = Some(value),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "what" {
            self.what = What::named(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
