//! Options of commands that start receivers on hosts and replicate to them.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use files::{HostPlan, PortRange, PushSettings, Reach};
use rdmc::{CompletionMode, Fabric, Protection, Secret, Window};

use crate::{
    config,
    credentials::CredentialFiles,
    failure::Failure,
    help::{EXPERTS, LISTENING, REPORTS, STARTING, USUAL},
    hosts::{self, Host},
    hosts_file, input,
    launch::{DEPTH_MAX, FANOUT, Launcher, Program, SSH},
    network::Choice,
    output::InUse,
    slurm,
    transfer::OrAuto,
};

/// How receivers are started and reached.
#[derive(Debug, clap::Args)]
pub struct Hosting {
    /// Protection of blocks: encrypt or none
    ///
    /// By default blocks over TCP are encrypted, and every host checks them before it uses or relays them; networks such as RDMA
    /// carry blocks without protection. encrypt: blocks are sent over TCP only; none: for measurements and trusted networks.
    /// Control connections are always encrypted. With --local the default is none.
    #[arg(long, value_name = "HOW", value_parser = protections(), hide_possible_values = true, help_heading = USUAL)]
    protect: Option<Protection>,

    /// Command that runs a program on the host {host}, for example over ssh
    ///
    /// It is split into words as a shell would, but not run by one. The options of the default override settings of ~/.ssh/config for
    /// interactive logins (forwarding, RemoteCommand, RequestTTY) that can keep receivers from starting.
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = SSH,
        conflicts_with = "local",
        help_heading = STARTING
    )]
    launcher: String,

    /// Path of the rdmc program on the hosts; may contain spaces
    ///
    /// With ssh, ~/ is the home directory there.
    #[arg(long, value_name = "PATH", default_value = "rdmc", conflicts_with = "local",
          value_parser = NonEmptyStringValueParser::new(), help_heading = STARTING)]
    remote_rdmc: String,

    /// Copy this program, or the one at PATH, to each host and run it there: rdmc need not be installed
    ///
    /// The copy is in a private temporary directory, which is removed when the program runs. Hosts of another
    /// architecture need a program for it: --copy-self=PATH.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "/proc/self/exe",
          conflicts_with_all = ["local", "remote_rdmc"], help_heading = STARTING)]
    copy_self: Option<PathBuf>,

    /// Maximum number of receivers that are being started at the same time
    ///
    /// The next one is started when one of these has connected. If some do not connect, all others are still started within half of
    /// --timeout.
    #[arg(long, value_name = "N", default_value_t = FANOUT, value_parser = clap::value_parser!(u16).range(1..=1024),
          help_heading = STARTING)]
    fanout: u16,

    /// Depth of the tree of logins: 1, or up to 4 if hosts may log in to further hosts
    ///
    /// Hosts run the same launcher, with the same options. If a host cannot log in to another one, this machine
    /// does. [default: 1 for up to 128 hosts, else the least that --fanout allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(DEPTH_MAX)),
          conflicts_with = "local", help_heading = STARTING)]
    launch_depth: Option<u8>,

    /// How long receivers may take to start and connect
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600),
          help_heading = STARTING)]
    timeout: u64,

    /// IP address of this machine that the hosts connect to [default: the one that most of them use]
    #[arg(long, value_name = "IP", conflicts_with = "local", help_heading = STARTING)]
    advertise: Option<IpAddr>,

    /// TCP ports on which this machine and the hosts listen for each other: 7000-7100 [default: any]
    ///
    /// For firewalls between them. Each concurrent push needs two ports at this machine and one at each host (docs/guide/ports.md).
    #[arg(long, value_name = "FIRST-LAST", help_heading = STARTING)]
    ports: Option<PortRange>,

    /// Network interface of this machine that the hosts connect to, for control and for data
    ///
    /// Applies to receivers that this command starts. [default: the fastest one that the hosts can reach]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["local", "advertise"], help_heading = STARTING)]
    interface: Option<String>,

    /// Like --interface, selected by a range of addresses, such as 10.1.0.0/16
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = Choice::parse_range,
          conflicts_with_all = ["local", "advertise", "interface"], help_heading = STARTING)]
    network: Option<Choice>,

    #[command(flatten, next_help_heading = LISTENING)]
    credentials: CredentialFiles,

    /// Write a trace of all members for https://ui.perfetto.dev or chrome://tracing
    ///
    /// Receivers that listen write their own traces: see `rdmc help receive`.
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    pub trace: Option<PathBuf>,

    /// Log to stderr (RUST_LOG sets the level); a push also lists what it changes at each host
    #[arg(short, long, help_heading = REPORTS)]
    pub verbose: bool,

    /// How long a host may be silent before it counts as lost, 0.2 to 3600
    ///
    /// A host whose connections break counts as lost at once.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = failure_deadline, help_heading = EXPERTS)]
    failure_deadline: Duration,

    /// Receives and sends, in blocks, that each member posts ahead
    ///
    /// [default: 512 KiB of blocks, but at least 8 blocks and 4 per partner, and at most 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = EXPERTS)]
    pub window: Option<u32>,

    /// How members wait for completions
    ///
    /// event sleeps, polling occupies a core of each member, hybrid polls for 50 ms after each completion.
    #[arg(long, value_name = "MODE", default_value_t, value_parser = completion_modes(), help_heading = EXPERTS)]
    pub completion: CompletionMode,

    /// TCP connections per neighbour; more than one helps only on very fast links
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8),
          help_heading = EXPERTS)]
    pub streams: u8,
}

