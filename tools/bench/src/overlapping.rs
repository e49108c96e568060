//! Several groups of the same members at once, each with another sender: what they carry together,
//! and how evenly they share it (DSN 2018 section 5.2.2, Fig. 10).

use lab::{Lab, LabSettings, Rate};
use plan::size;
use rdmc::Algorithm;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    load::Load,
    member::{Together, blocks},
    member_processes::MemberProcesses,
    outcome::Outcome,
    racks,
    report::{Output, Report, deviation, median, number},
    sweep::{algorithms, alternate},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Members of every group
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4,8,16",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Rate of each link. Unless given: 4000 Mbit/s / members, at most 1000
    #[arg(long)]
    rate: Option<Rate>,
    /// How many times more half of the members can send than the uplink of their rack carries, for
    /// two racks; with 1 all members are at one switch
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4", value_parser = racks::oversubscription)]
    oversubscription: Vec<f64>,
    /// Algorithm
    #[arg(long, value_parser = algorithms(), default_value = "binomial-pipeline")]
    algorithm: Algorithm,
    /// Length of the one message in each group
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "16MiB,1MiB")]
    bytes: Vec<u64>,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "one message in each of several groups of the same members at once, {}, blocks of {}; median of {}",
        args.algorithm,
        size::show(args.block),
        args.repeats
    );
    let mut report = Report::new("overlapping", what);
    for &members in &args.members {
        for &oversubscription in &args.oversubscription {
            measure(args, members, oversubscription, &interrupt, &mut report)?;
        }
    }
    report.note(
        "Together: length x groups / time until the last receiver of the last group has its message; \
         deviation: the standard deviation of that between repeats. Limit: what the busiest port or \
         uplink allows by the schedules. Fairness: Jain's index of the groups' rates (length / time of \
         the group), 1 if they are all the same and 1/groups if one gets everything. First group: when \
         it was done; the last one is the time.",
    );
    report.print(&args.output);
    Ok(())
}

/// Adds a row for each length and number of senders.
fn measure(
    args: &Args,
    members: u32,
    oversubscription: f64,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let (network, settings) = network(args, members, oversubscription);
    let link_mbit = settings.link.rate.mbit();
    let lab = Lab::create(&settings)?;
    let mut processes = MemberProcesses::start(&lab.hosts(), interrupt)?;
    let all: Vec<Together> = args
        .bytes
        .iter()
        .flat_map(|&bytes| sender_counts(members).map(move |senders| (bytes, senders)))
        .map(|(bytes, senders)| together(args, members, bytes, senders))
        .collect();
    let name = format!("{members} members, {network}");
    let results =
        alternate(all.len(), args.repeats, &name, |index| processes.run_together(&all[index]))?;
    for (together, runs) in all.iter().zip(&results) {
        let groups = together.roots.len();
        let extreme = |pick: fn(f64, f64) -> f64| {
            median(runs.iter().filter_map(|run| run.iter().copied().reduce(pick)).collect())
        };
        let (first, last) = (extreme(f64::min), extreme(f64::max));
        let mbit = mbit_of(together, &[last]);
        let all_mbit: Vec<f64> = runs.iter().map(|run| mbit_of(together, run)).collect();
        let deviation = deviation(&all_mbit);
        let limit = limit_mbit(&settings, together)?;
        let fairness = median(runs.iter().map(|run| jain(run)).collect());
        report.row([
            ("members", json!(members)),
            ("network", json!(network)),
            ("length", json!(size::show(together.message_bytes))),
            ("senders", json!(groups)),
            ("time_s", number(last)),
            ("together_mbit", number(mbit)),
            ("deviation_mbit", number(deviation)),
            ("of_a_link", number(mbit / link_mbit)),
            ("limit_mbit", number(limit)),
            ("of_the_limit", number(mbit / limit)),
            ("fairness", number(fairness)),
            ("first_group_s", number(first)),
        ]);
    }
    Ok(())
}

/// Of all groups together, by the times of each.
fn mbit_of(together: &Together, times: &[f64]) -> f64 {
    let last = times.iter().copied().fold(0.0, f64::max);
    together.roots.len() as f64 * together.message_bytes as f64 * 8e-6 / last
}

