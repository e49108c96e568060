//! The tree and the loads as text.

use std::io::{self, Write};

use super::report::{Copy, Link, Report};

/// The maximum number of names in a line; further names are counted.
const NAMES_MAX: usize = 12;
/// The maximum number of links that are shown; further links are counted.
const LINKS_MAX: usize = 20;

/// Writes the switches that copy, then the loads of links.
pub fn write(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    write_switches(report, out)?;
    write_totals(report, out)?;
    write_links(report, out)
}

fn write_switches(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "in-switch: {} to {} of {}; {} the group",
        report.sender,
        report.receivers.len(),
        count(report.hosts - 1, "other host"),
        match report.switches.len() {
            1 => "1 switch knows".to_owned(),
            switches => format!("{switches} switches know"),
        },
    )?;
    for (switches, copies) in alike(report) {
        let merges =
            if switches == [report.merging_switch] { ", which merges answers" } else { "" };
        writeln!(out, "{}{merges}", list(&switches, ", "))?;
        write_copies(copies, out)?;
    }
    writeln!(out)
}

/// One line for each copy to another switch, and one for all copies to receivers.
fn write_copies(copies: &[Copy<'_>], out: &mut impl Write) -> io::Result<()> {
    let (there, on): (Vec<_>, Vec<_>) = copies.iter().partition(|copy| copy.next == copy.receivers);
    for copy in on {
        let rewritten = if copy.rewritten { "rewritten " } else { "" };
        let (next, receivers) = (list(&copy.next, " or "), list(&copy.receivers, ", "));
        writeln!(out, "  → {next}: {rewritten}for {receivers}")?;
    }
    let there: Vec<&str> = there.iter().flat_map(|copy| copy.receivers.clone()).collect();
    match there[..] {
        [] => Ok(()),
        [one] => writeln!(out, "  → {one}: rewritten for it"),
        _ => writeln!(out, "  → {}: rewritten for each", list(&there, ", ")),
    }
}

/// Groups switches with the same copies, such as those of one layer; the first switch is never grouped.
fn alike<'r>(report: &'r Report<'_>) -> Vec<(Vec<&'r str>, &'r [Copy<'r>])> {
    let mut all: Vec<(Vec<&str>, &[Copy<'_>])> = Vec::new();
    for switch in &report.switches {
        let known = all.iter_mut().skip(1).find(|(_, copies)| *copies == switch.copies);
        match known {
            Some((names, _)) => names.push(switch.name),
            None => all.push((vec![switch.name], &switch.copies)),
        }
    }
    all
}

fn write_totals(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let totals = report.totals.all();
    let rows = [
        ("the sender's uplink", totals.map(|total| total.sender_uplink)),
        ("the busiest link", totals.map(|total| total.busiest_link)),
        ("all links", totals.map(|total| total.all_links)),
    ];
    let rows = rows.map(|(name, loads)| (name.to_owned(), loads));
    write_table("a message crosses", &rows, out)?;
    writeln!(out)
}

fn write_links(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let row = |link: &Link<'_>| {
        (format!("{} → {}", link.source, link.target), link.load.all().map(|&load| load))
    };
    let shown = report.links.len().min(LINKS_MAX);
    let rows: Vec<_> = report.links[..shown].iter().map(row).collect();
    write_table("link", &rows, out)?;
    let hidden = &report.links[shown..];
    if let Some(most) = hidden.first() {
        let links = count(hidden.len(), "more link");
        writeln!(out, "and {links} with at most {}; --json has all", show(most.load.most()))?;
    }
    Ok(())
}

fn write_table(title: &str, rows: &[(String, [f64; 3])], out: &mut impl Write) -> io::Result<()> {
    let lengths = rows.iter().map(|(name, _)| name.chars().count());
    let width = lengths.chain([title.len()]).max().unwrap_or(0);
    writeln!(out, "{title:<width$}  {:>9}  {:>9}  {:>9}", "in-switch", "fanout", "chain")?;
    for (name, [in_switch, fanout, chain]) in rows {
        let [in_switch, fanout, chain] = [in_switch, fanout, chain].map(|&load| show(load));
        writeln!(out, "{name:<width$}  {in_switch:>9}  {fanout:>9}  {chain:>9}")?;
    }
    Ok(())
}

fn list(names: &[&str], separator: &str) -> String {
    if names.len() <= NAMES_MAX {
        return names.join(separator);
    }
    let hidden = names.len() - NAMES_MAX;
    format!("{} and {hidden} more", names[..NAMES_MAX].join(separator))
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A load; `-` for 0. Equally good paths give fractions.
fn show(load: f64) -> String {
    match load {
        0.0 => "-".to_owned(),
        load if load.fract() == 0.0 => format!("{load}"),
        load if load < 0.005 => "<0.01".to_owned(),
        load => format!("{load:.2}"),
    }
}
