//! What the data planes of the in-switch multicast cost: packets of a group as fast as one sender
//! sends them, and their copies.

mod group;
mod network;
mod planes;

use clap::ValueEnum;
use plan::size;
use serde_json::{Value, json};

use crate::{
    Outcome,
    interrupt::Interrupt,
    report::{Output, Report, median, number},
    sweep::alternate,
};
use group::Case;
use network::Network;
use planes::Run;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Members that packets are copied to, each behind a port of its own
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,3,7",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    members: Vec<u32>,
    /// Payload of a packet, at most 4 KiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "1KiB,4KiB",
          value_parser = payload)]
    bytes: Vec<u64>,
    /// What is measured; the logic needs neither root nor a network
    #[arg(long, value_delimiter = ',', default_value = "kernel,userspace,logic")]
    planes: Vec<Plane>,
    /// How long packets are sent for
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Packets that the sender sends in a second [default: as many as it can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets_per_s: Option<u64>,
    /// How often each is measured, by turns; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

/// What copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Plane {
    /// The program in the kernel (eBPF)
    Kernel,
    /// Packet sockets and the logic, on one thread
    Userspace,
    /// The logic on memory, without sockets
    Logic,
}

impl Plane {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Userspace => "userspace",
            Self::Logic => "logic",
        }
    }

    /// Why it cannot be measured here.
    fn missing(self) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Self::Logic => None,
            _ if !is_root => Some("needs root (network namespaces, packet sockets)"),
            Self::Kernel if !switch::HAS_KERNEL_PLANE => {
                Some("this build has no switch in the kernel (Debian: clang, libbpf-dev)")
            }
            _ => None,
        }
    }
}

fn payload(text: &str) -> Result<u64, String> {
    let bytes = size::parse_nonzero(text)?;
    if bytes <= 4096 { Ok(bytes) } else { Err("a packet carries at most 4 KiB".into()) }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("use 0.01 to 3600".into()) }
}

/// Measures and prints.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let mut report = report(args);
    let mut planes = args.planes.clone();
    planes.retain(|plane| match plane.missing() {
        None => true,
        Some(why) => {
            eprintln!("SKIPPED: {}: {why}", plane.name());
            report.note(format!("Skipped: {}: {why}.", plane.name()));
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
    let columns = [
        "plane",
        "payload_bytes",
        "members",
        "sent_per_s",
        "taken",
        "replicas_per_s",
        "gbit_per_s",
        "ns_per_packet",
        "ns_per_copy",
        "copies_failed",
        "copies_lost",
    ];
    let mut report = Report::new("switch", what, &columns);
    report.note(
        "taken: the part of the packets sent that the switch took. replicas: copies that came out at \
         the ports' other ends; Gbit/s are of whole frames. failed: copies that a port did not take; \
         lost: copies that it took and that did not come out; in all repeats.",
    );
    report.note(
        "ns, kernel: time in the program by the kernel's statistics, in runs of their own, the \
         copying of frames and the way to the ports' other ends included. ns, logic: all of its time. \
         Sender, switch and receiving ends share this host's cores.",
    );
    report
}

fn row(case: &Case, runs: &[Run]) -> Vec<Value> {
    let of = |what: &dyn Fn(&Run) -> f64| median(runs.iter().map(what).collect());
    let whole = |value: f64| if value.is_nan() { Value::Null } else { json!(value.round() as u64) };
    let total = |what: &dyn Fn(&Run) -> u64| -> u64 { runs.iter().map(what).sum() };
    let replicas_per_s = of(&|run| run.carried.arrived as f64 / run.carried.seconds);
    let frame_bits = (case.frame().len() * 8) as f64;
    let is_sent = case.plane != Plane::Logic;
    let if_sent = |value: Value| if is_sent { value } else { Value::Null };
    vec![
        json!(case.plane.name()),
        json!(case.payload_bytes),
        json!(case.members),
        if_sent(whole(of(&|run| run.carried.sent as f64 / run.carried.seconds))),
        if_sent(number(of(&|run| run.carried.requests as f64 / run.carried.sent as f64))),
        whole(replicas_per_s),
        number(replicas_per_s * frame_bits / 1e9),
        whole(of(&|run| run.ns_per_packet)),
        whole(of(&|run| run.ns_per_packet / case.members as f64)),
        if_sent(json!(total(&|run| run.carried.copies_failed))),
        if_sent(json!(total(&|run| run.carried.copies.saturating_sub(run.carried.arrived)))),
    ]
}
