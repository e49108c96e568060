//! Figure 8: reads from a storage system that replicates writes.

use charts::{Axis, Chart, Point};
use mcrdma::plan::Device;
use mcrdma_sim::{
    Distribution, Pattern,
    experiments::{StorageRow, StorageSettings, storage as simulate},
};
use serde_json::json;

use super::args::Args;
use crate::{
    outcome::Outcome,
    report::{Report, number},
};

/// Both workloads, and the first of them with the lowest switches alone.
pub fn storage(args: &Args) -> Outcome<(Report, Chart)> {
    let settings = |distribution, above, patterns: &[Pattern]| {
        let default = StorageSettings::new(distribution);
        let config = args.apply(default.config);
        let duration_ms = args.part_of(default.duration_ms);
        StorageSettings { config, above, patterns: patterns.to_vec(), duration_ms, ..default }
    };
    let alibaba = simulate(&settings(Distribution::AlibabaStorage, Device::Copies, &Pattern::ALL))?;
    let lowest =
        simulate(&settings(Distribution::AlibabaStorage, Device::Plain, &[Pattern::InSwitch]))?;
    let web_search = simulate(&settings(Distribution::WebSearch, Device::Copies, &Pattern::ALL))?;
    let what =
        "27 clients and 27 stores in a fat tree (k = 6), three copies, as many reads as writes";
    let mut report = args.report(what);
    for row in alibaba.iter().chain(&lowest).chain(&web_search) {
        report.row([
            ("sizes", json!(row.distribution.name())),
            ("load", json!(row.load)),
            ("pattern", json!(row.pattern.name())),
            ("switches", json!(if row.full_deployment { "all" } else { "lowest" })),
            ("read_us", number(row.read_us)),
            ("read_99_us", number(row.read_99_us)),
            ("write_us", number(row.write_us)),
            ("reads", json!(row.reads)),
        ]);
    }
    report.note(
        "load: bytes that clients ask to read and write / what their links carry. switches: which of \
         them copy. Requests of the first fifth of the time are not counted.",
    );
    report.note(format!(
            "in-switch against the better of the others: {}; {}; against the lowest switches alone: {}.",
            savings(&alibaba),
            savings(&web_search),
            saved_by_all(&alibaba, &lowest)
        ));
    Ok((report, chart(&alibaba, &lowest, &web_search)))
}

fn percent(less: f64, more: f64) -> String {
    format!("{:+.0} %", (less / more - 1.0) * 100.0)
}

/// How much longer reads take in the switch than by the better of the other ways, at each load.
fn savings(rows: &[StorageRow]) -> String {
    let own = rows.iter().filter(|row| row.pattern == Pattern::InSwitch);
    let words = own.map(|row| {
        let others = rows.iter().filter(|it| it.load == row.load && it.pattern != row.pattern);
        let best = others.map(|it| it.read_us).fold(f64::INFINITY, f64::min);
        format!("{} at {}", percent(row.read_us, best), row.load)
    });
    let name = rows.first().map_or("", |row| row.distribution.name());
    format!("{name} {}", words.collect::<Vec<_>>().join(", "))
}

fn saved_by_all(all: &[StorageRow], lowest: &[StorageRow]) -> String {
    let words = lowest.iter().filter_map(|row| {
        let same = |it: &&StorageRow| it.load == row.load && it.pattern == row.pattern;
        let full = all.iter().find(same)?;
        Some(format!("{} at {}", percent(full.read_us, row.read_us), row.load))
    });
    words.collect::<Vec<_>>().join(", ")
}

fn chart(alibaba: &[StorageRow], lowest: &[StorageRow], web_search: &[StorageRow]) -> Chart {
    let point = |panel: &str, line: &str, row: &StorageRow| {
        (panel.to_owned(), line.to_owned(), Point::new(row.load, row.read_us))
    };
    let by_pattern = |panel, rows: &[StorageRow]| {
        rows.iter().map(|row| point(panel, row.pattern.name(), row)).collect::<Vec<_>>()
    };
    let mut points = by_pattern("Alibaba's storage", alibaba);
    points.extend(lowest.iter().map(|row| point("Alibaba's storage", "lowest switches", row)));
    points.extend(by_pattern("Web search", web_search));
    let (x, y) = (Axis::linear("load"), Axis::linear("µs for a read"));
    Chart::grouped("Reads from a storage system", x, y, points)
}
