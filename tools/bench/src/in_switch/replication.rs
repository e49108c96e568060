//! Figures 4 and 7: what each way of replication costs.

use mcrdma_sim::{
    Pattern,
    experiments::{
        LossRow, LossSettings, Lossy, SingleSettings, loss as simulate_loss,
        single_client as simulate_single,
    },
};
use plan::size;
use serde_json::json;

use super::args::Args;
use crate::{
    outcome::Outcome,
    report::{Report, number},
};

/// Figure 4.
pub fn single_client(args: &Args) -> Outcome<Report> {
    let default = SingleSettings::default();
    let requests = args.part_of(default.requests as u64) as usize;
    let settings = SingleSettings { config: args.config(), requests, ..default };
    let rows = simulate_single(&settings)?;
    let what = format!(
        "one client, replicas at two others, {} requests at once, links of 100 Gbit/s",
        settings.depth
    );
    let mut report = args.report(&what);
    for row in &rows {
        report.row([
            ("request", json!(size::show(row.request_bytes.into()))),
            ("pattern", json!(row.pattern.name())),
            ("latency_us", number(row.latency_us)),
            ("sender_gbit_per_s", number(row.sender_gbit_per_s)),
            ("sent_per_byte", number(row.sent_per_byte)),
            ("gbit_per_s", number(row.throughput_gbit_per_s)),
        ]);
    }
    report.note(
        "sender: what its link carries, with all headers. sent per byte: the same / requests' bytes.",
    );
    Ok(report)
}

/// Figure 7.
pub fn loss(args: &Args) -> Outcome<Report> {
    let default = LossSettings::default();
    let duration_ms = args.part_of(default.duration_ms);
    let settings = LossSettings { config: args.config(), duration_ms, ..default };
    let of = |lossy: Lossy| simulate_loss(&LossSettings { lossy, ..settings.clone() });
    let rows: [Vec<LossRow>; 3] = [of(Lossy::Far)?, of(Lossy::Near)?, of(Lossy::Both)?];
    let what = format!(
        "packets lost on the links of the farther, the nearer or both of two receivers, requests of {}, {} at once, \
         {} ms",
        size::show(settings.request_bytes.into()),
        settings.depth,
        settings.duration_ms
    );
    let mut report = args.report(&what);
    for (lossy, rows) in Lossy::ALL.iter().zip(&rows) {
        for row in rows {
            let loss = if row.loss > 0.0 { format!("1/{:.0}", 1.0 / row.loss) } else { "0".into() };
            report.row([
                ("lossy", json!(lossy.name())),
                ("loss", json!(loss)),
                ("pattern", json!(row.pattern.name())),
                ("gbit_per_s", number(row.throughput_gbit_per_s)),
                ("latency_us", number(row.latency_us)),
                ("latency_99_us", number(row.latency_99_us)),
                ("lost", json!(row.lost)),
                ("repeated", json!(row.repeated)),
            ]);
        }
        let kept = Pattern::ALL.map(|pattern| kept(rows, pattern)).join(", ");
        report.note(format!("{}: at 1/1024 of the throughput is left: {kept}.", lossy.name()));
    }
    Ok(report)
}

fn kept(rows: &[LossRow], pattern: Pattern) -> String {
    let own: Vec<&LossRow> = rows.iter().filter(|row| row.pattern == pattern).collect();
    let ends = own.first().zip(own.last());
    let kept = ends
        .map_or(f64::NAN, |(first, last)| last.throughput_gbit_per_s / first.throughput_gbit_per_s);
    format!("{} {:.1} %", pattern.name(), kept * 100.0)
}
