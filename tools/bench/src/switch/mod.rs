//! What the data planes of the in-switch multicast cost: packets of a group as fast as one sender
//! sends them, and their copies.

mod args;
mod group;
mod network;
mod planes;

use serde_json::{Value, json};

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Cell, Report, median, name, number},
    sweep::alternate,
};
use args::Plane;
use group::Case;
use network::Network;
use planes::Run;

pub use args::Args;

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let mut report = report(args);
    let mut planes = args.planes.clone();
    planes.retain(|plane| match plane.missing() {
        None => true,
        Some(why) => {
            eprintln!("SKIPPED: {}: {why}", name(plane));
            report.note(format!("Skipped: {}: {why}.", name(plane)));
            false
        }
    });
    let members_max = args.members.iter().max().copied().unwrap_or(1) as usize;
    let network = match planes.iter().any(|&plane| plane != Plane::Logic) {
        true => Some(Network::enter(members_max)?),
        false => None,
    };
    let cases = cases(args, &planes);
    let results = alternate(cases.len(), args.repeats, "switch", |index| {
        interrupt.check()?;
        planes::run(args, &cases[index], network.as_ref())
    })?;
    for (case, runs) in cases.iter().zip(&results) {
        report.row(row(case, runs));
    }
    report.print(&args.output);
    Ok(())
}

fn cases(args: &Args, planes: &[Plane]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &plane in planes {
        for &bytes in &args.bytes {
            let case = |&members: &u32| Case {
                plane,
                members: members as usize,
                payload_bytes: bytes as usize,
            };
            cases.extend(args.members.iter().map(case));
        }
    }
    cases
}

fn report(args: &Args) -> Report {
    let rate = args
        .packets_per_s
        .map_or("as fast as it can".to_owned(), |rate| format!("{rate} packets a second at most"));
    let what = format!(
        "SEND-only packets of one sender, {rate}, for {} s, copied to members behind veth pairs of \
         one network namespace; median of {}",
        args.seconds, args.repeats
    );
    let mut report = Report::new("switch", what);
    report.note(
        "taken: the part of the packets sent that the switch took. replicas: copies that came out at \
         the ports' other ends; Gbit/s are of whole frames. failed: copies that a port did not take; \
         lost: copies that it took and that did not come out; in all repeats.",
    );
    report.note(
        "ns, kernel: time in the program by the kernel's statistics, in runs of their own, the \
         copying of frames and the way to the ports' other ends included. ns, logic and sockets: all of \
         its time. Sender, switch and receiving ends share this host's cores.",
    );
    report
}

fn row(case: &Case, runs: &[Run]) -> impl IntoIterator<Item = Cell> {
    let of = |what: &dyn Fn(&Run) -> f64| median(runs.iter().map(what).collect());
    let whole = |value: f64| if value.is_nan() { Value::Null } else { json!(value.round() as u64) };
    let total = |what: &dyn Fn(&Run) -> u64| -> u64 { runs.iter().map(what).sum() };
    let replicas_per_s = of(&|run| run.carried.arrived as f64 / run.carried.seconds);
    let frame_bits = (case.frame().len() * 8) as f64;
    let if_not = |left_out: &[Plane], value: Value| {
        if left_out.contains(&case.plane) { Value::Null } else { value }
    };
    let if_switched = |value| if_not(&[Plane::Logic, Plane::Sockets], value);
    let if_sent = |value| if_not(&[Plane::Logic], value);
    [
        ("plane", json!(name(&case.plane))),
        ("payload_bytes", json!(case.payload_bytes)),
        ("members", json!(case.members)),
        (
            "sent_per_s",
            if_switched(whole(of(&|run| run.carried.sent as f64 / run.carried.seconds))),
        ),
        (
            "taken",
            if_switched(number(of(&|run| run.carried.requests as f64 / run.carried.sent as f64))),
        ),
        ("replicas_per_s", whole(replicas_per_s)),
        ("gbit_per_s", number(replicas_per_s * frame_bits / 1e9)),
        ("ns_per_packet", whole(of(&|run| run.ns_per_packet))),
        ("ns_per_copy", whole(of(&|run| run.ns_per_packet / case.members as f64))),
        ("copies_failed", if_sent(json!(total(&|run| run.carried.copies_failed)))),
        (
            "copies_lost",
            if_sent(json!(total(&|run| run.carried.copies.saturating_sub(run.carried.arrived)))),
        ),
    ]
}
