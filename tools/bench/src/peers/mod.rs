//! Other broadcasts beside rdmc, in the same lab and in the same run: MPI_Bcast, Gloo, plain sockets, IP multicast
//! (docs/results/peers.md).

mod contest;
mod gloo;
pub mod meeting;
pub mod mpi;
mod multicast;
mod own;
pub mod site;
mod sockets;
mod times;
mod transfer;
pub mod turn;
pub mod workspace;

use lab::{Lab, LabSettings, Link};
use plan::{choice::ChoiceRequest, costs::Machine, size};
use rdmc::{Algorithm, Fabric};
use serde_json::json;

use self::{
    contest::{Path, Peer, PeerResult, Rdmc, field, rounds},
    site::{Load, Site},
    workspace::Workspace,
};
use crate::{
    interrupt::Interrupt,
    links,
    member::why_through_sockets,
    member_processes::{Host, Measured},
    outcome::Outcome,
    report::{Cell, Output, Report, median, number},
};

pub use self::{own::run as run_peer, transfer::Args as PeerArgs};

/// Names that `--only` takes.
const NAMES: [&str; 8] = ["rdmc", "openmpi", "mpich", "gloo", "copies", "chain", "udpcast", "uftp"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of groups, the root included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4,8,16",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Rate of each link in Mbit/s of TCP payload, one for each size of group, or one for all.
    /// Unless given: 4000 / members, at most 1000, which two cores can carry
    #[arg(long, value_name = "MBIT", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: Vec<u64>,
    /// Lengths of the object, in whole words of 8 bytes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = whole_words,
          default_value = "256MiB,8MiB")]
    bytes: Vec<u64>,
    /// Links that let 18 kB through at once instead of 2 ms: bursts hide store-and-forward
    #[arg(long, conflicts_with = "local")]
    small_burst: bool,
    /// On this machine without namespaces: bound by processors and memory
    #[arg(long, conflicts_with = "rate")]
    local: bool,
    /// Only these
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
          value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    only: Vec<String>,
    /// Algorithm, block size and window of rdmc, such as chain:64KiB or chain:64KiB:16. Unless given:
    /// what the cost model takes for length, members and rate, and the other of pipeline and chain
    #[arg(long, value_name = "ALGORITHM:BLOCK[:WINDOW]", value_delimiter = ',', value_parser = rdmc_settings)]
    rdmc: Vec<Rdmc>,
    /// How many turns each peer has; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

fn whole_words(text: &str) -> Result<u64, String> {
    match size::parse_nonzero(text).map_err(|error| error.to_string())? {
        bytes if bytes % 8 == 0 && bytes < 1 << 31 => Ok(bytes),
        _ => Err("a multiple of 8 below 2 GiB, which MPI can count".to_owned()),
    }
}

fn rdmc_settings(text: &str) -> Result<Rdmc, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (algorithm, block, window) = match parts[..] {
        [algorithm, block] => (algorithm, block, None),
        [algorithm, block, window] => {
            let window = window.parse().ok().filter(|window| (1..=1024).contains(window));
            (algorithm, block, Some(window.ok_or("a window is 1 to 1024")?))
        }
        _ => return Err("ALGORITHM:BLOCK[:WINDOW], such as chain:64KiB".to_owned()),
    };
    let algorithm = algorithm.parse().map_err(|error| format!("{error}"))?;
    let block_bytes = size::parse_nonzero(block).map_err(|error| error.to_string())?;
    Ok(Rdmc { algorithm, block_bytes, window, path: Path::Usual })
}

impl Args {
    /// Those of `--rdmc`; else the cost model's choice, the other of pipeline and chain, and on one machine the model's
    /// choices through sockets and over libfabric's shared memory.
    fn rdmc(&self, members: u32, message_bytes: u64, link: Option<Link>) -> Vec<Rdmc> {
        if !self.rdmc.is_empty() {
            return self.rdmc.clone();
        }
        let pick = |algorithm, path| {
            let costs = match (link, path) {
                (Some(link), _) => links::costs(members, link),
                (None, Path::Usual) => {
                    Fabric::Tcp.costs_of_one_machine(members, Fabric::this_machine())
                }
                (None, Path::Sockets) => {
                    let machine = Machine { copies_directly: false, ..Fabric::this_machine() };
                    Fabric::Tcp.costs_of_one_machine(members, machine)
                }
                (None, Path::SharedMemory) => {
                    Fabric::libfabric("shm").costs_of_one_machine(members, Fabric::this_machine())
                }
            };
            let request =
                ChoiceRequest { members, racks: &[], message_bytes, algorithm, block_bytes: None };
            let choice = request.choose(&costs);
            Rdmc {
                algorithm: choice.algorithm,
                block_bytes: choice.block_bytes,
                window: None,
                path,
            }
        };
        let best = pick(None, Path::Usual);
        let other = match best.algorithm {
            Algorithm::Chain => Algorithm::BinomialPipeline,
            _ => Algorithm::Chain,
        };
        let mut all = vec![best, pick(Some(other), Path::Usual)];
        if link.is_none() {
            all.extend([Path::Sockets, Path::SharedMemory].map(|path| pick(None, path)));
        }
        all
    }

