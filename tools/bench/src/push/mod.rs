//! `rdmc push` over shaped links: one copy that a switch multiplies, beside copies that receivers
//! relay or the sender sends to each.

mod certificates;
mod site;

use std::path::PathBuf;

use clap::ValueEnum;
use lab::{Link, Rate};
use plan::size;
use serde_json::{Value, json};

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::PushFiles,
    report::{Cell, Output, Report, median, number},
    sweep::alternate,
};
use site::{Copier, Run, Site};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Receivers, each on a host of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    receivers: u32,
    /// Rates of the links, of TCP payload
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        default_value = "100mbit,300mbit,500mbit"
    )]
    rates: Vec<Rate>,
    /// The longest packets of the links; from 4200 on, packets that switches copy carry 4 KiB
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "1500,4200",
          value_parser = clap::value_parser!(u32).range(1_280..=9_000))]
    mtus: Vec<u32>,
    /// How receivers get their copies
    #[arg(long, value_delimiter = ',', default_value = "kernel,userspace,auto,chain,sequential")]
    ways: Vec<Way>,
    /// Length of the file
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "32MiB")]
    bytes: u64,
    /// How often each is measured, alternating; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Where the file and its copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// How receivers get their copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// The switch copies, by the program in the kernel beside its bridge (eBPF)
    Kernel,
    /// The switch copies, and bridges, in userspace
    Userspace,
    /// Receivers relay, as the cost model picks
    Auto,
    /// Receivers relay, each to the next
    Chain,
    /// The sender sends to each
    Sequential,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "switch, kernel",
            Self::Userspace => "switch, userspace",
            Self::Auto => "auto",
            Self::Chain => "chain",
            Self::Sequential => "sequential",
        }
    }

    /// The switch that it needs; where receivers relay, the kernel's bridge.
    fn copier(self) -> Copier {
        if self == Self::Userspace { Copier::Userspace } else { Copier::Kernel }
    }

    /// `rdmc push --algorithm`; not where a switch copies.
    fn algorithm(self) -> Option<&'static str> {
        match self {
            Self::Kernel | Self::Userspace => None,
            Self::Auto | Self::Chain | Self::Sequential => Some(self.name()),
        }
    }
}

/// The runs of one way in one network.
struct Found {
    link: Link,
    way: Way,
    bytes: u64,
    runs: Vec<Run>,
}

/// Measures and prints. Errors: not root; a push that did not reach all.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let files = PushFiles::create(&args.directory, args.bytes, 1, &interrupt)?;
    let mut report = report(args);
    let mut ways = args.ways.clone();
    if !data_plane::HAS_KERNEL_PLANE && ways.contains(&Way::Kernel) {
        let why = "this build has no switch in the kernel (Debian: clang, libbpf-dev)";
        eprintln!("SKIPPED: kernel: {why}");
        report.note(format!("Skipped: {}: {why}.", Way::Kernel.name()));
        ways.retain(|&way| way != Way::Kernel);
    }
    for &mtu_bytes in &args.mtus {
        for &rate in &args.rates {
            let link = Link::of_rate(rate).with_mtu(mtu_bytes);
            let measured = measure(args, &ways, link, &files, &interrupt)?;
            measured.iter().for_each(|one| report.row(one.row(args.receivers)));
        }
    }
    report.print(&args.output);
    Ok(())
}