/// All members, half of them, one of them; each once.
fn sender_counts(members: u32) -> impl Iterator<Item = u32> {
    let mut counts = vec![members, members / 2, 1];
    counts.dedup();
    counts.into_iter()
}

/// Groups whose roots are spread evenly over the members.
fn together(args: &Args, members: u32, message_bytes: u64, senders: u32) -> Together {
    Together {
        number: 0,
        algorithm: args.algorithm.to_string(),
        block_bytes: args.block,
        window: rdmc::Window::default().receives,
        message_bytes,
        roots: (0..senders).map(|sender| sender * members / senders).collect(),
    }
}

fn network(args: &Args, members: u32, oversubscription: f64) -> (String, LabSettings) {
    let settings = racks::settings(members, 2, args.rate, oversubscription);
    if oversubscription > 1.0 {
        return (format!("{oversubscription}:1"), settings);
    }
    ("full bisection".into(), LabSettings::new(members, settings.link))
}

/// What all groups together can carry at the most, by their schedules.
fn limit_mbit(settings: &LabSettings, together: &Together) -> Outcome<f64> {
    let racks: Vec<u32> = (0..settings.hosts).map(|host| settings.rack_of(host)).collect();
    let mut load: Option<Load> = None;
    for schedule in together.schedules(settings.hosts)? {
        let one = Load::of(&schedule, &racks, blocks(together.message_bytes, together.block_bytes));
        match &mut load {
            Some(load) => *load += &one,
            None => load = Some(one),
        }
    }
    let mbit = settings.link.rate.mbit();
    let uplink = settings.uplink.map_or(f64::INFINITY, |uplink| uplink.rate.mbit() / mbit);
    let least_time = load.ok_or("there are no groups")?.least_time(uplink);
    Ok(together.roots.len() as f64 * mbit / least_time)
}

/// Jain's index of the rates of things of the same size that took these times.
fn jain(times: &[f64]) -> f64 {
    let rates = || times.iter().map(|time| 1.0 / time.max(1e-9));
    let sum: f64 = rates().sum();
    let squares: f64 = rates().map(|rate| rate * rate).sum();
    sum * sum / (times.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use lab::Link;

    use super::*;

    #[test]
    fn equal_rates_are_fair_and_one_that_gets_all_is_not() {
        assert!((jain(&[2.0; 5]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 1e9, 1e9, 1e9]) - 0.25).abs() < 1e-6);
        // Rates of 1 and 1/2: (3/2)^2 / (2 * 5/4).
        assert!((jain(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
    }

    fn groups(roots: Vec<u32>) -> Together {
        Together {
            number: 1,
            algorithm: "binomial-pipeline".into(),
            block_bytes: 1 << 16,
            window: 2,
            message_bytes: 100 << 16,
            roots,
        }
    }

    #[test]
    fn receivers_ports_and_uplinks_are_the_limit() {
        let link = Link::of_rate(Rate::from_mbit(100));
        let flat = LabSettings::new(8, link);
        let limit = |settings: &LabSettings, roots| limit_mbit(settings, &groups(roots)).unwrap();
        assert!((limit(&flat, vec![0]) - 100.0).abs() < 5.0);
        // Each receives seven of eight messages.
        assert!((limit(&flat, (0..8).collect()) - 800.0 / 7.0).abs() < 5.0);
        // A message crosses an uplink, as wide as one port, 4/3 times, or more often where the
        // hypercube that starts at its root lies across the racks: twice on average.
        let racks = racks::settings(8, 2, Some(Rate::from_mbit(100)), 4.0);
        let oversubscribed = limit(&racks, (0..8).collect());
        assert!((40.0..60.0).contains(&oversubscribed), "{oversubscribed}");
    }

    #[test]
    fn senders_are_spread_evenly() {
        assert_eq!(sender_counts(8).collect::<Vec<_>>(), [8, 4, 1]);
        assert_eq!(sender_counts(2).collect::<Vec<_>>(), [2, 1]);
    }
}
