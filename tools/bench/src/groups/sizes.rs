//! How long creating and closing one group takes, by its size: on contexts that have had no group
//! (cold), and on contexts whose pairs have had one (warm).

use std::{net::IpAddr, sync::Barrier, time::Instant};

use rdmc::{Algorithm, Context, GroupSettings};
use serde_json::json;

use crate::{
    clock::cpu_ns,
    file_limit::raise_file_limit,
    member::{Equipment, check_offload},
    member_threads::{MemberThreads, TIMEOUT},
    outcome::Outcome,
    report::{Output, Report, median, ms, number},
    sweep::alternate,
};

#[derive(Debug, clap::Args)]
#[group(id = "groups-sizes")]
pub struct Args {
    /// Sizes of groups, the roots included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "2,4,8,16,32,64",
          value_parser = clap::value_parser!(u32).range(2..=256))]
    members: Vec<u32>,
    /// How often contexts of each size are started; the first group of each time is cold
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Groups after the first on the same contexts, one after another
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    warm: u32,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    #[command(flatten)]
    output: Output,
}

/// Measures all sizes, and prints.
pub fn run(args: &Args) -> Outcome<()> {
    raise_file_limit()?;
    let what = format!(
        "one group at a time, members as contexts of one process, {}, default settings; medians, \
         contexts started {} times with {} warm groups each",
        args.equipment.network(),
        args.repeats,
        args.warm
    );
    let mut report = Report::new("groups-sizes", what);
    let rounds = alternate(args.members.len(), args.repeats, "sizes", |index| {
        round(args, args.members[index])
    })?;
    for (members, rounds) in args.members.iter().zip(rounds) {
        let (cold, warm): (Vec<_>, Vec<_>) =
            rounds.iter().filter_map(|round| round.split_first()).unzip();
        add(&mut report, *members, "cold", &cold);
        add(&mut report, *members, "warm", &warm.concat().iter().collect::<Vec<_>>());
    }
    report.note(
        "create: from the first member's call until the last member's has returned; close likewise. \
         cpu: processor time of all members meanwhile. Warm: the same contexts have had a group of \
         all of them before, which is closed.",
    );
    report.print(&args.output);
    Ok(())
}

fn add(report: &mut Report, members: u32, contexts: &str, groups: &[&Times]) {
    let all =
        |time: fn(&Times) -> u64| groups.iter().map(|times| time(times)).collect::<Vec<u64>>();
    let middle = |time| number(median(all(time).iter().map(|&ns| ns as f64 / 1e6).collect()));
    let least = |time| ms(all(time).into_iter().min().unwrap_or(0));
    let most = |time| ms(all(time).into_iter().max().unwrap_or(0));
    let create: fn(&Times) -> u64 = |times| times.create_ns;
    let close: fn(&Times) -> u64 = |times| times.close_ns;
    report.row([
        ("members", json!(members)),
        ("contexts", json!(contexts)),
        ("groups", json!(groups.len())),
        ("create_ms", middle(create)),
        ("create_fastest_ms", least(create)),
        ("create_slowest_ms", most(create)),
        ("create_cpu_ms", middle(|times| times.create_cpu_ns)),
        ("close_ms", middle(close)),
        ("close_fastest_ms", least(close)),
        ("close_slowest_ms", most(close)),
    ]);
}

/// Of one group, all members together.
#[derive(Clone, Copy, Debug)]
struct Times {
    create_ns: u64,
    create_cpu_ns: u64,
    close_ns: u64,
}

/// Starts contexts, and creates and closes groups on them: one cold, then warm ones.
fn round(args: &Args, members: u32) -> Outcome<Vec<Times>> {
    let threads = MemberThreads::start(members, &args.addresses, &args.equipment)?;
    (1..=1 + u64::from(args.warm)).map(|number| one_group(args, &threads, number)).collect()
}

/// What one member has seen.
struct Seen {
    create: (Instant, Instant),
    close: (Instant, Instant),
    /// Of the process, when this member began and when all had created the group.
    cpu_ns: (u64, u64),
}

fn one_group(args: &Args, threads: &MemberThreads, number: u64) -> Outcome<Times> {
    let step = Barrier::new(threads.addresses().len());
    let all = threads.run(|rank, context| {
        let mut settings = GroupSettings::new(number, threads.addresses().to_vec(), rank)
            .schedule(Algorithm::BinomialPipeline)
            .block_bytes(64 << 10);
        settings.offload = args.equipment.offload;
        take_part(&step, context, settings)
    })?;
    let cpu_start_ns = all.iter().map(|seen| seen.cpu_ns.0).min().unwrap_or(0);
    let cpu_end_ns = all.iter().map(|seen| seen.cpu_ns.1).min().unwrap_or(0);
    Ok(Times {
        create_ns: between(all.iter().map(|seen| seen.create)),
        create_cpu_ns: cpu_end_ns - cpu_start_ns,
        close_ns: between(all.iter().map(|seen| seen.close)),
    })
}

fn take_part(step: &Barrier, context: &Context, settings: GroupSettings) -> Outcome<Seen> {
    step.wait();
    let (cpu_start_ns, start) = (cpu_ns(), Instant::now());
    let group = context.create_group(settings);
    let create = (start, Instant::now());
    // A member that has failed still has to reach the barrier, for which all others wait.
    step.wait();
    let cpu_ns = (cpu_start_ns, cpu_ns());
    let group = group?;
    check_offload(&group)?;
    let start = Instant::now();
    group.close(TIMEOUT)?;
    Ok(Seen { create, close: (start, Instant::now()), cpu_ns })
}

/// From the first start to the last end, in nanoseconds.
fn between(all: impl Iterator<Item = (Instant, Instant)>) -> u64 {
    let (starts, ends): (Vec<_>, Vec<_>) = all.unzip();
    let first = starts.into_iter().min();
    let last = ends.into_iter().max();
    first.zip(last).map_or(0, |(first, last)| (last - first).as_nanos() as u64)
}
