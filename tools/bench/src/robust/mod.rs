//! What one slow link, one slow member or late programs cost (DSN 2018 section 4.5).

mod links;
mod simulated;
mod slack;

use clap::ValueEnum;
use lab::Rate;
use plan::size;
use rdmc::{Algorithm, Schedule};
use serde_json::{Value, json};

use crate::{
    Outcome,
    report::{Output, Report, number},
    sweep,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(4..=64))]
    members: u32,
    /// Over shaped links, in virtual time, or both
    #[arg(long, value_delimiter = ',', default_value = "links,virtual")]
    networks: Vec<Network>,
    /// How many times slower the slow link and the slow member are
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=100))]
    times_slower: u32,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = sweep::algorithms(),
          default_value = "binomial-pipeline,chain")]
    algorithms: Vec<Algorithm>,
    /// Rate of each link. Unless given: 4000 Mbit/s / members, at most 1000
    #[arg(long)]
    rate: Option<Rate>,
    /// Length of the message over links
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Block size over links
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// Blocks of the message in virtual time
    #[arg(long, value_name = "K", default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=100_000))]
    blocks: u32,
    /// How often each is measured, and how many seeds random delays have; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Network {
    /// Processes in network namespaces (needs root)
    Links,
    /// The real engines over a simulated network
    Virtual,
}

/// What one disturbance did to one algorithm.
struct Row {
    network: &'static str,
    disturbance: String,
    algorithm: Algorithm,
    time: f64,
    unit: &'static str,
    /// The undisturbed time divided by this one: the part of the bandwidth that is left.
    of_undisturbed: f64,
    expected: Option<f64>,
    /// The same for all members but the disturbed one.
    others_of_undisturbed: Option<f64>,
    slack: Option<f64>,
}

impl Row {
    fn undisturbed(
        network: &'static str,
        algorithm: Algorithm,
        time: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            network,
            disturbance: "none".into(),
            algorithm,
            time,
            unit,
            of_undisturbed: 1.0,
            expected: None,
            others_of_undisturbed: None,
            slack: None,
        }
    }

    /// This time when something is wrong.
    fn disturbed(&self, disturbance: String, time: f64) -> Self {
        let of_undisturbed = self.time / time;
        Self {
            disturbance,
            time,
            of_undisturbed,
            ..Self::undisturbed(self.network, self.algorithm, time, self.unit)
        }
    }

    fn values(&self) -> Vec<Value> {
        let optional = |value: Option<f64>| value.map_or(Value::Null, number);
        vec![
            json!(self.network),
            json!(self.disturbance),
            json!(self.algorithm.name()),
            number(self.time),
            json!(self.unit),
            number(self.of_undisturbed),
            optional(self.expected),
            optional(self.others_of_undisturbed),
            optional(self.slack),
        ]
    }
}

/// The part of the bandwidth that the paper expects to be left at least when one link is slow: of
/// the pipeline `l*T'/(T+(l-1)*T')`, since each link is used at every l-th step; of a chain T'/T.
fn slow_link_bound(algorithm: Algorithm, members: u32, times_slower: u32) -> Option<f64> {
    let times = f64::from(times_slower);
    match algorithm {
        Algorithm::BinomialPipeline => {
            let dimensions = f64::from(members.ilog2());
            Some(dimensions / (times + dimensions - 1.0))
        }
        Algorithm::Chain => Some(1.0 / times),
        _ => None,
    }
}

/// Two receivers that exchange blocks by every one of these schedules.
fn common_link(schedules: &[Schedule], members: u32) -> Option<[u32; 2]> {
    let are_neighbours = |one: u32, other: u32| {
        schedules.iter().all(|schedule| schedule.neighbours(one).any(|member| member == other))
    };
    (2..members - 1).map(|one| [one, one + 1]).find(|&[one, other]| are_neighbours(one, other))
}