impl Hosting {
    /// The launcher for this machine or for the hosts.
    ///
    /// Errors: the launcher is not a command.
    pub fn launcher(&self, local: bool) -> Result<Launcher, Failure> {
        self.limited(match local {
            true => Launcher::local(self.verbose),
            false => Launcher::from_template(&self.launcher, &self.remote_rdmc, self.verbose)?,
        })
    }

    /// The launcher for the nodes of a Slurm job.
    ///
    /// Errors: the program to copy cannot be read.
    pub fn slurm_launcher(&self) -> Result<Launcher, Failure> {
        self.limited(Launcher::of_lists(&slurm::WORDS, &self.remote_rdmc, self.verbose))
    }

    fn limited(&self, launcher: Launcher) -> Result<Launcher, Failure> {
        let timeout = Duration::from_secs(self.timeout);
        let program = self.copy_self.as_deref().map(Program::at).transpose()?;
        let launcher = launcher.copying(program);
        let choice = match (&self.interface, &self.network) {
            (Some(name), _) => Choice::Interface(name.clone()),
            (None, network) => network.clone().unwrap_or_default(),
        };
        let launcher = launcher.over(choice);
        Ok(launcher.limited(self.fanout.into(), self.launch_depth, timeout))
    }

    /// Adds the input files that these options name.
    pub fn add_to(&self, in_use: &mut InUse) {
        self.credentials.add_to(in_use);
        if let Some(path) = config::path() {
            in_use.add("the configuration", path);
        }
    }

    /// The protection of blocks. By default none on one machine, where it would cost much of the speed and detect
    /// nothing (docs/decisions/links.md).
    pub fn protection(&self, local: bool) -> Option<Protection> {
        self.protect.or(local.then_some(Protection::None))
    }

    /// Settings for these hosts, with these options.
    ///
    /// Errors: missing or invalid credentials; no random numbers.
    pub fn settings(&self, hosts: Vec<HostPlan>, local: bool) -> Result<PushSettings, Failure> {
        let listening = hosts.iter().any(|host| matches!(host.reach, Reach::Listens(_)));
        let credentials = self.credentials.read(&[])?;
        if listening && credentials.is_none() {
            let what = "receivers that listen (HOST:PORT) need --secret-file with the same secret, or \
                        --cert, --key and --ca; to use another port for ssh, give only the host here, and the port in \
                        ~/.ssh/config or --launcher";
            return Err(Failure::Usage(what.into()));
        }
        let secret = Secret::random().map_err(Failure::while_doing("making a secret"))?;
        let mut settings = PushSettings::new(hosts, secret);
        settings.credentials = credentials;
        settings.window = self.window.map(|blocks| Window { receives: blocks, sends: blocks });
        settings.completion = self.completion;
        settings.protection = self.protection(local);
        settings.streams = self.streams;
        settings.local_only = local;
        settings.advertise = self.advertise;
        settings.ports = self.ports;
        settings.start_timeout = Duration::from_secs(self.timeout);
        settings.failure_deadline = self.failure_deadline;
        Ok(settings)
    }
}

fn failure_deadline(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 2.5".to_owned())?;
    let deadline = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    files::check_failure_deadline(deadline)?;
    Ok(deadline)
}

/// The hosts of `--to` and of `--hosts-file`.
///
/// Errors: invalid or repeated names.
pub fn named(list: Option<&str>, file: Option<&PathBuf>) -> Result<Vec<Host>, Failure> {
    let mut all = Vec::new();
    if let Some(list) = list {
        let wrong = |error| Failure::Usage(format!("--to: {error}"));
        all.extend(hosts::parse(list).map_err(wrong)?);
    }
    if let Some(path) = file {
        let invalid = |failure| match failure {
            Failure::Failed(text) => Failure::Usage(text),
            other => other,
        };
        let text = input::read_or_standard_input(path, input::LIST_BYTES_MAX).map_err(invalid)?;
        let wrong = |error| Failure::Usage(format!("{}: {error}", path.display()));
        for host in hosts_file::parse(&text).map_err(wrong)? {
            if all.iter().any(|known: &Host| known.name == host.name) {
                return Err(wrong(format!("host {} is named twice", host.name)));
            }
            all.push(host);
        }
    }
    Ok(all)
}

/// The plan of one host, in rack 0 unless a file of hosts puts it into another.
pub fn plan(host: Host, destination: String) -> HostPlan {
    let reach = if host.listens { Reach::Listens(host.name.clone()) } else { Reach::Calls };
    HostPlan { name: host.name, destination, rack: host.rack.unwrap_or(0), reach }
}

/// The name of a receiver on this machine, counted from 1.
pub fn local_name(number: usize) -> String {
    format!("local-{number}")
}

/// `auto`, or a fabric by name.
pub fn parse_fabric(text: &str) -> Result<OrAuto<Fabric>, rdmc::Error> {
    match text {
        "auto" => Ok(OrAuto(None)),
        name => name.parse().map(|fabric| OrAuto(Some(fabric))),
    }
}

fn completion_modes() -> impl TypedValueParser<Value = CompletionMode> {
    PossibleValuesParser::new(CompletionMode::ALL.map(CompletionMode::name))
        .try_map(|name| name.parse())
}

/// Parses a protection by its name.
pub fn protections() -> impl TypedValueParser<Value = Protection> {
    PossibleValuesParser::new(Protection::ALL.map(Protection::name)).try_map(|name| name.parse())
}
