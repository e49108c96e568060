//! `rdmc-lab check`: what the links carry, measured with iperf3.

mod iperf;

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::atomic::AtomicBool,
};

use clap::ValueEnum;
use lab::{Error, Lab, LabSettings};
use serde::Serialize;
use serde_json::json;

use crate::terminal::{Which, check_stop, print, print_json, watch_signals};
use iperf::Servers;

const EXAMPLES: &str = "\
Examples:
  rdmc-lab check
  rdmc-lab check --seconds 5 --tests ring
  rdmc-lab check --json --at-least 0.99

A flow starts a second before it is measured, so that TCP has found its rate. Exit code 1 if one gets less
than --at-least.";

/// Measure the links: one flow, both directions at once, and all hosts at once, against their rates
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// What is measured
    #[arg(long, value_delimiter = ',', default_value = "one,both,ring")]
    tests: Vec<Test>,

    /// How many pairs of neighbours the tests one and both measure, one pair after the other; slow
    /// links come on top
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,

    /// How long each flow is measured
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// The least share of its rate that a flow must get
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = share)]
    at_least: f64,

    /// Print JSON, with every flow
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Test {
    /// One flow at a time
    One,
    /// Two hosts send each other at the same time
    Both,
    /// Each host sends to the next one, all at the same time
    Ring,
}

/// One flow: what it should get and what it got.
#[derive(Clone, Debug, Serialize)]
struct Flow {
    test: Test,
    from: u32,
    to: u32,
    rate_mbit: f64,
    mbit: f64,
    of_rate: f64,
}

impl Flow {
    fn new(settings: &LabSettings, test: Test, [from, to]: [u32; 2], bits_per_s: f64) -> Self {
        let (rate_mbit, mbit) = (settings.rate_between(from, to).mbit(), bits_per_s / 1e6);
        Self { test, from, to, rate_mbit, mbit, of_rate: mbit / rate_mbit }
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let stop = watch_signals()?;
    let lab = Lab::open(&args.which.name)?;
    if lab.settings().hosts < 2 {
        return Err(Error::Usage("a lab of one host has no links to measure".into()));
    }
    let pairs = pairs(lab.settings(), args.pairs);
    let servers = Servers::start(&lab, &stop)?;
    let mut flows = Vec::new();
    for &test in &args.tests {
        flows.extend(measure(&servers, lab.settings(), &pairs, test, args.seconds, &stop)?);
    }
    drop(servers);
    let is_good = flows.iter().all(|flow| flow.of_rate >= args.at_least);
    if args.json {
        print_json(&json!({
            "name": lab.name(),
            "seconds": args.seconds,
            "at_least": args.at_least,
            "good": is_good,
            "flows": flows,
        }))?;
    } else {
        print(&table(args, &flows))?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Some hosts, spread evenly, each with the next one, and slow links; no pair twice.
fn pairs(settings: &LabSettings, count: u32) -> Vec<[u32; 2]> {
    let mut pairs: Vec<[u32; 2]> = Vec::new();
    let slow = settings.slow_links.iter().map(|slow| slow.hosts);
    let step = settings.hosts.div_ceil(count) as usize;
    for [a, b] in ring(settings).step_by(step).chain(slow) {
        if !pairs.contains(&[a, b]) && !pairs.contains(&[b, a]) {
            pairs.push([a, b]);
        }
    }
    pairs
}

fn ring(settings: &LabSettings) -> impl Iterator<Item = [u32; 2]> {
    let hosts = settings.hosts;
    (0..hosts).map(move |host| [host, (host + 1) % hosts])
}

fn measure(
    servers: &Servers,
    settings: &LabSettings,
    pairs: &[[u32; 2]],
    test: Test,
    seconds: u32,
    stop: &AtomicBool,
) -> Result<Vec<Flow>, Error> {
    let flow = |pair, bits_per_s| Flow::new(settings, test, pair, bits_per_s);
    let mut flows = Vec::new();
    if test == Test::Ring {
        let ring: Vec<_> = ring(settings).collect();
        let _ = writeln!(io::stderr(), "ring: {} flows at once", ring.len());
        let got = servers.measure(&ring, false, seconds, stop)?;
        flows.extend(ring.into_iter().zip(got).map(|(pair, got)| flow(pair, got.there)));
        return Ok(flows);
    }
    for &[a, b] in pairs {
        check_stop(stop)?;
        let is_both = test == Test::Both;
        let _ = writeln!(io::stderr(), "{}: {a} and {b}", if is_both { "both" } else { "one" });
        for got in servers.measure(&[[a, b]], is_both, seconds, stop)? {
            flows.push(flow([a, b], got.there));
            flows.extend(got.back.map(|back| flow([b, a], back)));
        }
    }
    Ok(flows)
}

/// A line for each test, and one for each flow that got too little.
fn table(args: &Args, flows: &[Flow]) -> String {
    let mut text =
        format!("{:<6} {:>6} {:>14} {:>14}\n", "test", "flows", "least of rate", "mean of rate");
    for &test in &args.tests {
        let of_rate = flows.iter().filter(|flow| flow.test == test).map(|flow| flow.of_rate);
        let (count, least) = (of_rate.clone().count(), of_rate.clone().fold(f64::NAN, f64::min));
        let mean = of_rate.sum::<f64>() / count as f64;
        let name = format!("{test:?}").to_lowercase();
        text += &format!("{name:<6} {count:>6} {least:>14.3} {mean:>14.3}\n");
    }
    for flow in flows.iter().filter(|flow| flow.of_rate < args.at_least) {
        let name = format!("{:?}", flow.test).to_lowercase();
        text += &format!(
            "{name}: {} to {} got {:.1} of {:.1} Mbit/s ({:.3}, not {})\n",
            flow.from, flow.to, flow.mbit, flow.rate_mbit, flow.of_rate, args.at_least
        );
    }
    if flows.iter().any(|flow| flow.of_rate < args.at_least) {
        // The usual reason: other load on this machine.
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next().unwrap_or("?").to_owned();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        text += &format!("load of this machine now: {load}, on {cores} cores\n");
    }
    text
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::{Link, Rate};

    #[test]
    fn no_pair_is_measured_twice() {
        let mut settings = LabSettings::new(2, Link::of_rate(Rate::from_mbit(10)));
        assert_eq!(pairs(&settings, 8), [[0, 1]]);
        settings.hosts = 4;
        settings.slow_links =
            ["3-1:1mbit", "2-1:1mbit"].iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(pairs(&settings, 8), [[0, 1], [1, 2], [2, 3], [3, 0], [3, 1]]);
        assert_eq!(pairs(&settings, 3), [[0, 1], [2, 3], [3, 1], [2, 1]]);
    }

    #[test]
    fn shares_are_numbers_from_0_to_1() {
        assert!(share("0.95").is_ok() && share("0").is_ok() && share("1").is_ok());
        assert!(share("1.01").is_err() && share("NaN").is_err() && share("x").is_err());
    }
}
