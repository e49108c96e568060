//! `rdmc receive`: the receiver of a push.

mod limits;
mod line_limit;
mod listening;
mod log;
mod root;
mod serving;
mod sessions;

use std::{
    env,
    io::{self, BufRead, IsTerminal, Read, Write},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::builder::NonEmptyStringValueParser;
use files::receiver::{self, Output, Placement, ReceiverSettings};
use plan::size;
use rdmc::Secret;
use session::Credentials;
use trace::Writer;

use limits::LimitOptions;
pub use line_limit::LineLimit;
use listening::Listening;
pub use serving::failure;
use serving::serve;

use crate::{
    credentials::CredentialFiles,
    failure::{Exit, Failure, print_message},
    help::{EXPERTS, REPORTS, USUAL},
    home,
    interrupt::{Interrupt, survive_file_size_limits},
    invitation::{FASTER_NETWORK, Invitation, LINE_BYTES_MAX, NODE_NAME},
    logging,
    network::{self, Network},
    output::InUse,
    push::reads_urls,
    recording, switches,
    this_machine::own_name,
};

/// How long connecting to a root may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The error if neither --listen nor --join is given.
const NEEDED: &str = "receive needs --listen IP:PORT, or --join HOST:PORT: see `rdmc help receive`";

const EXAMPLES: &str = "\
Example, for hosts without ssh:
  (umask 077; rdmc secret > secret)            once; copy the file to all hosts over a secure channel
  rdmc receive --listen 0.0.0.0:7000 --secret-file secret --dir /srv/incoming
  rdmc push FILE --to HOST:7000 --secret-file secret     on the host that has the file

With certificates that an authority (ca.pem) has issued for each host's name (see docs/guide/security.md):
  rdmc receive --listen 0.0.0.0:7000 --cert host.pem --key host.key --ca ca.pem \\
      --allow login1 --dir /srv/incoming
  rdmc push FILE --to HOST:7000 --cert login1.pem --key login1.key --ca ca.pem

Joining a running push that does not name this host:
  rdmc receive --join ROOT:7001 --secret-file secret --dir /srv/incoming
  rdmc push FILE --to a,b --admit 0.0.0.0:7001 --secret-file secret     on the host that has the file

A stream, to a program on each host:
  rdmc receive --listen 0.0.0.0:7000 --secret-file secret --stdout | tar x
  tar c DIR | rdmc push - --to HOST:7000 --secret-file secret     on the host that has the directory

Holders of the secret, or of an accepted certificate, may write files below the directory and nowhere else.
Names and digests are always encrypted in transit, contents unless the push has --protect none or goes over
RDMA, which a receiver refuses unless it allows that (--protect none, --fabric).

SIGTERM ends --listen with exit code 0. Partial copies are kept; the next push of the same file to the same
destination resumes them.";

/// Receive files (`rdmc push` runs this on each host)
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, next_help_heading = USUAL)]
pub struct Args {
    /// Listen for pushes on this address and port (port 0: a free one, which is printed)
    #[arg(long, value_name = "IP:PORT", requires_all = ["credentials", "into"])]
    listen: Option<SocketAddr>,

    /// Join the push that listens at this host and port (`rdmc push --admit`), and end with it
    ///
    /// The push may already be running. The exit code reports this host's copy only.
    #[arg(long, value_name = "HOST:PORT", requires_all = ["credentials", "dir"], conflicts_with_all = ["listen", "session", "once"])]
    join: Option<String>,

    /// Directory for files; destinations outside it are refused
    #[arg(long, value_name = "DIR", group = "into")]
    dir: Option<PathBuf>,

    /// Write one stream (`rdmc push -`) to standard output, then exit
    #[arg(long, group = "into", conflicts_with_all = ["join", "session"])]
    stdout: bool,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Accept only roots whose certificate has this name (subjectAltName)
    ///
    /// May be given several times. [default: all roots with a certificate of --ca]
    #[arg(long, value_name = "NAME", requires = "cert")]
    allow: Vec<String>,

    #[command(flatten)]
    limits: LimitOptions,

    /// Refuse a push of more than SIZE before anything is written, and end a stream that becomes longer
    ///
    /// Counts all files of the push, with their holes and extended attributes.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, conflicts_with = "session",
          help_heading = EXPERTS)]
    max_size: Option<u64>,

    /// Also serve `rdmc bench`; each of its messages may take up to half of the available memory
    #[arg(long, requires = "listen", conflicts_with = "stdout", help_heading = EXPERTS)]
    bench: bool,

    /// Serve one push, then exit with its result
    #[arg(long)]
    once: bool,

    /// Name or address by which roots name this host in --to; with --join, its name in the push
    ///
    /// With --listen, may be given several times: a push whose --to has another HOST, or a port other than this receiver's, fails
    /// here, as does one whose connection was redirected to this receiver. Use HOST:PORT if another port is forwarded to this one.
    /// Needed with --secret-file behind address translation. [default: the address that roots connect to; with --join, the host
    /// name]
    #[arg(long, value_name = "NAME", conflicts_with = "session", value_parser = NonEmptyStringValueParser::new(),
          help_heading = EXPERTS)]
    name: Vec<String>,

    /// Read an invitation from standard input and connect to the root; for launchers
    #[arg(long, conflicts_with_all = ["listen", "credentials", "dir", "trace", "once"], help_heading = EXPERTS)]
    session: bool,

    /// Write a trace of this member for https://ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    trace: Option<PathBuf>,

    /// Log to stderr (RUST_LOG sets the level)
    #[arg(short, long, help_heading = REPORTS)]
    verbose: bool,
}

