//! Hundreds of overlapping groups on a few members, as a replicated store has them: one group for
//! each set of targets (DSN 2018 section 5.2.2, 455 groups on 16 members).

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{
        Barrier,
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use plan::size;
use rdmc::{Algorithm, Application, Context, Failure, Group, GroupSettings, Incoming, Region};
use serde_json::json;

use crate::{
    clock::cpu_ns,
    file_limit::raise_file_limit,
    member::{Equipment, check_offload},
    member_threads::{MemberThreads, TIMEOUT},
    outcome::Outcome,
    report::{Output, Report, number},
};

#[derive(Debug, clap::Args)]
#[group(id = "groups-sets")]
pub struct Args {
    /// Members; the first is the root of every group, and each three of the others are one group
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(4..=20))]
    members: u32,
    /// Length of the one message in each group
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "256KiB")]
    bytes: u64,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// Make, use and close the groups once more on the same contexts, with other numbers
    #[arg(long)]
    warm: bool,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    #[command(flatten)]
    output: Output,
}

/// The members of each group, by rank.
pub fn all_groups(members: u32) -> Vec<[u32; 4]> {
    let mut groups = Vec::new();
    for a in 1..members {
        for b in a + 1..members {
            groups.extend((b + 1..members).map(|c| [0, a, b, c]));
        }
    }
    groups
}

/// Makes, uses and closes all groups, and prints.
pub fn run(args: &Args) -> Outcome<()> {
    raise_file_limit()?;
    let groups = all_groups(args.members);
    let what = format!(
        "{} groups of 4 on {} contexts of one process, one completion queue and one progress \
         thread each, {}; one message of {} in each group, all at once",
        groups.len(),
        args.members,
        args.equipment.network(),
        size::show(args.bytes)
    );
    let threads = MemberThreads::start(args.members, &args.addresses, &args.equipment)?;
    let shared = Shared { args, groups, threads, step: Barrier::new(args.members as usize) };
    let mut report = Report::new("groups", what);
    let contexts: &[&str] = if args.warm { &["cold", "warm"] } else { &["cold"] };
    for (first, contexts) in (1..).step_by(shared.groups.len()).zip(contexts) {
        let cpu_start_ns = cpu_ns();
        let all = shared.threads.run(|rank, context| shared.take_part(rank, context, first))?;
        let cpu_ns = cpu_ns() - cpu_start_ns;
        let longest = |time: fn(&Member) -> Duration| {
            all.iter().map(time).max().unwrap_or_default().as_secs_f64()
        };
        let transfer = longest(|member| member.transfer);
        let delivered = shared.groups.len() as u64 * 3 * args.bytes;
        report.row([
            ("groups", json!(shared.groups.len())),
            ("contexts", json!(contexts)),
            ("set_up_s", number(longest(|member| member.set_up))),
            ("transfer_s", number(transfer)),
            ("close_s", number(longest(|member| member.close))),
            ("delivered_MB_per_s", number(delivered as f64 / transfer / 1e6)),
            ("cpu_s", number(cpu_ns as f64 / 1e9)),
            ("completion_queues", json!(args.members)),
        ]);
    }
    report.note("Every copy was compared with what was sent, and every group closed with success.");
    if args.warm {
        report.note("Warm: all pairs of contexts have had groups before, which are closed.");
    }
    report.print(&args.output);
    Ok(())
}

/// One member's times.
struct Member {
    set_up: Duration,
    transfer: Duration,
    close: Duration,
}

/// Shared by the threads of all members.
struct Shared<'a> {
    args: &'a Args,
    groups: Vec<[u32; 4]>,
    threads: MemberThreads,
    step: Barrier,
}

impl Shared<'_> {
    /// Makes this member's groups, sends or receives in all of them, and closes them. Their numbers
    /// begin with `first`.
    fn take_part(&self, rank: u32, context: &Context, first: u64) -> Outcome<Member> {
        let start = Instant::now();
        let (sender, results) = mpsc::channel();
        let own: Vec<(u64, &[u32; 4])> =
            (first..).zip(&self.groups).filter(|(_, members)| members.contains(&rank)).collect();
        // A thread that has failed still has to reach the barrier, for which all others wait.
        let made: Outcome<Vec<Group>> = own
            .iter()
            .map(|&(number, members)| self.join(context, rank, number, members, &sender))
            .collect();
        let set_up = start.elapsed();
        self.step.wait();
        let groups = made?;
        // After the barrier, for the same reason.
        groups.iter().try_for_each(check_offload)?;

        let start = Instant::now();
        if rank == 0 {
            for (group, (number, _)) in groups.iter().zip(&own) {
                let region = Region::from_vec(vec![*number as u8; self.args.bytes as usize]);
                group.try_send(region)?;
            }
        }
        let mut left: BTreeSet<u64> = own.iter().map(|&(number, _)| number).collect();
        while !left.is_empty() {
            let number =
                results.recv_timeout(TIMEOUT).map_err(|_| "a message did not arrive")??;
            left.remove(&number);
        }
        let transfer = start.elapsed();
        let start = Instant::now();
        // In the same order at all members: closing waits for all members of a group.
        for group in &groups {
            group.close(TIMEOUT)?;
        }
        Ok(Member { set_up, transfer, close: start.elapsed() })
    }

    fn join(
        &self,
        context: &Context,
        rank: u32,
        number: u64,
        members: &[u32; 4],
        sender: &Sender<Outcome<u64>>,
    ) -> Outcome<Group> {
        let own = members.iter().position(|&member| member == rank).ok_or("not a member")?;
        let addresses: Vec<SocketAddr> =
            members.iter().map(|&member| self.threads.addresses()[member as usize]).collect();
        let mut settings =
            GroupSettings::new(number, addresses, own as u32).schedule(Algorithm::BinomialPipeline);
        settings.block_bytes = Some(self.args.block);
        settings.small = None;
        settings.send_queue_max = u32::MAX;
        settings.offload = self.args.equipment.offload;
        let checker = Checker { number, sender: sender.clone() };
        Ok(context.create_group_with(settings, checker)?)
    }
}

/// Compares messages with what was sent in this group.
struct Checker {
    number: u64,
    sender: Sender<Outcome<u64>>,
}

impl Application for Checker {
    fn incoming(&mut self, _message: u64, bytes: u64) -> Incoming {
        Incoming::Into(Region::zeroed(bytes as usize))
    }

    fn complete(&mut self, _message: u64, region: Region) {
        let equal = region
            .read(0..region.len())
            .is_ok_and(|bytes| bytes.iter().all(|&byte| byte == self.number as u8));
        let outcome = if equal { Ok(self.number) } else { Err("wrong contents".into()) };
        let _ = self.sender.send(outcome);
    }

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        let _ = self.sender.send(Err(failure.to_string().into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_members_make_455_groups() {
        let groups = all_groups(16);
        assert_eq!(groups.len(), 455);
        let distinct: BTreeSet<_> = groups.iter().collect();
        assert_eq!(distinct.len(), 455);
    }
}
