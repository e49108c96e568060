//! Where the time of one transfer goes, at each member and above all at the receiver whose first
//! block comes last (DSN 2018 section 5.2.1, Table 1), and what `./dev plot` draws of it (Fig. 5).

use std::{net::IpAddr, ops::Range};

use plan::size;
use rdmc::Algorithm;
use serde_json::json;
use trace::What;

use crate::{
    course::{Course, Transfer},
    interrupt::Interrupt,
    member::{Done, Equipment, Job},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{Output, Report, number},
    sweep::algorithms,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// Length of the message
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "1MiB")]
    block: u64,
    /// Algorithm
    #[arg(long, value_parser = algorithms(), default_value = "binomial-pipeline")]
    algorithm: Algorithm,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    /// How often it is measured; the one with the median time is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Outcome<()> {
    if args.equipment.offload {
        return Err("with offload members do not see their blocks: leave out --offload".into());
    }
    let interrupt = Interrupt::watch()?;
    let equipment = Equipment { timeline: true, ..args.equipment.clone() };
    let what = format!(
        "time of {} to {} receivers as processes of this host, {}, {}, blocks of {}, at the \
         receiver whose first block comes last; the median of {}",
        size::show(args.bytes),
        args.members - 1,
        equipment.network(),
        args.algorithm,
        size::show(args.block),
        args.repeats
    );
    let hosts = Host::here_at(&args.addresses, args.members);
    let mut processes = MemberProcesses::start_with(&hosts, &interrupt, &equipment)?;
    let job = Job::one(args.algorithm, args.block, args.bytes);
    let mut all = Vec::new();
    for _ in 0..args.repeats {
        let members = processes.run_all(&job)?;
        all.push(Breakdown::of(&members).ok_or("a member's timeline has gaps")?);
    }
    all.sort_by_key(|breakdown| breakdown.last().total_ns());
    let median = &all[all.len() / 2];
    median.report(what).print(&args.output);
    Ok(())
}

/// One transfer.
struct Breakdown {
    /// By member.
    parts: Vec<Parts>,
    /// The receiver whose first block came last.
    last: usize,
    course: Course,
}

impl Breakdown {
    /// `None` if a member's record has gaps.
    fn of(members: &[Done]) -> Option<Self> {
        let course = Course::of_members(members.iter().map(|member| &member.timeline[..]))?;
        let start = members[0].started_ns?;
        let mut parts = vec![Parts::of_root(&course.transfers, start)?];
        let mut firsts = Vec::new();
        for (rank, member) in (0..).zip(members).skip(1) {
            let first = first_of(&course.transfers, rank)?;
            firsts.push((first.time.end, parts.len()));
            parts.push(Parts::of_receiver(&course.transfers, start, first, member)?);
        }
        let (_, last) = firsts.into_iter().max()?;
        Some(Self { parts, last, course })
    }

    fn last(&self) -> &Parts {
        &self.parts[self.last]
    }

    fn report(&self, what: String) -> Report {
        let mut report = Report::new("breakdown", what);
        let total = self.last().total_ns() as f64;
        for (name, ns) in self.last().rows() {
            let share = number(ns as f64 / total);
            report.row([("part", json!(name)), ("time_us", us(ns)), ("share", share)]);
        }
        let title = "Each member, in µs, and the share of time without a transfer:";
        report.table("members", title);
        for (member, parts) in self.parts.iter().enumerate() {
            report.row([
                ("member", json!(member)),
                ("remote_setup_us", us(parts.remote_setup)),
                ("remote_transfers_us", us(parts.remote_transfers)),
                ("local_setup_us", us(parts.local_setup)),
                ("transfers_us", us(parts.transfers)),
                ("waiting_us", us(parts.waiting)),
                ("copying_us", us(parts.copying)),
                ("total_us", us(parts.total_ns())),
                ("overhead", number(parts.overhead())),
            ]);
        }
        report.note(
            "remote: until this receiver has its first block. local setup: until it has granted \
             its sources credits; at the root, until its first send. block transfers: a block is \
             in transit to it or from it, from the sender's post to the receiver's completion. \
             waiting: none is.",
        );
        self.course.add_to(&mut report);
        report
    }
}

fn us(ns: u64) -> serde_json::Value {
    number(ns as f64 / 1e3)
}

/// The parts of a time, in ns.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    remote_setup: u64,
    remote_transfers: u64,
    local_setup: u64,
    transfers: u64,
    waiting: u64,
    copying: u64,
}

impl Parts {
    /// From the start to the arrival of the last block that it sends.
    fn of_root(transfers: &[Transfer], start: u64) -> Option<Self> {
        let own = || transfers.iter().filter(|transfer| transfer.from == 0);
        let first = own().map(|transfer| transfer.time.start).min()?;
        let end = own().map(|transfer| transfer.time.end).max()?;
        let mut parts = Self::default();
        parts.add(start..end, &touching(transfers, 0), &(start..first), &(end..end));
        Some(parts)
    }