/// All ways, alternating, over links like this one.
fn measure(
    args: &Args,
    ways: &[Way],
    link: Link,
    files: &PushFiles,
    interrupt: &Interrupt,
) -> Outcome<Vec<Found>> {
    let mut sites = Vec::new();
    for copier in [Copier::Kernel, Copier::Userspace] {
        let own = || ways.iter().filter(|way| way.copier() == copier);
        if own().next().is_none() {
            continue;
        }
        let needs_agent = own().any(|way| way.algorithm().is_none());
        let site = Site::set_up(files, copier, needs_agent, (args.receivers, link), interrupt)?;
        sites.push((copier, site));
    }
    let name = format!("{}, MTU {}", link.rate, link.mtu_bytes);
    let runs = alternate(ways.len(), args.repeats, &name, |index| {
        let way = ways[index];
        let mut sites = sites.iter();
        let site = sites.find(|(copier, _)| *copier == way.copier()).ok_or("no such switch")?;
        let run = site.1.push(way.algorithm(), args.bytes, interrupt);
        run.map_err(|error| format!("{name}, {}: {error}", way.name()).into())
    })?;
    let found = |(&way, runs)| Found { link, way, bytes: args.bytes, runs };
    Ok(ways.iter().zip(runs).map(found).collect())
}

fn report(args: &Args) -> Report {
    let what = format!(
        "rdmc push of {} to {} receivers, one network namespace for each host around one switch, \
         links shaped at both ends; medians of {} by turns",
        size::show(args.bytes),
        args.receivers,
        args.repeats
    );
    let mut report = Report::new("push", what);
    report.note(
        "one copy: length / rate of the links, which is of TCP payload. time: from the first byte sent \
         until the last receiver has all; total: with making the group, verifying and publishing. of \
         rate: one copy / time. fastest, slowest: of all repeats, as time. cpu: processor time of rdmc on all hosts and at the switch, in all.",
    );
    report.note(
        "sent: bytes of whole frames that the sender's link and all receivers' links together carried \
         towards the switch, in lengths of the file. sent again: share of the packets of the sender's queue \
         pair that were retransmissions. fell back: pushes whose receivers relayed in \
         the end because the switch could not copy. Every copy was compared with the file.",
    );
    report.note(
        "What switches copy is neither authenticated nor encrypted on its way; what receivers relay \
         over TCP is authenticated, by default. Hosts and switch share this machine's cores.",
    );
    report
}

impl Found {
    fn one_copy_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.link.rate.bits_per_s() as f64
    }

    fn median_of(&self, what: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(what).collect())
    }

    fn of_rate(&self) -> f64 {
        self.one_copy_s() / self.median_of(|run| run.seconds)
    }

    /// Share of the packets through a switch that were sent again.
    fn sent_again(&self) -> Option<f64> {
        let again =
            |run: &Run| run.packets.map(|packets| packets.repeated as f64 / packets.sent as f64);
        self.runs.iter().map(again).collect::<Option<_>>().map(median)
    }

    fn row(&self, receivers: u32) -> impl IntoIterator<Item = Cell> {
        let seconds = || self.runs.iter().map(|run| run.seconds);
        let lengths = |bytes: u64| bytes as f64 / self.bytes as f64;
        let all = 1..=receivers as usize;
        let receivers_sent = |run: &Run| run.sent_bytes[all.clone()].iter().sum();
        [
            ("mbit", json!(self.link.rate.mbit() as u64)),
            ("mtu", json!(self.link.mtu_bytes)),
            ("way", json!(self.way.name())),
            ("one_copy_s", number(self.one_copy_s())),
            ("time_s", number(self.median_of(|run| run.seconds))),
            ("of_rate", number(self.of_rate())),
            ("fastest_s", number(seconds().fold(f64::INFINITY, f64::min))),
            ("slowest_s", number(seconds().fold(0.0, f64::max))),
            ("total_s", number(self.median_of(|run| run.total_seconds))),
            ("cpu_s", number(self.median_of(|run| run.cpu_seconds))),
            ("sender_sent", number(self.median_of(|run| lengths(run.sent_bytes[0])))),
            ("sent_again", self.sent_again().map_or(Value::Null, number)),
            ("receivers_sent", number(self.median_of(|run| lengths(receivers_sent(run))))),
            ("fell_back", json!(self.runs.iter().filter(|run| run.fell_back.is_some()).count())),
        ]
    }
}
