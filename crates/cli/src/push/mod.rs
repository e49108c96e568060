//! `rdmc push`: one file to many hosts.

mod placing;
mod progress;
pub mod summary;

use std::{net::IpAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use files::{PushSettings, Source};
use rdmc::{Algorithm, BLOCK_BYTES_DEFAULT, CompletionMode, Fabric, Secret, Window};

use crate::{failure::Failure, interrupt::Interrupt, launch::Launcher, replicate::replicate, size};
pub use placing::local_hosts;
pub use progress::Display;

const EXAMPLES: &str = "\
Examples:
  rdmc push model.safetensors --to node[01-16]
      to the same path on 16 hosts, by ssh (rdmc has to be installed there)
  rdmc push image.img --to a,b --dest /srv/images/ --remote-rdmc /opt/rdmc/bin/rdmc
      into a directory, with an rdmc that is not in the PATH there
  rdmc push data.tar --to n[1-4] --dest '/scratch/{host}/data.tar' --launcher 'ip netns exec {host}'
      with another launcher: anything that runs a command on a host and passes standard input on
  rdmc push data.tar --to a:7000,b:7000 --secret-file secret
      to receivers that were started by `rdmc receive --listen`
  rdmc push data.tar --local 3
      to three receivers on this machine, to try it out

A copy appears under its name only when it is whole, verified and on disk; a file of that name is
replaced in one step. Mode and modification time are kept. Hosts that fail are named, and the
others go on.

Exit codes:
  0    every host has a verified copy
  1    no host has one
  2    the arguments make no sense
  3    some hosts have one; the others are named
  130  interrupted; all receivers were told to clean up";

/// Replicate a file to many hosts
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true))]
pub struct Args {
    /// The file to replicate
    file: PathBuf,

    /// Hosts, with ranges: node[01-16],login,n[1,3,5-8]. HOST:PORT is a receiver that listens
    #[arg(long, value_name = "HOSTS", group = "where")]
    to: Option<String>,

    /// A file of hosts, one or a list on each line; # starts a comment
    #[arg(long, value_name = "FILE", group = "where")]
    hosts_file: Option<PathBuf>,

    /// N receivers on this machine, named local-1 to local-N
    #[arg(long, value_name = "N", group = "where", conflicts_with_all = ["to", "hosts_file"],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    local: Option<u16>,

    /// Path of the copy; {host} stands for the host, and the file's name is added to a path that
    /// ends with /. Default: the same absolute path, the file's name at receivers that listen, and
    /// ./rdmc-local/{host}/NAME with --local
    #[arg(long, value_name = "PATH")]
    dest: Option<String>,

    /// What runs a command on a host; split into words without a shell
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes {host}")]
    launcher: String,

    /// The rdmc program on the hosts
    #[arg(long, value_name = "PATH", default_value = "rdmc")]
    remote_rdmc: String,

    /// The secret of receivers that listen, as `rdmc secret` prints it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// How blocks travel; chain-of-racks and nested-pipelines need --racks
    #[arg(long, default_value = "binomial-pipeline", value_parser = algorithms())]
    algorithm: Algorithm,

    /// The size of each rack in the order this machine, first host, second host, ...: 4,4,2 puts
    /// this machine and the first three hosts in one rack
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    racks: Option<Vec<u32>>,

    /// The relay unit: small ones fill the pipeline sooner, large ones cost less processor time.
    /// Default: 64KiB, or 256KiB with --local
    #[arg(long, value_name = "SIZE", value_parser = size::parse_block)]
    block_size: Option<u64>,

    /// Receives and sends that each member keeps posted ahead
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: u32,

    /// The network that blocks move over: auto (the best that all hosts have), tcp, or a libfabric
    /// provider: verbs, efa, cxi, shm, sockets, ofi-tcp; with devices of this host as in
    /// verbs:mlx5_0,mlx5_1. `rdmc doctor` lists what this host has
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_fabric)]
    fabric: FabricChoice,

    /// How all members wait for completions: event sleeps, polling takes a core of its own at each
    /// member, hybrid polls for 50 ms after each completion
    #[arg(long, value_name = "MODE", default_value_t, value_parser = completion_modes())]
    completion: CompletionMode,

    /// TCP connections to each neighbour; more than one only helps on very fast links
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    streams: u8,

    /// Where the hosts reach this machine; default: found out by their calls
    #[arg(long, value_name = "IP")]
    advertise: Option<IpAddr>,

    /// How long receivers may take to start and call back
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// Print a summary as one JSON object
    #[arg(long)]
    json: bool,

    /// No progress and no summary; failures are still named on standard error
    #[arg(short, long)]
    quiet: bool,

    /// Say on standard error what happens (or choose by RUST_LOG)
    #[arg(short, long)]
    verbose: bool,
}

