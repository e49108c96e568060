//! rdmc beside its peers: turns with every number of members.

use std::time::{Duration, Instant};

use rdmc::Fabric;
use serde_json::json;

use super::{
    args::Args,
    barrier::Barrier,
    cell::{Cell, Operation},
    contender::{Contender, TeamOptions, Tools},
    contest::{Entry, rounds},
    mpi,
    site::with_site,
};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Cell as TableCell, Report, number},
};

/// Everything that takes part: rdmc over each network, send/receive, and the peers with each of their settings.
fn field(args: &Args) -> Vec<Contender> {
    let team = |fabric: &Fabric, through_sockets| {
        let (fabric, degree) = (fabric.clone(), args.degree);
        Contender::Team(TeamOptions { fabric, through_sockets, degree, slot_bytes: None })
    };
    let mut all: Vec<Contender> =
        args.fabrics.iter().map(|fabric| team(fabric, *fabric == Fabric::Tcp)).collect();
    if !args.lab && args.fabrics.contains(&Fabric::Tcp) {
        // As teams over TCP do by default on one machine.
        all.push(team(&Fabric::Tcp, false));
    }
    all.push(Contender::TwoSided);
    if !args.lab && args.barrier == Barrier::Shared {
        all.push(Contender::BareMemory);
    }
    all.extend(["default", "bcube"].map(|algorithm| Contender::Gloo { algorithm }));
    let networks: &[bool] = if args.lab { &[true] } else { &[true, false] };
    for &over_tcp in networks {
        for mpi in &mpi::ALL {
            all.extend(mpi.tunings(over_tcp).map(|tuning| Contender::Mpi {
                mpi,
                tuning,
                over_tcp,
            }));
        }
    }
    all.retain(|contender| {
        args.only.is_empty() || args.only.iter().any(|name| name == contender.key())
    });
    all
}

/// Measures, and adds a row for each program, settings and cell, and a table of programs that failed.
pub fn run(
    args: &Args,
    tools: &mut Tools,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let cells: Vec<Cell> =
        Operation::ALL.iter().flat_map(|&operation| Cell::of(operation, &args.bytes)).collect();
    let mut missing: Vec<[TableCell; 5]> = Vec::new();
    let (start, count) = (Instant::now(), args.members.len() as u32);
    for (index, &members) in (1..).zip(&args.members) {
        // Numbers of members have equal parts of the time, and what is left of those before.
        let until = start + Duration::from_secs(60 * args.minutes) * index / count;
        let rules = args.rules(until);
        let mut entries: Vec<Entry> =
            field(args).into_iter().map(|contender| Entry::new(contender, &cells)).collect();
        with_site(args.lab, members, |site| rounds(&mut entries, site, tools, &rules, interrupt))?;
        for entry in &entries {
            add(report, members, entry);
            missing.extend(entry.trouble.as_ref().map(|reason| {
                let [members, network, program, settings] = head(members, entry);
                [members, network, program, settings, ("reason", json!(reason))]
            }));
        }
    }
    if !missing.is_empty() {
        report.table("missing", "Programs without results, or without their later turns:");
        missing.into_iter().for_each(|row| report.row(row));
    }
    Ok(())
}

fn head(members: u32, entry: &Entry) -> [TableCell; 4] {
    [
        ("members", json!(members)),
        ("network", json!(entry.contender.network())),
        ("program", json!(entry.contender.name())),
        ("settings", json!(entry.contender.settings())),
    ]
}

fn add(report: &mut Report, members: u32, entry: &Entry) {
    for (cell, found) in entry.results() {
        let times = [
            ("operation", json!(cell.operation.name())),
            ("bytes", json!(cell.bytes)),
            ("average_us", number(found.average_us)),
            ("min_us", number(found.min_us)),
            ("max_us", number(found.max_us)),
            ("p50_us", number(found.p50_us)),
            ("p99_us", number(found.p99_us)),
            ("leaf_us", number(found.leaf_us)),
            ("repeats", json!(found.repeats)),
            ("turns", json!(entry.turns())),
        ];
        report.row(head(members, entry).into_iter().chain(times));
    }
}
