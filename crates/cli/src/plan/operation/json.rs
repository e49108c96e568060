//! The writes as one JSON object.

use std::io::{self, Write};

use collective::model::Bounds;
use serde::{Serialize, Serializer};

use super::plan::Plan;
use crate::json;

#[derive(Serialize)]
struct Document<'a> {
    collective: &'static str,
    members: u32,
    root: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    degree: Option<u32>,
    #[serde(flatten)]
    time: Option<Time>,
    steps: u32,
    transfers: List<'a>,
}

/// By the cost model.
#[derive(Serialize)]
struct Time {
    bytes: u64,
    best_seconds: f64,
    worst_seconds: f64,
}

/// Serialized one write at a time.
struct List<'a>(&'a Plan);

#[derive(Serialize)]
struct Entry {
    step: u32,
    phase: &'static str,
    source: u32,
    target: u32,
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.writes().into_iter().map(|write| Entry {
            step: write.step,
            phase: write.phase.name(),
            source: write.source,
            target: write.target,
        }))
    }
}

/// From microseconds, without rounding errors of sums.
pub fn seconds(us: f64) -> f64 {
    (us * 1e3).round() / 1e9
}

/// Writes `{"schema","collective","members","root","degree","bytes","best_seconds","worst_seconds","steps","transfers":[{"step",
/// "phase","source","target"},…]}`; no degree for a broadcast, and no times without a length.
pub fn write(plan: &Plan, time: Option<(u64, Bounds)>, out: &mut impl Write) -> io::Result<()> {
    let document = Document {
        collective: plan.operation.name(),
        members: plan.members,
        root: plan.root,
        degree: plan.degree,
        time: time.map(|(bytes, bounds)| Time {
            bytes,
            best_seconds: seconds(bounds.best_us),
            worst_seconds: seconds(bounds.worst_us),
        }),
        steps: plan.steps(),
        transfers: List(plan),
    };
    json::write_line(out, &document)
}