/// Which fabric was asked for; `None` for `auto`.
#[derive(Clone, Debug)]
struct FabricChoice(Option<Fabric>);

/// `auto`, or a fabric by name.
fn parse_fabric(text: &str) -> Result<FabricChoice, rdmc::Error> {
    match text {
        "auto" => Ok(FabricChoice(None)),
        name => name.parse().map(|fabric| FabricChoice(Some(fabric))),
    }
}

fn completion_modes() -> impl TypedValueParser<Value = CompletionMode> {
    PossibleValuesParser::new(CompletionMode::ALL.map(CompletionMode::name))
        .try_map(|name| name.parse())
}

/// The algorithms by name.
pub fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name)).try_map(|name| name.parse())
}

/// Replicates, and says how it went.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    crate::start_logging(args.verbose);
    let source = Source::open(&args.file).map_err(Failure::because)?;
    let settings = settings(args)?;
    let launcher = match args.local {
        Some(_) => Launcher::local(args.verbose)?,
        None => Launcher::from_template(&args.launcher, &args.remote_rdmc, args.verbose)?,
    };
    if args.local.is_some() && args.dest.is_none() {
        placing::make_local_directories(&settings.hosts)?;
    }
    let interrupt = Interrupt::catch()?;
    let bytes = source.manifest().bytes;
    let names: Vec<String> = settings.hosts.iter().map(|host| host.name.clone()).collect();
    let mut display = Display::new(&names, bytes, args.quiet || args.verbose);
    let facts = summary::Facts::new(&args.file, bytes, &settings);
    let report = replicate(source, settings, &launcher, &interrupt, &mut |event| {
        display.show(&event);
    });
    display.finish();
    let report = report?;
    facts.print(&report, args.json, args.quiet)?;
    if interrupt.happened() && report.published() < report.hosts.len() {
        return Err(Failure::Interrupted);
    }
    Ok(summary::exit_code(&report))
}

/// Between processes of one machine the processors are the limit, and larger blocks take less of
/// them (docs/decisions/block-size.md).
const BLOCK_BYTES_LOCAL: u64 = 256 << 10;

fn settings(args: &Args) -> Result<PushSettings, Failure> {
    let hosts = placing::hosts(args)?;
    let listening = hosts.iter().any(|host| matches!(host.reach, files::Reach::Listens(_)));
    let secret = match &args.secret_file {
        Some(path) => read_secret(path)?,
        None if listening => {
            return Err(Failure::Usage(
                "receivers that listen (HOST:PORT) need --secret-file: the file that they were started with"
                    .into(),
            ));
        }
        None => Secret::random().map_err(Failure::while_doing("making a secret"))?,
    };
    let mut settings = PushSettings::new(hosts, secret);
    placing::put_into_racks(&mut settings, args)?;
    settings.algorithm = args.algorithm;
    let usual = if args.local.is_some() { BLOCK_BYTES_LOCAL } else { BLOCK_BYTES_DEFAULT };
    settings.block_bytes = args.block_size.unwrap_or(usual);
    settings.window = Window { receives: args.window, sends: args.window };
    settings.fabric = args.fabric.0.clone();
    settings.completion = args.completion;
    settings.streams = args.streams;
    settings.local_only = args.local.is_some();
    settings.advertise = args.advertise;
    settings.start_timeout = Duration::from_secs(args.timeout);
    Ok(settings)
}

/// Reads a secret from a file. Errors: unreadable, no secret.
pub fn read_secret(path: &std::path::Path) -> Result<Secret, Failure> {
    let text = std::fs::read_to_string(path)
        .map(zeroize::Zeroizing::new)
        .map_err(Failure::while_doing(path.display()))?;
    Secret::from_hex(&text).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}
