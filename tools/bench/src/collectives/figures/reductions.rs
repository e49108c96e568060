//! Figures 11 to 14.

use collective::model::{PAPER_BLOCK_BYTES, Parameters, allreduce_us, best_degree, two_sided_us};
use serde_json::{Value, json};

use super::{
    super::cell::{Cell, Operation},
    broadcasts::gain,
    data::Data,
    times::{LENGTHS, MEMBERS, Source},
};
use crate::report::{Report, number};

const SOURCES: [Source; 2] = [Source::Measured, Source::Simulated];
const COUNTS: [u32; 3] = [4, 8, MEMBERS];

pub fn add(data: &Data, report: &mut Report) {
    add_degrees(data, report);
    add_against(data, report);
    add_many(data, report);
}

fn allreduce(bytes: u64) -> Cell {
    Cell { operation: Operation::AllReduce, bytes }
}

fn add_degrees(data: &Data, report: &mut Report) {
    report.table("fig11", "Figure 11: allreduce with each degree, us:");
    for source in SOURCES {
        for members in COUNTS {
            for bytes in LENGTHS {
                let of = |degree| number(data.reduced(source, members, degree, bytes));
                report.row([
                    ("source", json!(source.name())),
                    ("members", json!(members)),
                    ("bytes", json!(bytes)),
                    ("degree_1", of(1)),
                    ("degree_3", of(3)),
                    ("degree_7", of(7)),
                    ("degree_15", of(15)),
                    ("best", json!(data.best(source, members, bytes).0)),
                    ("best_by_model", json!(best_degree(members, bytes, &Parameters::PAPER))),
                ]);
            }
        }
    }
}

fn add_against(data: &Data, report: &mut Report) {
    report.table("fig12", "Figure 12: allreduce of 16, us:");
    for source in SOURCES {
        for bytes in LENGTHS {
            let (degree, best) = data.best(source, MEMBERS, bytes);
            let one = data.reduced(source, MEMBERS, 1, bytes);
            let other = data.two_sided(source, MEMBERS, allreduce(bytes));
            report.row([
                ("source", json!(source.name())),
                ("bytes", json!(bytes)),
                ("send_receive", number(other)),
                ("degree_1", number(one)),
                ("best", number(best)),
                ("best_degree", json!(degree)),
                ("gain_of_degree_1", number(gain(one, other))),
                ("gain_of_best", number(gain(best, other))),
                ("best_against_degree_1", number(gain(best, one))),
            ]);
        }
    }
}

fn add_many(data: &Data, report: &mut Report) {
    report.table(
        "fig13_14",
        "Figures 13 and 14: allreduce of many, us, simulated and by the model with the paper's parameters:",
    );
    for &members in &data.many {
        for bytes in LENGTHS {
            let (degree, simulated) = data.best(Source::Simulated, members, bytes);
            let by_model = best_degree(members, bytes, &Parameters::PAPER);
            let model = model_of(members, bytes);
            let other = data.two_sided(Source::Simulated, members, allreduce(bytes));
            let of_two = data.two_sided(Source::Simulated, 2, allreduce(bytes));
            let other_model = two_sided_us(members, of_two);
            report.row([
                ("members", json!(members)),
                ("bytes", json!(bytes)),
                ("simulated", number(simulated)),
                ("degree", json!(degree)),
                ("best_case", number(model.best_us)),
                ("worst_case", number(model.worst_us)),
                ("degree_by_model", json!(by_model)),
                ("send_receive", number(other)),
                ("send_receive_by_model", number(other_model)),
                ("gain", number(gain(simulated, other))),
                ("gain_in_the_best_case", number(gain(model.best_us, other_model))),
                ("gain_in_the_worst_case", number(gain(model.worst_us, other_model))),
            ] as [(&'static str, Value); 12]);
        }
    }
}

/// With the degree that the model chooses.
fn model_of(members: u32, bytes: u64) -> collective::model::Bounds {
    let degree = best_degree(members, bytes, &Parameters::PAPER);
    allreduce_us(members, degree, bytes, PAPER_BLOCK_BYTES, &Parameters::PAPER)
}
