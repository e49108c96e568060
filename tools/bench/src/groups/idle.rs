//! What groups hold that send nothing: memory, descriptors, threads, and processor time for
//! heartbeats.

use std::{
    net::IpAddr,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use rdmc::{Algorithm, Context, Group, GroupSettings};
use serde_json::json;

use crate::{
    clock::cpu_ns,
    file_limit::raise_file_limit,
    member::{Equipment, check_offload},
    member_threads::{MemberThreads, TIMEOUT},
    outcome::Outcome,
    procfs::Held,
    report::{Cell, Output, Report, number},
};

#[derive(Debug, clap::Args)]
#[group(id = "groups-idle")]
pub struct Args {
    /// Groups after the first, all of the same members
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    groups: u32,
    /// Size of each group, the root included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// How long processor time is measured while nothing is sent, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    watch_ms: u64,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    #[command(flatten)]
    output: Output,
}

/// Counts, and prints.
pub fn run(args: &Args) -> Outcome<()> {
    raise_file_limit()?;
    let what = format!(
        "idle groups of the same {} members, contexts of one process, {}, default settings",
        args.members,
        args.equipment.network()
    );
    // Code that runs for the first time becomes resident; these contexts are not counted.
    let others = start(args)?;
    close(&others, &create(args, &others, 1..2)?)?;
    drop(others);

    let threads = start(args)?;
    let mut report = Report::new("groups-idle", what);
    let none = State::now(args, 0)?;
    report.row(none.row("no group yet", None));
    let first = create(args, &threads, 1..2)?;
    let one = State::now(args, 1)?;
    report.row(one.row("the first", Some(&none)));
    let more = create(args, &threads, 2..2 + u64::from(args.groups))?;
    let all = State::now(args, 1 + args.groups)?;
    report.row(all.row("more", Some(&one)));
    close(&threads, &more)?;
    close(&threads, &first)?;
    drop((first, more));
    report.row(State::now(args, 0)?.row("all closed", None));
    report.note(
        "open groups, descriptors, threads, resident memory, processor time per second: of the process \
         with all members. per group: what the groups of this row have added; per member: that for each \
         member of each group. What the kernel holds for sockets is not in resident memory.",
    );
    report.print(&args.output);
    Ok(())
}

fn start(args: &Args) -> Outcome<MemberThreads> {
    MemberThreads::start(args.members, &args.addresses, &args.equipment)
}

/// Groups of each member, by rank.
type Groups = Vec<Vec<Group>>;

/// Groups of all members, with these numbers.
fn create(args: &Args, threads: &MemberThreads, numbers: Range<u64>) -> Outcome<Groups> {
    threads.run(|rank, context| {
        let create = |number| {
            let mut settings = GroupSettings::new(number, threads.addresses().to_vec(), rank)
                .schedule(Algorithm::BinomialPipeline)
                .block_bytes(64 << 10);
            settings.offload = args.equipment.offload;
            let group = context.create_group(settings)?;
            check_offload(&group)?;
            Ok(group)
        };
        numbers.clone().map(create).collect()
    })
}

fn close(threads: &MemberThreads, groups: &Groups) -> Outcome<()> {
    let close_all = |rank: u32, _: &Context| {
        // In the same order at all members: closing waits for all members of a group.
        groups[rank as usize].iter().try_for_each(|group| Ok(group.close(TIMEOUT)?))
    };
    threads.run(close_all).map(drop)
}

/// The process, with this many open groups.
struct State {
    groups: u32,
    members: u32,
    held: Held,
    cpu_ms_per_s: f64,
}

impl State {
    fn now(args: &Args, groups: u32) -> Outcome<Self> {
        let held = Held::settled()?;
        let (cpu_start_ns, start) = (cpu_ns(), Instant::now());
        thread::sleep(Duration::from_millis(args.watch_ms));
        let cpu_ms = (cpu_ns() - cpu_start_ns) as f64 / 1e6;
        let cpu_ms_per_s = cpu_ms / start.elapsed().as_secs_f64();
        Ok(Self { groups, members: args.members, held, cpu_ms_per_s })
    }

    /// With what each group more than in `before` has added.
    fn row(&self, name: &str, before: Option<&Self>) -> [Cell; 10] {
        let per_group = |value: fn(&Held) -> u64| {
            before.map_or(f64::NAN, |before| {
                let added = value(&self.held) as f64 - value(&before.held) as f64;
                added / f64::from(self.groups - before.groups)
            })
        };
        let resident = per_group(|held| held.resident_kib);
        [
            ("groups", json!(name)),
            ("open_groups", json!(self.groups)),
            ("descriptors", json!(self.held.descriptors)),
            ("threads", json!(self.held.threads)),
            ("resident_KiB", json!(self.held.resident_kib)),
            ("cpu_ms_per_s", number(self.cpu_ms_per_s)),
            ("descriptors_per_group", number(per_group(|held| held.descriptors))),
            ("threads_per_group", number(per_group(|held| held.threads))),
            ("resident_KiB_per_group", number(resident)),
            ("resident_KiB_per_member", number(resident / f64::from(self.members))),
        ]
    }
}
