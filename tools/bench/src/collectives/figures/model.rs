//! Parameters of the model, and how far it is from each time.

use collective::model::Parameters;
use serde_json::json;

use super::{
    super::{
        cell::Operation,
        fit::{Sample, fit},
    },
    data::Data,
    times::{MEMBERS, Program, Source, Times},
};
use crate::report::{Report, mean, number};

/// The parameters that fit all times of teams of up to 16 members.
pub fn fitted(times: &Times, source: Source) -> Parameters {
    let all: Vec<Sample> = samples(times, source).filter(|it| it.members <= MEMBERS).collect();
    fit(&all)
}

/// The times of teams.
fn samples(times: &Times, source: Source) -> impl Iterator<Item = Sample> {
    times.of(source).filter_map(|(members, program, cell, time_us)| {
        let Program::Team { block, degree } = program else { return None };
        let degree = (cell.operation == Operation::AllReduce).then_some(degree);
        Some(Sample { members, degree, bytes: cell.bytes, block: block.into(), time_us })
    })
}

pub fn add(data: &Data, report: &mut Report) {
    add_parameters(data, report);
    add_summary(data, report);
    add_errors(data, report);
}

fn add_parameters(data: &Data, report: &mut Report) {
    report.table(
        "parameters",
        "Parameters of the model, ns; operations show the sums Tm + Td and Ts + Tn, which are split as in the paper:",
    );
    let [(_, measured), (_, simulated)] = &data.fitted;
    let mut add = |name: &str, of: fn(&Parameters) -> f64| {
        report.row([
            ("parameter", json!(name)),
            ("paper", json!(ns(of(&Parameters::PAPER)))),
            ("fitted_here", json!(ns(of(measured)))),
            ("fitted_to_the_simulation", json!(ns(of(simulated)))),
        ]);
    };
    add("Tt, a byte", |it| it.transmit_us_per_byte);
    add("Tc, a byte", |it| it.copy_us_per_byte);
    add("Ts + Tn", |it| it.dma_start_us + it.adapter_us);
    add("Ts", |it| it.dma_start_us);
    add("Tn", |it| it.adapter_us);
    add("Tm + Td", |it| it.library_us + it.post_us);
    add("Td", |it| it.post_us);
    add("Tm", |it| it.library_us);
    add("Ta, a block", |it| it.acknowledge_us);
}

/// Microseconds as nanoseconds, to a thousandth.
fn ns(us: f64) -> f64 {
    (us * 1e6).round() / 1e3
}

fn add_summary(data: &Data, report: &mut Report) {
    report.table(
        "model_errors",
        "How far the fitted model is from the times (negative: it is too fast), in parts of them:",
    );
    for (source, parameters) in &data.fitted {
        for operation in Operation::ALL {
            let is_of = |it: &Sample| it.degree.is_some() == (operation == Operation::AllReduce);
            let all: Vec<Sample> = samples(&data.times, *source).filter(is_of).collect();
            let mut counts: Vec<u32> = all.iter().map(|it| it.members).collect();
            counts.sort_unstable();
            counts.dedup();
            for members in counts {
                let of_count = all.iter().filter(|it| it.members == members);
                let errors: Vec<f64> = of_count.map(|it| it.error(parameters)).collect();
                let size = |error: &f64| error.abs();
                report.row([
                    ("source", json!(source.name())),
                    ("operation", json!(operation.name())),
                    ("members", json!(members)),
                    ("points", json!(errors.len())),
                    ("mean_error", number(mean(&errors))),
                    ("mean_size", number(mean(&errors.iter().map(size).collect::<Vec<_>>()))),
                    ("greatest_size", number(errors.iter().map(size).fold(0.0, f64::max))),
                    ("fitted", json!(if members <= MEMBERS { "yes" } else { "predicted" })),
                ]);
            }
        }
    }
}

fn add_errors(data: &Data, report: &mut Report) {
    report.table("model_points", "The fitted model at each point:");
    for (source, parameters) in &data.fitted {
        for sample in samples(&data.times, *source) {
            report.row([
                ("source", json!(source.name())),
                (
                    "operation",
                    json!(if sample.degree.is_some() { "allreduce" } else { "broadcast" }),
                ),
                ("members", json!(sample.members)),
                ("degree", json!(sample.degree)),
                ("block_bytes", json!(sample.block + 1)),
                ("bytes", json!(sample.bytes)),
                ("time_us", number(sample.time_us)),
                ("model_us", number(sample.model_us(parameters))),
                ("error", number(sample.error(parameters))),
            ]);
        }
    }
}
