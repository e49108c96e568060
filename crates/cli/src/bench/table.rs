//! The report as text.

use std::io::{self, Write};

use measure::CollectivePlan;
use plan::size;

use super::report::{Document, Kind, Row};

pub fn write(document: &Document, out: &mut impl Write) -> io::Result<()> {
    let settings = &document.settings;
    if let Some(plan) = &settings.collective {
        return write_collective(document, plan, out);
    }
    writeln!(
        out,
        "{}, blocks of {}, window {}, {}, protection {}; medians, and from least to most",
        settings.algorithm,
        settings.block_bytes.map_or_else(|| "auto".into(), size::show),
        settings.window.map_or_else(|| "auto".into(), |blocks| blocks.to_string()),
        settings.completion,
        settings.protection,
    )?;
    write_limit(document, out)?;
    let hosts = settings.hosts.iter().map(String::len).max().unwrap_or(0).max("4 hosts".len());
    for run in &document.runs {
        let Some(fabric) = &run.fabric else { continue };
        writeln!(out, "\nfabric {fabric}")?;
        for row in &run.measurements {
            let kind = match row.kind {
                Kind::Latency => "latency",
                Kind::Unicast => "unicast",
                Kind::Multicast => "multicast",
            };
            let to = row.host.clone().unwrap_or_else(|| match row.members - 1 {
                1 => "1 host".into(),
                hosts => format!("{hosts} hosts"),
            });
            let bytes = size::show(row.bytes);
            writeln!(out, "  {kind:<9}  {to:<hosts$}  {bytes:>8}  {}", values(row))?;
        }
    }
    Ok(())
}

fn write_collective(
    document: &Document,
    plan: &CollectivePlan,
    out: &mut impl Write,
) -> io::Result<()> {
    let settings = &document.settings;
    let degree = plan.degree.map_or_else(String::new, |degree| format!(" of degree {degree}"));
    writeln!(
        out,
        "{}{degree}, {} members, protection {}; microseconds",
        plan.operation,
        settings.hosts.len() + 1,
        settings.protection,
    )?;
    write_limit(document, out)?;
    for run in &document.runs {
        let Some(fabric) = &run.fabric else { continue };
        writeln!(out, "\nfabric {fabric}")?;
        let head = ["avg", "min", "max", "p50", "p99"].map(|name| format!("{name:>10}")).concat();
        writeln!(out, "  {:>8}{head}  calls", "length")?;
        for row in &run.collectives {
            let times = [row.average_us, row.minimum_us, row.maximum_us, row.p50_us, row.p99_us];
            let times = times.map(|time| format!("{time:>10.1}")).concat();
            writeln!(out, "  {:>8}{times}  {}", size::show(row.bytes), row.repeats)?;
        }
    }
    Ok(())
}

fn write_limit(document: &Document, out: &mut impl Write) -> io::Result<()> {
    match document.settings.bwlimit_bits_per_second {
        Some(limit) => writeln!(out, "each host limited to {}", size::show_rate(limit)),
        None => Ok(()),
    }
}

fn values(row: &Row) -> String {
    match row.bytes_per_second {
        Some(spread) => format!(
            "{:>11}  ({} to {})",
            rate(spread.median),
            rate(spread.least),
            rate(spread.most),
        ),
        None => {
            let microseconds = |seconds: f64| seconds * 1e6;
            let spread = row.seconds;
            format!(
                "{:>8.1} us  ({:.1} to {:.1})",
                microseconds(spread.median),
                microseconds(spread.least),
                microseconds(spread.most),
            )
        }
    }
}

fn rate(bytes_per_second: f64) -> String {
    size::show_rate((bytes_per_second * 8.0) as u64)
}
