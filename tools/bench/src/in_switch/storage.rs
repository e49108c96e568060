//! Figure 8: a storage system that replicates writes.

use mcrdma::plan::Device;
use mcrdma_sim::{
    Distribution, Pattern,
    experiments::{Layout, StorageRow, StorageSettings, storage as simulate},
};
use serde_json::json;

use super::{
    args::{self, Control},
    confidence::{Estimate, saved},
    storage_args::{Hosts, Sizes, Switches},
};
use crate::{
    outcome::Outcome,
    report::{Report, name, number},
};

/// Settings that are compared, with what each seed gave.
struct Cell {
    sizes: Sizes,
    control: Control,
    layout: Hosts,
    groups: u16,
    switches: Switches,
    load: f64,
    /// By pattern and seed.
    rows: Vec<Vec<StorageRow>>,
}

/// All combinations of the settings.
pub fn storage(args: &args::Args) -> Outcome<Report> {
    let mut cells = cells(args);
    for cell in &mut cells {
        for seed in args.seeds() {
            let rows = simulate(&settings(args, cell, seed))?;
            cell.rows.resize_with(rows.len(), Vec::new);
            cell.rows.iter_mut().zip(rows).for_each(|(own, row)| own.push(row));
        }
    }
    let (warm_up_ms, duration_ms) = times(args);
    let mut report = args.report_of_seeds(&format!(
        "27 clients and 27 stores, three copies, as many reads as writes, measured for {duration_ms} ms after \
         {warm_up_ms} ms"
    ));
    cells.iter().for_each(|cell| add_rows(&mut report, cell));
    report
        .table("saved", "What in-switch saves of the time of the better of the others, in percent");
    cells.iter().for_each(|cell| add_saved(&mut report, cell));
    report.note(
        "load: bytes that clients ask to read and write / what the links above their lowest switches carry. \
         half: half the width of the interval of 95 % confidence. drift: mean write of the later half / of the \
         earlier. store, edge: utilisation of links from and to stores, and between their lowest \
         switches and those above.",
    );
    report.note(
        "expected: what the busiest link on a read's way would let in-switch save if it served reads and writes \
         alike at its full rate (processor sharing, 1 / (1 - utilisation)).",
    );
    Ok(report)
}

fn or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default.to_vec() } else { given.to_vec() }
}

fn cells(args: &args::Args) -> Vec<Cell> {
    let own = &args.storage;
    let mut cells = Vec::new();
    for sizes in or(&own.sizes, &[Sizes::WebSearch]) {
        for control in or(&args.dcqcn, &[Control::Paper, Control::Hpcc]) {
            for layout in or(&own.layouts, &[Hosts::ThreePerEdge, Hosts::NinePerEdge]) {
                for groups in or(&own.groups, &[1, 32]) {
                    for switches in or(&own.switches, &[Switches::All]) {
                        for load in or(&own.loads, &[0.4]) {
                            let rows = Vec::new();
                            cells.push(Cell {
                                sizes,
                                control,
                                layout,
                                groups,
                                switches,
                                load,
                                rows,
                            });
                        }
                    }
                }
            }
        }
    }
    cells
}

/// Before it is measured, and then, in milliseconds.
fn times(args: &args::Args) -> (u64, u64) {
    let default = StorageSettings::new(Distribution::WebSearch);
    let own = &args.storage;
    let times = (own.warm_up_ms, own.duration_ms);
    (
        args.part_of(times.0.unwrap_or(default.warm_up_ms)),
        args.part_of(times.1.unwrap_or(default.duration_ms)),
    )
}

fn settings(args: &args::Args, cell: &Cell, seed: u64) -> StorageSettings {
    let distribution = match cell.sizes {
        Sizes::AlibabaStorage => Distribution::AlibabaStorage,
        Sizes::WebSearch => Distribution::WebSearch,
    };
    let layout = match cell.layout {
        Hosts::ThreePerEdge => Layout::ThreePerEdge,
        Hosts::NinePerEdge => Layout::NinePerEdge,
    };
    let above = match cell.switches {
        Switches::All => Device::Copies,
        Switches::Lowest => Device::Plain,
    };
    let default = StorageSettings::new(distribution);
    let mut config = cell.control.apply(default.config);
    config.seed = seed;
    let (warm_up_ms, duration_ms) = times(args);
    StorageSettings {
        config,
        layout,
        above,
        groups_of_store: cell.groups.into(),
        loads: vec![cell.load],
        warm_up_ms,
        duration_ms,
        ..default
    }
}

impl Cell {
    /// A value of each seed, of a pattern.
    fn values(&self, pattern: usize, value: impl Fn(&StorageRow) -> f64) -> Vec<f64> {
        self.rows[pattern].iter().map(value).collect()
    }

    /// What identifies it in tables.
    fn names(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("sizes", json!(name(&self.sizes))),
            ("dcqcn", json!(name(&self.control))),
            ("layout", json!(name(&self.layout))),
            ("groups", json!(self.groups)),
            ("switches", json!(name(&self.switches))),
            ("load", json!(self.load)),
        ]
    }
}

fn add_rows(report: &mut Report, cell: &Cell) {
    for (at, pattern) in Pattern::ALL.iter().enumerate() {
        let estimate = |value: fn(&StorageRow) -> f64| Estimate::of(&cell.values(at, value));
        let mean = |value: fn(&StorageRow) -> f64| number(estimate(value).mean);
        let (read_us, read_half_us) = estimate(|row| row.read_us).cells();
        let (write_us, write_half_us) = estimate(|row| row.write_us).cells();
        let mut row = cell.names();
        row.extend([
            ("pattern", json!(pattern.name())),
            ("read_us", read_us),
            ("read_half_us", read_half_us),
            ("read_99_us", mean(|row| row.read_99_us)),
            ("write_us", write_us),
            ("write_half_us", write_half_us),
            ("drift", mean(|row| row.write_drift)),
            ("store_up", mean(|row| row.links.store_up)),
            ("edge_up", mean(|row| row.links.edge_up)),
            ("edge_down", mean(|row| row.links.edge_down)),
            ("store_down", mean(|row| row.links.store_down)),
            ("reads", mean(|row| row.reads as f64)),
        ]);
        report.row(row);
    }
}

fn add_saved(report: &mut Report, cell: &Cell) {
    let estimate = |value: fn(&StorageRow) -> f64| {
        let others = [1, 2].map(|pattern| cell.values(pattern, value));
        saved(&cell.values(0, value), &others)
    };
    let (read, read_half) = estimate(|row| row.read_us).cells();
    let (write, write_half) = estimate(|row| row.write_us).cells();
    let expected = estimate(|row| 1.0 / (1.0 - row.links.store_up.max(row.links.edge_up)));
    let mut row = cell.names();
    row.extend([
        ("read", read),
        ("read_half", read_half),
        ("write", write),
        ("write_half", write_half),
        ("expected", number(expected.mean)),
    ]);
    report.row(row);
}