/// Measures and prints.
pub fn run(args: &Args) -> Outcome<()> {
    let what = format!(
        "{} members; over links {} in blocks of {}, in virtual time {} blocks; median of {}",
        args.members,
        size::show(args.bytes),
        size::show(args.block),
        args.blocks,
        args.repeats
    );
    let columns = [
        "network",
        "disturbance",
        "algorithm",
        "time",
        "unit",
        "of_undisturbed",
        "expected",
        "others_of_undisturbed",
        "slack_steps",
    ];
    let mut report = Report::new("robust", what, &columns);
    let mut rows = Vec::new();
    if args.networks.contains(&Network::Links) {
        rows.extend(links::measure(args)?);
    }
    if args.networks.contains(&Network::Virtual) {
        rows.extend(simulated::measure(args)?);
    }
    rows.iter().for_each(|row| report.row(row.values()));
    report.note(
        "Of undisturbed: undisturbed time / time, the part of the bandwidth that is left; others: the \
         same without the disturbed member. Expected: for the slow link the paper's bound, of a chain \
         the rate of that link; for a slow member its rate, which is the most; for one delay of e \
         steps in T steps T/(T+e), which is the least. In virtual time the worst link or member is shown. Slack: how \
         many steps ago members, but for the root, received the block that they send, measured.",
    );
    explain(args, &mut report, &rows);
    report.print(&args.output);
    Ok(())
}

fn explain(args: &Args, report: &mut Report, rows: &[Row]) {
    let about = |row: &Row| {
        let expected =
            row.expected.map_or(String::new(), |value| format!(" (expected {value:.2})"));
        let (network, disturbance, part) = (row.network, &row.disturbance, row.of_undisturbed);
        format!("{network}, {disturbance}: {} {part:.2}{expected}", row.algorithm)
    };
    let disturbed = rows.iter().filter(|row| row.expected.is_some());
    let mut here: Vec<String> = disturbed.map(about).collect();
    if let Some((measured, formula)) = rows
        .iter()
        .find_map(|row| row.slack.filter(|_| row.disturbance == "none"))
        .zip(Schedule::average_slack(args.members))
    {
        here.push(format!("average slack {measured:.3}, by the formula {formula:.3}"));
    }
    report.finding(
        "calculated, not measured (section 4.5): a step that is delayed by e delays the whole by e at \
         most; with one link at T' among links at T at least l*T'/(T+(l-1)*T') of the bandwidth is \
         left, where a chain falls to T'/T; a block is sent 2(1-(l-1)/(n-2)) steps after it was \
         received, so that a late member can catch up.",
        &format!("{}.", here.join("; ")),
        "in virtual time a block on the slow link keeps the ports of both members, as the paper has it. \
         Over links it does not: with several sends posted the next block leaves by another link \
         meanwhile, and the slow link catches up at steps in which it would be idle. A slow member is \
         another matter: each block has to reach it, and what it does not relay in time holds up \
         neighbours that have credits for few blocks. A delay costs more than itself where it makes \
         members leave the schedule's order: they send whichever block has its credit first, and a \
         block that was posted ahead may keep a port that an earlier one needs, until exchanges \
         are in step again. A chain has one way only, and no order to lose.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_papers() {
        let bound = |members| slow_link_bound(Algorithm::BinomialPipeline, members, 2).unwrap();
        // Its example has 85.6 % for 64 members at half rate, which is 6/7 rounded down.
        assert!((bound(64) - 6.0 / 7.0).abs() < 1e-12);
        assert!((bound(16) - 0.8).abs() < 1e-12);
        assert_eq!(slow_link_bound(Algorithm::Chain, 16, 2), Some(0.5));
        assert_eq!(slow_link_bound(Algorithm::Circulant, 16, 2), None);
    }

    #[test]
    fn every_algorithm_uses_the_slow_link() {
        for members in 4..=33 {
            let algorithms = [Algorithm::BinomialPipeline, Algorithm::Chain, Algorithm::Circulant];
            let schedules =
                algorithms.map(|algorithm| Schedule::new(algorithm, members, 0).unwrap());
            let [one, other] = common_link(&schedules, members).unwrap();
            assert!(one > 0 && schedules[0].neighbours(one).any(|member| member == other));
        }
    }
}
