//! Options of commands that start receivers on hosts and replicate to them.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use files::{HostPlan, PushSettings, Reach};
use rdmc::{CompletionMode, Fabric, Protection, Secret, Window};

use crate::{
    credentials::CredentialFiles,
    failure::Failure,
    hosts::{self, Host},
    input,
    launch::Launcher,
    output::InUse,
    way::OrAuto,
};

/// How receivers are started and found.
#[derive(Debug, clap::Args)]
pub struct Hosting {
    /// What runs a command on a host; split into words without a shell
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o BatchMode=yes {host}",
        conflicts_with = "local"
    )]
    launcher: String,

    /// How many launchers may be starting receivers at the same time. The next ones wait until those
    /// have called back, or --timeout would come too early for all
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    fanout: u16,

    /// The rdmc program on the hosts: one path, which may have spaces; ~/ is the home directory there
    /// where ssh is the launcher
    #[arg(long, value_name = "PATH", default_value = "rdmc", conflicts_with = "local", value_parser = NonEmptyStringValueParser::new())]
    remote_rdmc: String,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Receives and sends that each member keeps posted ahead [default: half a megabyte of blocks, 8 to 64 and 4 for each partner]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub window: Option<u32>,

    /// How all members wait for completions: event sleeps, polling takes a core of its own at each
    /// member, hybrid polls for 50 ms after each completion
    #[arg(long, value_name = "MODE", default_value_t, value_parser = completion_modes())]
    pub completion: CompletionMode,

    /// TCP connections to each neighbour; more than one only helps on very fast links
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub streams: u8,

    /// Encrypt blocks on their way; takes the fabric tcp. What hosts say to each other about them
    /// is encrypted in any case
    #[arg(long)]
    encrypt: bool,

    /// How blocks are protected over TCP. authenticate: every host checks all of them before it
    /// uses or relays them; none: for measuring, and for networks that are trusted; encrypt: as
    /// --encrypt [default: authenticate; none with --local]
    #[arg(long, value_name = "HOW", value_parser = protections(), conflicts_with = "encrypt")]
    protect: Option<Protection>,

    /// Where the hosts reach this machine; default: found out by their calls
    #[arg(long, value_name = "IP", conflicts_with = "local")]
    advertise: Option<IpAddr>,

    /// How long receivers may take to start and call back
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// How long a host may give no sign of life before it is lost to the others, 0.2 to 3600. One
    /// whose connections break is lost at once
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = failure_deadline)]
    failure_deadline: Duration,

    /// Write what each member does when, for https://ui.perfetto.dev or chrome://tracing. Receivers
    /// that listen write traces of their own: see `rdmc help receive`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Say on standard error what happens (or choose by RUST_LOG)
    #[arg(short, long)]
    pub verbose: bool,
}

impl Hosting {
    /// What starts receivers: on this machine, or on the hosts.
    ///
    /// Errors: the launcher is no command.
    pub fn launcher(&self, local: bool) -> Result<Launcher, Failure> {
        let launcher = match local {
            true => Launcher::local(self.verbose),
            false => Launcher::from_template(&self.launcher, &self.remote_rdmc, self.verbose),
        }?;
        Ok(launcher.paced(self.fanout.into(), Duration::from_secs(self.timeout)))
    }

    /// Files that these options name for reading.
    pub fn add_to(&self, in_use: &mut InUse) {
        self.credentials.add_to(in_use);
    }

    /// How blocks are protected. On one machine nothing can happen to them that protection would
    /// notice, and it costs much of the speed (docs/decisions/links.md).
    pub fn protection(&self, local: bool) -> Protection {
        match (self.protect, self.encrypt) {
            (Some(protection), _) => protection,
            (None, true) => Protection::Encrypt,
            (None, false) if local => Protection::None,
            (None, false) => Protection::default(),
        }
    }

    /// Settings for these hosts, with all of these options.
    ///
    /// Errors: no credentials where they are needed, or not what they should be; no secret can be
    /// made.
    pub fn settings(&self, hosts: Vec<HostPlan>, local: bool) -> Result<PushSettings, Failure> {
        let listening = hosts.iter().any(|host| matches!(host.reach, Reach::Listens(_)));
        let credentials = self.credentials.read(&[])?;
        if listening && credentials.is_none() {
            let what = "receivers that listen (HOST:PORT) need --secret-file, the file that they \
                        were started with, or --cert, --key and --ca";
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

/// Hosts of a list and of a file of lists, which `option` names in errors.
///
/// Errors: no host names, or one twice.
pub fn named(
    option: &str,
    list: Option<&str>,
    file: Option<&PathBuf>,
) -> Result<Vec<Host>, Failure> {
    let mut all = Vec::new();
    if let Some(list) = list {
        let wrong = |error| Failure::Usage(format!("{option}: {error}"));
        all.extend(hosts::parse(list).map_err(wrong)?);
    }
    if let Some(path) = file {
        let text = input::read(path, input::LIST_BYTES_MAX)?;
        let wrong = |error| Failure::Usage(format!("{}: {error}", path.display()));
        for host in hosts::parse_lines(&text).map_err(wrong)? {
            if all.contains(&host) {
                return Err(wrong(format!("host {} is named twice", host.name)));
            }
            all.push(host);
        }
    }
    Ok(all)
}

/// The part of one host, in rack 0.
pub fn plan(host: Host, destination: String) -> HostPlan {
    let reach = if host.listens { Reach::Listens(host.name.clone()) } else { Reach::Calls };
    HostPlan { name: host.name, destination, rack: 0, reach }
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

fn protections() -> impl TypedValueParser<Value = Protection> {
    PossibleValuesParser::new(Protection::ALL.map(Protection::name)).try_map(|name| name.parse())
}
