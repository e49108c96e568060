//! Figure 9: parameter servers and their workers.

use mcrdma_sim::{
    Config, Pattern,
    experiments::{TrainingRow, TrainingSettings, training as simulate},
};
use serde_json::json;

use super::{
    args::{Args, Control},
    confidence::{Estimate, saved},
};
use crate::{
    outcome::Outcome,
    report::{Report, name, number},
};

/// Rates of links between switches: that of hosts' links, as in the paper, and one at which they are never scarce.
const ABOVE_GBIT_PER_S: [u64; 2] = [100, 400];

/// That of DCQCN's paper differs too little from the endpoints' to be seen.
const CONTROLS: [Control; 4] =
    [Control::Endpoint, Control::Hpcc, Control::HpccPaced, Control::None];

/// A variant of DCQCN, with what each seed gave.
struct Cell {
    control: Control,
    above_gbit_per_s: u64,
    /// By seed: for each length the three patterns.
    rows: Vec<Vec<TrainingRow>>,
}

impl Cell {
    /// A value of each seed, at a place among the rows.
    fn values(&self, at: usize, value: impl Fn(&TrainingRow) -> f64) -> Vec<f64> {
        self.rows.iter().map(|rows| value(&rows[at])).collect()
    }

    /// Of a seed's rows those of one length.
    fn lengths(&self) -> impl Iterator<Item = (usize, &[TrainingRow])> {
        let rows = self.rows.first().map_or(&[][..], Vec::as_slice);
        rows.chunks(Pattern::ALL.len()).enumerate()
    }
}

pub fn training(args: &Args) -> Outcome<Report> {
    let default = TrainingSettings::default();
    let iterations = args.part_of(default.iterations);
    let controls = if args.dcqcn.is_empty() { &CONTROLS[..] } else { &args.dcqcn };
    let mut cells = Vec::new();
    for &control in controls {
        for above_gbit_per_s in ABOVE_GBIT_PER_S {
            let simulate_seed = |&seed: &u64| {
                let config = control.apply(Config { seed, ..default.config });
                let switch_bits_per_s = above_gbit_per_s * 1_000_000_000;
                let default = TrainingSettings::default();
                simulate(&TrainingSettings { config, iterations, switch_bits_per_s, ..default })
            };
            let rows = args.seeds().iter().map(simulate_seed).collect::<Result<_, _>>()?;
            cells.push(Cell { control, above_gbit_per_s, rows });
        }
    }
    let mut report = args.report_of_seeds(&format!(
        "five parameter servers in a pod of a fat tree (k = 6), six workers each in other pods, {iterations} \
         iterations"
    ));
    cells.iter().for_each(|cell| add_rows(&mut report, cell));
    report
        .table("saved", "What in-switch saves of the time of the better of the others, in percent");
    cells.iter().for_each(|cell| add_saved(&mut report, cell));
    report.note(
        "above: rate of each link between switches, Gbit/s. half: half the width of the interval of 95 % \
         confidence.",
    );
    Ok(report)
}

fn add_rows(report: &mut Report, cell: &Cell) {
    for (at, row) in cell.rows[0].iter().enumerate() {
        let (iteration_ms, iteration_half_ms) =
            Estimate::of(&cell.values(at, |row| row.iteration_ms)).cells();
        let mean =
            |value: fn(&TrainingRow) -> f64| number(Estimate::of(&cell.values(at, value)).mean);
        report.row([
            ("dcqcn", json!(name(&cell.control))),
            ("above", json!(cell.above_gbit_per_s)),
            ("message_mb", json!(row.message_bytes / 1_000_000)),
            ("pattern", json!(row.pattern.name())),
            ("iteration_ms", iteration_ms),
            ("iteration_half_ms", iteration_half_ms),
            ("gather_ms", mean(|row| row.gather_ms)),
            ("distribute_ms", mean(|row| row.iteration_ms - row.gather_ms)),
        ]);
    }
}

fn add_saved(report: &mut Report, cell: &Cell) {
    for (length, rows) in cell.lengths() {
        let values = |pattern: usize| {
            cell.values(length * Pattern::ALL.len() + pattern, |row| row.iteration_ms)
        };
        let (iteration, iteration_half) = saved(&values(0), &[values(1), values(2)]).cells();
        report.row([
            ("dcqcn", json!(name(&cell.control))),
            ("above", json!(cell.above_gbit_per_s)),
            ("message_mb", json!(rows[0].message_bytes / 1_000_000)),
            ("iteration", iteration),
            ("iteration_half", iteration_half),
        ]);
    }
}
