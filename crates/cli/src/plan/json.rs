//! The plan as one JSON object, streamed.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::{message::Plan, table, transfers::Transfers};
use crate::json;

#[derive(Serialize)]
struct Document<'a> {
    members: u32,
    blocks: u32,
    algorithm: &'static str,
    root: u32,
    title: String,
    steps: u64,
    /// For in-switch only: the number of blocks on the root's link if switches copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    block_times_with_copies: Option<u64>,
    transfers: List<'a>,
}

/// Serialized one transfer at a time.
struct List<'a>(&'a Plan);

#[derive(Serialize)]
struct Entry {
    step: u64,
    source: u32,
    target: u32,
    block: u32,
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let transfers = Transfers::new(&self.0.schedule, self.0.blocks);
        serializer.collect_seq(transfers.map(|transfer| Entry {
            step: transfer.step,
            source: transfer.source,
            target: transfer.target,
            block: transfer.block,
        }))
    }
}

/// Writes `{"schema","members","blocks","algorithm","root","title","steps","transfers":[{"step","source","target","block"},…]}`.
pub fn write(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    let document = Document {
        members: plan.schedule.members(),
        blocks: plan.blocks,
        algorithm: plan.schedule.algorithm().name(),
        root: plan.schedule.root(),
        title: table::headline(plan),
        steps: plan.steps(),
        block_times_with_copies: plan.block_times_with_copies(),
        transfers: List(plan),
    };
    json::write_line(out, &document)
}
