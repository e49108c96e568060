//! Racks whose uplinks carry less than their hosts: what each algorithm sends through the uplinks,
//! and what that costs (DSN 2018 section 4.3, "Hybrid Algorithms").

use std::cell::Cell;

use clap::ValueEnum;
use lab::{Lab, LabSettings, Link, Rate, UplinkBytes};
use plan::size;
use rdmc::Algorithm;
use serde_json::{Value, json};

use crate::{
    interrupt::Interrupt,
    load::{Copies, Load, busiest},
    member::{Equipment, Job},
    member_processes::{Measured, MemberProcesses},
    outcome::Outcome,
    report::{Output, Report, median, name, number},
    shaped::usual_rate,
    sweep::{algorithms, alternate},
};

/// The part of a full packet on an uplink that is payload.
const PAYLOAD_PART: f64 = 1448.0 / 1514.0;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included: one member on each host
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// Racks of equal size, but for one host
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    racks: u32,
    /// Rate of each host's link. Unless given: 4000 Mbit/s / members, at most 1000
    #[arg(long)]
    rate: Option<Rate>,
    /// How many times more a rack's hosts can send than its uplink carries
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4", value_parser = oversubscription)]
    oversubscription: Vec<f64>,
    /// How members are laid out
    #[arg(long, value_delimiter = ',', default_value = "packed,scattered")]
    layouts: Vec<Layout>,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = algorithms(),
          default_value = "binomial-pipeline,chain,chain-of-racks,nested-pipelines,racks-chain,racks-pipeline")]
    algorithms: Vec<Algorithm>,
    /// Length of the message
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "32MiB")]
    bytes: u64,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

/// Which ranks share a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// Ranks follow the racks: neighbours share one
    Packed,
    /// Ranks go round the racks: neighbours are in different ones
    Scattered,
}

impl Layout {
    /// The host of each rank.
    fn hosts(self, settings: &LabSettings) -> Vec<u32> {
        let mut hosts: Vec<u32> = (0..settings.hosts).collect();
        if self == Self::Scattered {
            let rack_of = |host: u32| settings.rack_of(host);
            let place_in_rack =
                |host: u32| (0..host).filter(|&other| rack_of(other) == rack_of(host)).count();
            hosts.sort_by_key(|&host| (place_in_rack(host), rack_of(host)));
        }
        hosts
    }
}

/// Reads how many times uplinks are oversubscribed.
pub fn oversubscription(text: &str) -> Result<f64, String> {
    let times: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
    if (0.1..=100.0).contains(&times) { Ok(times) } else { Err("use 0.1 to 100".into()) }
}

/// Hosts in racks, each of which can send `oversubscription` times what its uplink carries.
pub fn settings(
    members: u32,
    racks: u32,
    rate: Option<Rate>,
    oversubscription: f64,
) -> LabSettings {
    let rate = rate.unwrap_or(usual_rate(members));
    let link = Link::of_rate(rate);
    let hosts_of_rack = f64::from(members.div_ceil(racks));
    let uplink_mbit = (rate.mbit() * hosts_of_rack / oversubscription).round() as u64;
    let uplink = Some(link.at_rate(Rate::from_mbit(uplink_mbit)));
    LabSettings { racks, uplink, ..LabSettings::new(members, link) }
}

/// What crossed an uplink between two readings.
fn crossed(before: UplinkBytes, after: UplinkBytes, message_bytes: u64) -> Copies {
    let copies = |before: u64, after: u64| {
        after.saturating_sub(before) as f64 * PAYLOAD_PART / message_bytes as f64
    };
    Copies {
        leaving: copies(before.leaving, after.leaving),
        entering: copies(before.entering, after.entering),
    }
}

fn listed(copies: &[Copies], one: impl Fn(&Copies) -> f64) -> Value {
    copies.iter().map(|copies| json!((one(copies) * 100.0).round() / 100.0)).collect()
}

/// One way to lay members out, and its processes.
struct Place {
    layout: Layout,
    racks: Vec<u32>,
    processes: MemberProcesses,
}

