//! The writes as one JSON object.

use std::io::{self, Write};

use collective::Way;
use serde::{Serialize, Serializer};

use super::{plan::Plan, text, write::Part};
use crate::json;

#[derive(Serialize)]
struct Document<'a> {
    collective: &'static str,
    members: u32,
    root: u32,
    title: String,
    way: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    degree: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_bytes: Option<u64>,
    #[serde(flatten)]
    time: Option<Time>,
    steps: u64,
    transfers: List<'a>,
}

/// The time by the cost model.
#[derive(Serialize)]
struct Time {
    bytes: u64,
    seconds: f64,
    best_seconds: f64,
    worst_seconds: f64,
}

/// Serialized one write at a time.
struct List<'a>(&'a Plan);

#[derive(Serialize)]
struct Entry {
    step: u64,
    phase: &'static str,
    source: u32,
    target: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_chunk: Option<u32>,
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.writes().map(|write| {
            let (block, chunk, last_chunk) = match write.part {
                Part::All => (None, None, None),
                Part::Block(block) => (Some(block), None, None),
                Part::Chunk(chunk) => (None, Some(chunk), None),
                Part::Chunks(first, last) => (None, Some(first), Some(last)),
            };
            let (source, target) = (write.source, write.target);
            let (step, phase) = (write.step, write.phase.name());
            Entry { step, phase, source, target, block, chunk, last_chunk }
        }))
    }
}

/// From microseconds, without rounding errors of sums.
pub fn seconds(us: f64) -> f64 {
    (us * 1e3).round() / 1e9
}

/// Returns the degree of a way that has one.
pub fn degree(way: Way) -> Option<u32> {
    match way {
        Way::Trees { degree } => degree,
        _ => None,
    }
}

/// Writes `{"schema","collective","members","root","title","way","degree","block_bytes","bytes","seconds","best_seconds",
/// "worst_seconds","steps","transfers":[{"step","phase","source","target","block","chunk","last_chunk"},…]}`; a degree for reductions
/// along trees, lengths of blocks for long messages, no times without a length, of block and chunk at most one, and the last of several
/// chunks.
pub fn write(plan: &Plan, bytes: Option<u64>, out: &mut impl Write) -> io::Result<()> {
    let document = Document {
        collective: plan.operation.name(),
        members: plan.members,
        root: plan.root,
        title: text::headline(plan),
        way: plan.way.name(),
        degree: degree(plan.way),
        block_bytes: plan.way.is_long().then(|| plan.block_bytes()),
        time: bytes.map(|bytes| Time {
            bytes,
            seconds: seconds(plan.time_us()),
            best_seconds: seconds(plan.bounds().best_us),
            worst_seconds: seconds(plan.bounds().worst_us),
        }),
        steps: plan.steps(),
        transfers: List(plan),
    };
    json::write_line(out, &document)
}
