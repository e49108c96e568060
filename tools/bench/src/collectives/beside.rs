//! rdmc beside its peers: turns with every number of members, and tables.

use std::time::{Duration, Instant};

use rdmc::Fabric;
use serde_json::{Value, json};

use super::{
    args::Args,
    cell::{Cell, Operation},
    contender::{Contender, TeamOptions, Tools},
    contest::{Entry, Turns, rounds},
    mpi::Mpi,
    site::with_site,
    sizes::column,
    times::Statistics,
};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Cell as TableCell, Report, number},
};

/// What was measured with so many members.
struct Group {
    members: u32,
    entries: Vec<Entry>,
}

/// A figure of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum View {
    BroadcastAverage,
    BroadcastLeaf,
    AllReduceAverage,
}

/// A program over one network, with all its settings.
struct Program<'a> {
    name: &'static str,
    network: String,
    is_peer: bool,
    entries: Vec<&'a Entry>,
}

/// Everything that takes part: rdmc over each network, send/receive, and the peers with each of their settings.
fn field(args: &Args) -> Vec<Contender> {
    let team = |fabric: &Fabric| TeamOptions {
        fabric: fabric.clone(),
        degree: args.degree,
        slot_bytes: None,
    };
    let mut all: Vec<Contender> =
        args.fabrics.iter().map(|fabric| Contender::Team(team(fabric))).collect();
    all.push(Contender::TwoSided);
    all.extend(["default", "bcube"].map(|algorithm| Contender::Gloo { algorithm }));
    let networks: &[bool] = if args.lab { &[true] } else { &[true, false] };
    for &over_tcp in networks {
        for mpi in Mpi::EACH {
            let settings = mpi.tunings(over_tcp).into_iter();
            all.extend(settings.map(|tuning| Contender::Mpi { mpi, tuning, over_tcp }));
        }
    }
    all.retain(|contender| {
        args.only.is_empty() || args.only.iter().any(|name| name == contender.key())
    });
    all
}

/// Measures, and adds tables.
pub fn run(
    args: &Args,
    tools: &mut Tools,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let cells: Vec<Cell> =
        Operation::ALL.iter().flat_map(|&operation| Cell::of(operation, &args.bytes)).collect();
    let mut groups = Vec::new();
    let (start, count) = (Instant::now(), args.members.len() as u32);
    for (index, &members) in (1..).zip(&args.members) {
        // Numbers of members have equal parts of the time, and what is left of those before.
        let until = start + Duration::from_secs(60 * args.minutes) * index / count;
        let turns = Turns { count: args.turns, until };
        let mut entries: Vec<Entry> =
            field(args).into_iter().map(|contender| Entry::new(contender, &cells)).collect();
        with_site(args.lab, members, |site| {
            rounds(&mut entries, site, tools, &args.rule(), turns, interrupt)
        })?;
        groups.push(Group { members, entries });
    }
    add_times(report, &groups, &args.bytes);
    add_ratios(report, &groups, &args.bytes);
    add_choices(report, &groups, &args.bytes);
    add_missing(report, &groups);
    add_all(report, &groups);
    Ok(())
}

impl View {
    const ALL: [Self; 3] = [Self::BroadcastAverage, Self::BroadcastLeaf, Self::AllReduceAverage];
    /// Those that do not depend on who leaves a barrier first.
    const COMPARED: [Self; 2] = [Self::BroadcastLeaf, Self::AllReduceAverage];

    fn name(self) -> &'static str {
        match self {
            Self::BroadcastAverage => "broadcast, average",
            Self::BroadcastLeaf => "broadcast, deepest leaf",
            Self::AllReduceAverage => "allreduce, average",
        }
    }

    fn cell(self, bytes: u64) -> Cell {
        let operation = match self {
            Self::BroadcastAverage | Self::BroadcastLeaf => Operation::Broadcast,
            Self::AllReduceAverage => Operation::AllReduce,
        };
        Cell { operation, bytes }
    }

    fn us(self, found: &Statistics) -> f64 {
        match self {
            Self::BroadcastLeaf => found.leaf_us,
            Self::BroadcastAverage | Self::AllReduceAverage => found.average_us,
        }
    }
}

impl Group {
    /// In the order in which they take part.
    fn programs(&self) -> Vec<Program<'_>> {
        let mut programs: Vec<Program> = Vec::new();
        for entry in &self.entries {
            let (name, network) = (entry.contender.name(), entry.contender.network());
            let same = |program: &&mut Program| program.name == name && program.network == network;
            match programs.iter_mut().find(same) {
                Some(program) => program.entries.push(entry),
                None => {
                    let is_peer = entry.contender.is_peer();
                    programs.push(Program { name, network, is_peer, entries: vec![entry] });
                }
            }
        }
        programs
    }
}

impl Program<'_> {
    /// The time in us with its first settings, the default.
    fn default(&self, view: View, bytes: u64) -> Option<f64> {
        self.entries.first()?.result(view.cell(bytes)).map(|found| view.us(&found))
    }

    /// The time with the settings that are fastest for this length, and these settings.
    fn best(&self, view: View, bytes: u64) -> Option<(f64, String)> {
        let time = |entry: &Entry| Some(view.us(&entry.result(view.cell(bytes))?));
        let times = self.entries.iter().filter_map(|entry| Some((time(entry)?, entry)));
        let least = times.min_by(|(one, _), (other, _)| one.total_cmp(other));
        least.map(|(us, entry)| (us, entry.contender.settings()))
    }

    fn has_results(&self) -> bool {
        self.entries.iter().any(|entry| !entry.results().is_empty())
    }
}

