//! Figures 6 to 10.

use collective::model::{PAPER_BLOCK_BYTES, Parameters, broadcast_us, two_sided_us};
use serde_json::json;

use super::{
    super::cell::{Cell, Operation},
    data::Data,
    times::{BLOCK, BLOCKS, LENGTHS, MEMBERS, Source},
};
use crate::report::{Report, number};

const SOURCES: [Source; 2] = [Source::Measured, Source::Simulated];

pub fn add(data: &Data, report: &mut Report) {
    add_blocks(data, report);
    add_many(data, report);
}

fn broadcast(bytes: u64) -> Cell {
    Cell { operation: Operation::Broadcast, bytes }
}

/// The time saved.
pub fn gain(time_us: f64, other_us: f64) -> f64 {
    1.0 - time_us / other_us
}

fn add_blocks(data: &Data, report: &mut Report) {
    report.table(
        "fig6_7",
        "Figures 6 and 7: broadcast to 16 until the deepest leaf has it, us, by block size (the paper's, with its flag):",
    );
    for source in SOURCES {
        for bytes in LENGTHS {
            let [a, b, c, d] = BLOCKS.map(|block| data.broadcast(source, MEMBERS, block, bytes));
            let other = data.two_sided(source, MEMBERS, broadcast(bytes));
            report.row([
                ("source", json!(source.name())),
                ("bytes", json!(bytes)),
                ("1025_B", number(a)),
                ("2049_B", number(b)),
                ("3073_B", number(c)),
                ("4097_B", number(d)),
                ("send_receive", number(other)),
                ("gain_with_3073_B", number(gain(c, other))),
            ]);
        }
    }
}

fn add_many(data: &Data, report: &mut Report) {
    report.table(
        "fig9_10",
        "Figures 9 and 10: broadcast to many, us, simulated and by the model with the paper's parameters:",
    );
    for &members in &data.many {
        for bytes in LENGTHS {
            let simulated = data.broadcast(Source::Simulated, members, BLOCK, bytes);
            let model = broadcast_us(members, bytes, PAPER_BLOCK_BYTES, &Parameters::PAPER);
            let other = data.two_sided(Source::Simulated, members, broadcast(bytes));
            let of_two = data.two_sided(Source::Simulated, 2, broadcast(bytes));
            let other_model = two_sided_us(members, of_two);
            report.row([
                ("members", json!(members)),
                ("bytes", json!(bytes)),
                ("simulated", number(simulated)),
                ("model", number(model)),
                ("model_error", number(model / simulated - 1.0)),
                ("send_receive", number(other)),
                ("send_receive_by_model", number(other_model)),
                ("gain", number(gain(simulated, other))),
                ("gain_by_model", number(gain(model, other_model))),
            ]);
        }
    }
}