    fn is_wanted(&self, peer: &Peer) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == peer.key())
    }
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let mut workspace = Workspace::open()?;
    let what = match (args.local, args.small_burst) {
        (true, _) => "one process per member on this machine",
        (_, true) => "one process per network namespace, links shaped at both ends, burst 18 kB",
        (_, false) => "one process per network namespace, links shaped at both ends, burst 2 ms",
    };
    let sockets = if args.local { why_through_sockets(&Fabric::Tcp) } else { String::new() };
    let what = format!("{what}{sockets}; median of {} turns", args.repeats);
    let mut report = Report::new("peers", what);
    for (index, &members) in args.members.iter().enumerate() {
        let (link, lab);
        let site = if args.local {
            let hosts = vec![Host::here(); members as usize];
            Site { hosts, device: "lo", is_lab: false, link: None }
        } else {
            link = links::link(&args.rate, index, members, args.small_burst);
            lab = Lab::create(&LabSettings::new(members, link))?;
            Site { hosts: lab.hosts(), device: "eth0", is_lab: true, link: Some(link) }
        };
        for &bytes in &args.bytes {
            // Short transfers come several to a turn, since starting takes longer than they do.
            let load = Load { bytes, repeats: if bytes >= 64 << 20 { 1 } else { 3 } };
            let mut peers = field(&args.rdmc(members, bytes, site.link), &site, &load);
            peers.retain(|peer| args.is_wanted(peer));
            let results = rounds(&peers, &site, &mut workspace, &load, args.repeats, &interrupt)?;
            for (peer, result) in peers.iter().zip(&results) {
                report.row(row(&site, bytes, peer, result));
            }
        }
    }
    report.note(
        "time: from the root's start to the last receiver. of rate: length / time / rate, its median, \
         lowest and highest. skew: from the first receiver to the last. cpu: processor time of all \
         members for each GiB that is delivered; relay cpu: of member 1 alone, which relays all of it \
         in a chain. docs/results/peers.md has each command.",
    );
    if let Some(list) = versions(&["openmpi-bin", "mpich", "libgloo-dev", "udpcast", "uftp"]) {
        report.note(format!("Installed: {list}."));
    }
    report.print(&args.output);
    Ok(())
}

/// Those of these Debian packages that are installed, with their versions.
pub fn versions(packages: &[&str]) -> Option<String> {
    let mut query = std::process::Command::new("dpkg-query");
    let output =
        query.args(["-W", "-f", "${Package} ${Version}, "]).args(packages).output().ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    Some(list.trim_end_matches(", ").to_owned()).filter(|list| !list.is_empty())
}

fn row(site: &Site, bytes: u64, peer: &Peer, result: &PeerResult) -> Vec<Cell> {
    let receivers = site.hosts.len() as f64 - 1.0;
    let length_gib = bytes as f64 / (1_u64 << 30) as f64;
    let delivered_gib = length_gib * receivers;
    let all = |what: fn(&Measured) -> f64| result.measured.iter().map(what).collect::<Vec<_>>();
    let seconds = all(|measured| measured.seconds);
    let fastest = seconds.iter().copied().reduce(f64::min).unwrap_or(f64::NAN);
    let slowest = seconds.iter().copied().reduce(f64::max).unwrap_or(f64::NAN);
    let middle = median(seconds);
    let mut row = vec![
        ("members", json!(site.hosts.len())),
        ("length", json!(size::show(bytes))),
        ("peer", json!(peer.name())),
        ("settings", json!(peer.settings())),
        ("time_s", number(middle)),
    ];
    match site.link {
        Some(Link { rate, .. }) => {
            let of_rate =
                |seconds: f64| number(bytes as f64 * 8.0 / seconds / rate.bits_per_s() as f64);
            row.extend([
                ("of_rate", of_rate(middle)),
                ("lowest", of_rate(slowest)),
                ("highest", of_rate(fastest)),
            ]);
        }
        None => row.extend([("fastest_s", number(fastest)), ("slowest_s", number(slowest))]),
    }
    row.extend([
        ("skew_s", number(median(all(|measured| measured.skew_seconds)))),
        ("cpu_s_per_gib", number(median(all(|measured| measured.cpu_seconds)) / delivered_gib)),
        (
            "relay_cpu_s_per_gib",
            number(median(all(|measured| measured.relay_cpu_seconds)) / length_gib),
        ),
        ("trouble", json!(result.trouble)),
    ]);
    row
}