/// A row of figures by length.
fn row(
    (view, members): (View, u32),
    program: &Program,
    settings: &str,
    lengths: &[u64],
    figure: impl Fn(u64) -> Value,
) -> Vec<TableCell> {
    let mut row = vec![
        ("operation", json!(view.name())),
        ("members", json!(members)),
        ("network", json!(program.network)),
        ("program", json!(program.name)),
        ("settings", json!(settings)),
    ];
    row.extend(lengths.iter().map(|&bytes| (column(bytes), figure(bytes))));
    row
}

/// Calls `each` for every view, group and program that has results.
fn each_program<'a>(
    views: &[View],
    groups: &'a [Group],
    mut each: impl FnMut(View, u32, &Program<'a>),
) {
    for &view in views {
        for group in groups {
            for program in group.programs().iter().filter(|program| program.has_results()) {
                each(view, group.members, program);
            }
        }
    }
}

fn add_times(report: &mut Report, groups: &[Group], lengths: &[u64]) {
    let us = |found: Option<f64>| found.map_or(Value::Null, number);
    each_program(&View::ALL, groups, |view, members, program| {
        let place = (view, members);
        let default = |bytes| us(program.default(view, bytes));
        report.row(row(place, program, "default", lengths, default));
        if program.entries.len() > 1 {
            let best = |bytes| us(program.best(view, bytes).map(|(us, _)| us));
            report.row(row(place, program, "best", lengths, best));
        }
    });
}

/// Nothing if there are no rows.
fn add_table(
    report: &mut Report,
    name: &'static str,
    title: &'static str,
    rows: Vec<Vec<TableCell>>,
) {
    if !rows.is_empty() {
        report.table(name, title);
        rows.into_iter().for_each(|row| report.row(row));
    }
}

fn add_ratios(report: &mut Report, groups: &[Group], lengths: &[u64]) {
    let mut rows = Vec::new();
    for view in View::COMPARED {
        for group in groups {
            let programs = group.programs();
            for own in programs.iter().filter(|program| program.name == "rdmc") {
                let ratio = |bytes| {
                    let fastest = fastest_peer(&programs, &own.network, view, bytes);
                    let ratio = own.default(view, bytes).zip(fastest);
                    ratio.map_or(Value::Null, |(own, other)| number(own / other))
                };
                if lengths.iter().any(|&bytes| !ratio(bytes).is_null()) {
                    rows.push(row((view, group.members), own, "default", lengths, ratio));
                }
            }
        }
    }
    let title = "rdmc's time in parts of the fastest peer's over the same network, with its fastest settings:";
    add_table(report, "ratios", title, rows);
}

/// The time of the fastest peer over a network.
fn fastest_peer(programs: &[Program], network: &str, view: View, bytes: u64) -> Option<f64> {
    let peers = programs.iter().filter(|program| program.is_peer && program.network == network);
    peers.filter_map(|peer| Some(peer.best(view, bytes)?.0)).min_by(f64::total_cmp)
}

fn add_choices(report: &mut Report, groups: &[Group], lengths: &[u64]) {
    let mut rows = Vec::new();
    each_program(&View::COMPARED, groups, |view, members, program| {
        if program.entries.len() > 1 {
            let name = |bytes| json!(program.best(view, bytes).map(|(_, settings)| settings));
            rows.push(row((view, members), program, "best", lengths, name));
        }
    });
    let title = "The fastest settings, of the broadcast / of the allreduce:";
    add_table(report, "fastest_settings", title, rows);
}

fn add_missing(report: &mut Report, groups: &[Group]) {
    let of_group = |group: &Group| -> Vec<Vec<TableCell>> {
        let entries = group.entries.iter().filter(|entry| entry.trouble.is_some());
        let row = |entry: &Entry| {
            vec![
                ("members", json!(group.members)),
                ("network", json!(entry.contender.network())),
                ("program", json!(entry.contender.name())),
                ("settings", json!(entry.contender.settings())),
                ("reason", json!(entry.trouble)),
            ]
        };
        entries.map(row).collect()
    };
    let rows = groups.iter().flat_map(of_group).collect();
    add_table(report, "missing", "What has no figures, or lost its later turns:", rows);
}

fn add_all(report: &mut Report, groups: &[Group]) {
    report.data("all");
    for group in groups {
        for entry in &group.entries {
            for (cell, found) in entry.results() {
                report.row([
                    ("operation", json!(cell.operation.name())),
                    ("members", json!(group.members)),
                    ("network", json!(entry.contender.network())),
                    ("program", json!(entry.contender.name())),
                    ("settings", json!(entry.contender.settings())),
                    ("bytes", json!(cell.bytes)),
                    ("average_us", number(found.average_us)),
                    ("min_us", number(found.min_us)),
                    ("max_us", number(found.max_us)),
                    ("p50_us", number(found.p50_us)),
                    ("p99_us", number(found.p99_us)),
                    ("leaf_us", number(found.leaf_us)),
                    ("repeats", json!(found.repeats)),
                    ("turns", json!(entry.turns())),
                ]);
            }
        }
    }
}