/// One run of one algorithm.
struct Run {
    measured: Measured,
    copies: Vec<Copies>,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "{} to {} members in {} racks, blocks of {}, one process per network namespace; median of {}",
        size::show(args.bytes),
        args.members,
        args.racks,
        size::show(args.block),
        args.repeats
    );
    let mut report = Report::new("racks", what);
    for &oversubscription in &args.oversubscription {
        measure(args, oversubscription, &interrupt, &mut report)?;
    }
    report.note(
        "Copies: payload that crossed an uplink (bytes of its frames x 1448 / 1514, acknowledgements \
         with it) / length, by rack, and of the busiest uplink in its busier direction beside what \
         the schedule says. Limit of rate: what the busiest uplink or the busiest member's port \
         allows by the schedule.",
    );
    report.print(&args.output);
    Ok(())
}

/// Adds a row for each layout and algorithm.
fn measure(
    args: &Args,
    oversubscription: f64,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let settings = settings(args.members, args.racks, args.rate, oversubscription);
    let rate_mbit = settings.link.rate.mbit();
    let uplink_mbit = settings.uplink.ok_or("racks have uplinks")?.rate.mbit();
    report.note(format!(
        "Oversubscribed {oversubscription}:1: links of {rate_mbit} Mbit/s, uplinks of {uplink_mbit} Mbit/s."
    ));
    let lab = Lab::create(&settings)?;
    let mut places = Vec::new();
    for &layout in &args.layouts {
        places.push(Place::new(layout, &lab, interrupt)?);
    }
    let jobs: Vec<Job> = args
        .algorithms
        .iter()
        .map(|&algorithm| Job::one(algorithm, args.block, args.bytes))
        .collect();
    let results = alternate(places.len() * jobs.len(), args.repeats, "racks", |index| {
        places[index / jobs.len()].run(&lab, &jobs[index % jobs.len()])
    })?;
    for (index, runs) in results.iter().enumerate() {
        let (place, job) = (&places[index / jobs.len()], &jobs[index % jobs.len()]);
        let schedule = job.schedule_in(&place.racks)?;
        let load = Load::of(&schedule, &place.racks, job.blocks());
        let time_s = median(runs.iter().map(|run| run.measured.seconds).collect());
        let of_rate = args.bytes as f64 * 8.0 / 1e6 / time_s / rate_mbit;
        let limit = 1.0 / load.least_time(uplink_mbit / rate_mbit);
        let copies = &runs[0].copies;
        report.row([
            ("oversubscribed", json!(format!("{oversubscription}:1"))),
            ("layout", json!(name(&place.layout))),
            ("algorithm", json!(job.algorithm)),
            ("time_s", number(time_s)),
            ("of_rate", number(of_rate)),
            ("limit_of_rate", number(limit)),
            ("busiest_uplink", number(busiest(copies))),
            ("scheduled", number(busiest(&load.uplinks))),
            ("out_of_racks", listed(copies, |copies| copies.leaving)),
            ("into_racks", listed(copies, |copies| copies.entering)),
            ("skew_s", number(median(runs.iter().map(|run| run.measured.skew_seconds).collect()))),
        ]);
    }
    Ok(())
}

impl Place {
    fn new(layout: Layout, lab: &Lab, interrupt: &Interrupt) -> Outcome<Self> {
        let order = layout.hosts(lab.settings());
        let all = lab.hosts();
        let hosts: Vec<_> = order.iter().map(|&host| all[host as usize].clone()).collect();
        let racks: Vec<u32> = order.iter().map(|&host| lab.rack_of(host)).collect();
        let equipment = Equipment { racks: racks.clone(), ..Equipment::default() };
        Ok(Self {
            layout,
            racks,
            processes: MemberProcesses::start_with(&hosts, interrupt, &equipment)?,
        })
    }

    fn run(&mut self, lab: &Lab, job: &Job) -> Outcome<Run> {
        let before = Cell::new(Vec::new());
        let all = self.processes.run_after(job, || {
            before.set(lab.uplink_bytes()?);
            Ok(())
        })?;
        let readings = before.into_inner().into_iter().zip(lab.uplink_bytes()?);
        let copies = readings.map(|(before, after)| crossed(before, after, job.message_bytes));
        Ok(Run { measured: Measured::of(&all)?, copies: copies.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_racks_or_go_round_them() {
        let settings = settings(8, 4, None, 4.0);
        assert_eq!(Layout::Packed.hosts(&settings), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Layout::Scattered.hosts(&settings), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn four_hosts_with_the_uplink_of_one_are_oversubscribed_4_to_1() {
        let settings = settings(16, 4, Some(Rate::from_mbit(250)), 4.0);
        assert_eq!(settings.uplink.unwrap().rate, settings.link.rate);
        settings.check().unwrap();
    }
}