/// Receives until done, or until SIGTERM with `--listen`.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.listen.is_none() && args.join.is_none() && !args.session {
        return Err(Failure::Usage(NEEDED.into()));
    }
    survive_file_size_limits().map_err(Failure::while_doing("catching signals"))?;
    let credentials = args.credentials.read(&args.allow)?;
    let Some(credentials) = credentials else { return answer_invitation(args.verbose) };
    let (directory, output) = match &args.dir {
        Some(directory) => (directory.clone(), None),
        None if args.stdout => (PathBuf::from("."), Some(Output::new(io::stdout()))),
        None => return answer_invitation(args.verbose),
    };
    if !directory.is_dir() {
        let shown = directory.display();
        return Err(Failure::Failed(format!("--dir {shown} is not a directory")));
    }
    if let (Some(_), Some(directory)) = (args.listen, &args.dir) {
        home::refuse(directory)?;
    }
    let once = args.once || args.stdout;
    let host = match (args.listen, &*args.name) {
        (Some(address), _) => address.to_string(),
        (None, [name]) => name.clone(),
        (None, []) => own_name(),
        (None, _) => {
            return Err(Failure::Usage("with --join, a host has only one --name".into()));
        }
    };
    let names = if args.listen.is_some() { args.name.clone() } else { Vec::new() };
    let mut in_use = InUse::default();
    args.credentials.add_to(&mut in_use);
    let name = format!("receiver {host}");
    let trace = args.trace.as_ref().map(|path| recording::standalone(path, &in_use, name));
    let interrupt = Interrupt::catch(false)?.begin();
    let (stop, placement) = (interrupt.flag(), Placement::Below(directory));
    let limits = Some(args.limits.limits()?);
    let settings = ReceiverSettings {
        names,
        output,
        bytes_max: args.max_size,
        listings: Arc::new(args.limits.listings()),
        switches: switches::agreement(&credentials),
        limits,
        stop,
        ..ReceiverSettings::new(host, placement)
    };
    recorded(trace.transpose()?, args.verbose, || match (args.listen, &args.join) {
        (Some(address), _) => {
            let (allowed, settings) = (&args.allow[..], &settings);
            let takes_part_in_benches = args.bench;
            Listening { address, allowed, settings, takes_part_in_benches, once }
                .run(credentials, &interrupt)
        }
        (None, Some(root)) => join(root, &credentials, &settings),
        (None, None) => Err(Failure::Usage(NEEDED.into())),
    })
}

fn join(root: &str, credentials: &Credentials, settings: &ReceiverSettings) -> Result<(), Failure> {
    let channel = receiver::join(root, credentials, CONNECT_TIMEOUT).map_err(|error| {
        Failure::Failed(format!("cannot join a push at {root}: {error} (is one running?)"))
    })?;
    // A certificate has already authenticated the named host.
    let root = matches!(credentials, Credentials::Secret(_)).then(|| channel.peer());
    let settings = ReceiverSettings { root, ..settings.clone() };
    let path = serve(channel, &settings, false).map_err(failure)?;
    if let Some(path) = path {
        print_message(path.display());
    }
    Ok(())
}

/// Runs `run` with logging, and with a trace if `writer` is given.
fn recorded(
    writer: Option<Writer>,
    verbose: bool,
    run: impl FnOnce() -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    logging::start(verbose, writer.as_ref());
    let outcome = run();
    let traced = recording::exit(writer.map_or(Ok(()), recording::close));
    outcome.map(|()| traced)
}

fn answer_invitation(verbose: bool) -> Result<Exit, Failure> {
    if io::stdin().is_terminal() {
        let hint = "is for launchers, which provide an invitation; use --listen";
        return Err(Failure::Usage(format!("receive --session {hint}")));
    }
    let mut line = zeroize::Zeroizing::new(String::new());
    io::stdin()
        .lock()
        .take(LINE_BYTES_MAX)
        .read_line(&mut line)
        .map_err(Failure::while_doing("standard input"))?;
    let invitation = Invitation::from_line(&line).map_err(Failure::Failed)?;
    let Invitation { host, secret, token, addresses, networks, port, makes_directories, trace } =
        invitation;
    let host = named(host)?;
    let writer = trace.as_ref().map(recording::to_standard_output).transpose();
    let writer = writer.map_err(Failure::while_doing("its part of the trace"))?;
    let stop = Interrupt::catch(false)?.begin().flag();
    recorded(writer, verbose, || {
        // The launcher already has the rights of this user.
        let placement = match makes_directories {
            true => Placement::Making,
            false => Placement::Anywhere,
        };
        let token = Some(token);
        let urls = reads_urls();
        let settings =
            ReceiverSettings { token, urls, stop, ..ReceiverSettings::new(host, placement) };
        connect(&addresses, &networks, port, &secret, &settings)
    })
}

/// This host's name: that of its invitation, or else the one that Slurm has set in the environment.
fn named(host: String) -> Result<String, Failure> {
    if !host.is_empty() {
        return Ok(host);
    }
    env::var(NODE_NAME).map_err(|_| {
        Failure::Failed(format!(
            "the invitation is for a Slurm node, but {NODE_NAME} is not set here"
        ))
    })
}

fn connect(
    addresses: &[IpAddr],
    networks: &[Network],
    port: u16,
    secret: &Secret,
    settings: &ReceiverSettings,
) -> Result<(), Failure> {
    let channel = receiver::call(addresses, port, secret, CONNECT_TIMEOUT)
        .map_err(|error| Failure::Failed(format!("cannot connect to the root: {error}")))?;
    // Only a hint for the root's user: if this host's networks cannot be read, it is left out.
    let own = network::own().unwrap_or_default();
    if let Some(network) = network::faster(networks, channel.peer().ip().to_canonical(), &own) {
        let _ = writeln!(io::stderr(), "{FASTER_NETWORK}{network}");
    }
    serve(channel, settings, true).map(drop).map_err(failure)
}