    /// Up to the end of the message at this receiver.
    fn of_receiver(
        transfers: &[Transfer],
        start: u64,
        first: &Transfer,
        member: &Done,
    ) -> Option<Self> {
        let mut parts = Self::default();
        let mut hop = first;
        loop {
            parts.remote_transfers += hop.time.end.saturating_sub(hop.time.start);
            if hop.from == 0 {
                break;
            }
            hop = transfers.iter().find(|it| it.to == hop.from && it.block == hop.block)?;
        }
        let remote = first.time.end.checked_sub(start)?;
        parts.remote_setup = remote.saturating_sub(parts.remote_transfers);
        parts.remote_transfers = remote - parts.remote_setup;

        let after = |what: What| {
            let since = member.timeline.iter().filter(|moment| moment.at_ns >= first.time.end);
            since.filter(|moment| moment.what == what).map(|moment| moment.at_ns).next()
        };
        // A message of one block needs no credit.
        let setup = first.time.end..after(What::Grant).unwrap_or(first.time.end);
        let copying = after(What::Copy)?..after(What::Copied)?;
        let rest = first.time.end..member.received_ns?;
        parts.add(rest, &touching(transfers, first.to), &setup, &copying);
        Some(parts)
    }

    /// Every nanosecond of this time belongs to one part.
    fn add(
        &mut self,
        time: Range<u64>,
        touching: &[&Range<u64>],
        setup: &Range<u64>,
        copying: &Range<u64>,
    ) {
        for piece in pieces(time, touching.iter().copied().chain([setup, copying])) {
            let length = piece.end - piece.start;
            let inside = |range: &Range<u64>| range.start <= piece.start && piece.end <= range.end;
            if inside(copying) {
                self.copying += length;
            } else if inside(setup) {
                self.local_setup += length;
            } else if touching.iter().any(|time| inside(time)) {
                self.transfers += length;
            } else {
                self.waiting += length;
            }
        }
    }

    /// The share of the time in which no block is in transit.
    fn overhead(&self) -> f64 {
        let in_transit = self.remote_transfers + self.transfers;
        1.0 - in_transit as f64 / self.total_ns().max(1) as f64
    }

    fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("remote setup", self.remote_setup),
            ("remote block transfers", self.remote_transfers),
            ("local setup", self.local_setup),
            ("block transfers", self.transfers),
            ("waiting", self.waiting),
            ("copy time", self.copying),
            ("total", self.total_ns()),
        ]
    }

    fn total_ns(&self) -> u64 {
        self.remote_setup
            + self.remote_transfers
            + self.local_setup
            + self.transfers
            + self.waiting
            + self.copying
    }
}

fn first_of(transfers: &[Transfer], member: u32) -> Option<&Transfer> {
    let received = transfers.iter().filter(|transfer| transfer.to == member);
    received.min_by_key(|transfer| transfer.time.end)
}

/// When a block was in transit to this member or from it.
fn touching(transfers: &[Transfer], member: u32) -> Vec<&Range<u64>> {
    let own = transfers.iter().filter(|it| it.from == member || it.to == member);
    own.map(|transfer| &transfer.time).collect()
}

/// The range, cut wherever one of the others begins or ends.
fn pieces<'a>(range: Range<u64>, others: impl Iterator<Item = &'a Range<u64>>) -> Vec<Range<u64>> {
    let mut cuts: Vec<u64> = others.flat_map(|other| [other.start, other.end]).collect();
    cuts.retain(|cut| range.contains(cut));
    cuts.extend([range.start, range.end]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Moment;

    fn moment(at_ns: u64, what: What, peer: u32, block: u32) -> Moment {
        Moment { at_ns, what, peer: Some(peer), block: Some(block), ..Moment::default() }
    }

    fn member(received_ns: Option<u64>, timeline: Vec<Moment>) -> Done {
        Done {
            started_ns: received_ns.is_none().then_some(100),
            received_ns,
            cpu_ns: 0,
            sent_again: 0,
            timeline,
        }
    }

    #[test]
    fn every_nanosecond_belongs_to_one_part() {
        let root = vec![moment(103, What::Send, 1, 0), moment(140, What::Send, 1, 1)];
        let relay = vec![
            moment(113, What::Received, 0, 0),
            moment(113, What::Copy, 0, 0),
            moment(114, What::Copied, 0, 0),
            moment(115, What::Send, 2, 0),
            moment(150, What::Received, 0, 1),
            moment(151, What::Send, 2, 1),
        ];
        let last = vec![
            moment(125, What::Received, 1, 0),
            moment(127, What::Grant, 1, 0),
            moment(127, What::Copy, 2, 0),
            moment(132, What::Copied, 2, 0),
            moment(170, What::Received, 1, 1),
        ];
        let members = [member(None, root), member(Some(151), relay), member(Some(171), last)];
        let breakdown = Breakdown::of(&members).unwrap();
        let expected = Parts {
            remote_setup: 5,
            remote_transfers: 20,
            local_setup: 2,
            transfers: 19,
            waiting: 20,
            copying: 5,
        };
        assert_eq!((breakdown.last, breakdown.last()), (2, &expected));
        assert_eq!(expected.total_ns(), 71);
        assert!((expected.overhead() - 32.0 / 71.0).abs() < 1e-12);
        let root = Parts { local_setup: 3, transfers: 20, waiting: 27, ..Parts::default() };
        assert_eq!(breakdown.parts[0], root);
        assert_eq!(breakdown.parts[1].total_ns(), 51);
    }

    #[test]
    fn a_block_without_a_send_is_a_gap() {
        let members =
            [member(None, Vec::new()), member(Some(9), vec![moment(5, What::Received, 0, 0)])];
        assert!(Breakdown::of(&members).is_none());
    }
}
