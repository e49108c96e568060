//! `rdmc receive`: the receiver of a push.

use std::{
    env,
    io::{self, BufRead, IsTerminal, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use clap::builder::NonEmptyStringValueParser;
use files::{
    SwitchControl,
    receiver::{self, Output, Placement, ReceiveError, ReceiverSettings},
};
use plan::size;
use rdmc::Secret;
use rustix::system::uname;
use session::{Channel, Credentials, Listener};
use trace::Writer;

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
    recording, switches,
};

/// How long connecting to a root may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The most concurrent sessions.
const SESSIONS_MAX: usize = 32;
const TICK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Example, for hosts without ssh:
  (umask 077; rdmc secret > secret)            once; copy the file to all hosts over a secure channel
  rdmc receive --listen 0.0.0.0:7000 --secret-file secret --dir /srv/incoming
  rdmc push FILE --to HOST:7000 --secret-file secret     on the host that has the file

With certificates, which an authority (ca.pem) has issued for each host's name (see docs/security.md):
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
Names and digests are encrypted in transit, contents with `rdmc push --protect encrypt`.

SIGTERM ends --listen with exit code 0. Partial copies are kept; the next push of the same file to the same
destination resumes them.";

/// Receive files (`rdmc push` runs this on each host)
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, next_help_heading = USUAL)]
pub struct Args {
    /// Listen for pushes on this address and port (port 0 takes a free one and prints it)
    #[arg(long, value_name = "IP:PORT", requires_all = ["credentials", "into"])]
    listen: Option<SocketAddr>,

    /// Join the push that listens at this host and port (`rdmc push --admit`), and end with it
    ///
    /// The push may be running already. The exit code is that of this host's copy.
    #[arg(long, value_name = "HOST:PORT", requires_all = ["credentials", "dir"], conflicts_with_all = ["listen", "session", "once"])]
    join: Option<String>,

    /// Directory for files; destinations outside are refused
    #[arg(long, value_name = "DIR", group = "into")]
    dir: Option<PathBuf>,

    /// Write one stream (`rdmc push -`) to standard output, and end with it
    #[arg(long, group = "into", conflicts_with_all = ["join", "session"])]
    stdout: bool,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Accept only roots whose certificate is for this name (subjectAltName)
    ///
    /// May be given several times. [default: all with a certificate of --ca]
    #[arg(long, value_name = "NAME", requires = "cert")]
    allow: Vec<String>,

    /// Refuse longer files before anything is written, and end a stream that becomes longer
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, conflicts_with = "session",
          help_heading = EXPERTS)]
    max_size: Option<u64>,

    /// End after one push with its outcome
    #[arg(long)]
    once: bool,

    /// Name of this host in the push that it joins [default: its host name]
    #[arg(long, value_name = "NAME", requires = "join", value_parser = NonEmptyStringValueParser::new(),
          help_heading = EXPERTS)]
    name: Option<String>,

    /// Read an invitation from standard input and connect to the root; for launchers
    #[arg(long, conflicts_with_all = ["listen", "credentials", "dir", "trace", "once"],
          required_unless_present_any = ["listen", "join"], help_heading = EXPERTS)]
    session: bool,

    /// Write a trace of this member for https://ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    trace: Option<PathBuf>,

    /// Log to stderr (or choose the level with RUST_LOG)
    #[arg(short, long, help_heading = REPORTS)]
    verbose: bool,
}

/// Receives until done, or until SIGTERM with `--listen`.
pub fn run(args: &Args) -> Result<Exit, Failure> {
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
    let host = match (args.listen, &args.name) {
        (Some(address), _) => address.to_string(),
        (None, Some(name)) => name.clone(),
        (None, None) => uname().nodename().to_string_lossy().into_owned(),
    };
    let mut in_use = InUse::default();
    args.credentials.add_to(&mut in_use);
    let name = format!("receiver {host}");
    let trace = args.trace.as_ref().map(|path| recording::standalone(path, &in_use, name));
    let interrupt = Interrupt::catch(false)?.begin();
    let (stop, placement) = (interrupt.flag(), Placement::Below(directory));
    let (bytes_max, switches) = (args.max_size, switches::agreement(&credentials));
    let settings = ReceiverSettings { host, placement, output, bytes_max, switches, stop };
    recorded(trace.transpose()?, args.verbose, || match (args.listen, &args.join) {
        (Some(address), _) => listen(address, credentials, &settings, &interrupt, once),
        (None, Some(root)) => join(root, &credentials, &settings),
        (None, None) => Err(Failure::Usage("receive needs --listen or --join".into())),
    })
}

fn join(root: &str, credentials: &Credentials, settings: &ReceiverSettings) -> Result<(), Failure> {
    let channel = receiver::join(root, credentials, CONNECT_TIMEOUT).map_err(|error| {
        Failure::Failed(format!("cannot join a push at {root}: {error} (is one under way?)"))
    })?;
    let path = serve(channel, settings).map_err(failure)?;
    if let Some(path) = path {
        print_message(path.display());
    }
    Ok(())
}

/// Runs with logs, and with a trace if there is one.
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
    let Invitation { host, secret, addresses, networks, port, makes_directories, trace } =
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
        let (output, bytes_max, switches) = (None, None, SwitchControl::default());
        let settings = ReceiverSettings { host, placement, output, bytes_max, switches, stop };
        connect((&addresses, &networks), port, &secret, &settings)
    })
}

/// This host's name: that of its invitation, or else the one that Slurm has told.
fn named(host: String) -> Result<String, Failure> {
    if !host.is_empty() {
        return Ok(host);
    }
    env::var(NODE_NAME).map_err(|_| {
        Failure::Failed(format!(
            "the invitation is for a node of Slurm's, but {NODE_NAME} is not set here"
        ))
    })
}

fn connect(
    (addresses, networks): (&[IpAddr], &[Network]),
    port: u16,
    secret: &Secret,
    settings: &ReceiverSettings,
) -> Result<(), Failure> {
    let channel = receiver::call(addresses, port, secret, CONNECT_TIMEOUT).map_err(|error| {
        Failure::Failed(format!("cannot connect to the root: {error} (see --advertise)"))
    })?;
    // Only a hint for the root's user, so without own networks there is none.
    let own = network::own().unwrap_or_default();
    if let Some(network) = network::faster(networks, channel.peer().ip().to_canonical(), &own) {
        let _ = writeln!(io::stderr(), "{FASTER_NETWORK}{network}");
    }
    serve(channel, settings).map(drop).map_err(failure)
}

fn failure(error: ReceiveError) -> Failure {
    match error {
        ReceiveError::Stopped => Failure::Interrupted,
        ReceiveError::Stream { cause, bytes } if matches!(*cause, ReceiveError::Stopped) => {
            print_message(format_args!(
                "{bytes} bytes of the stream were verified and written out"
            ));
            Failure::Interrupted
        }
        other => Failure::because(other),
    }
}

fn listen(
    address: SocketAddr,
    credentials: Credentials,
    settings: &ReceiverSettings,
    interrupt: &Interrupt,
    once: bool,
) -> Result<(), Failure> {
    let failed = |error| Failure::Io(format!("listening on {address}"), error);
    let listener = TcpListener::bind(address).map_err(failed)?;
    let (admitted, inbox) = mpsc::channel();
    // A peer that fails to authenticate does not count for `--once`.
    let admit = move |channel| match channel {
        Ok(channel) => drop(admitted.send(channel)),
        Err(error) => print_message(format_args!("rejected: {error}")),
    };
    let listener = Listener::open(listener, credentials, admit).map_err(failed)?;
    print_message(format_args!("listening on {}", listener.address()));
    let mut sessions: Vec<thread::JoinHandle<()>> = Vec::new();
    while !interrupt.happened() {
        sessions.retain(|session| !session.is_finished());
        let Ok(channel) = inbox.recv_timeout(TICK) else { continue };
        if once {
            drop(listener);
            return serve(channel, settings).map(drop).map_err(failure);
        }
        if sessions.len() >= SESSIONS_MAX {
            print_message(format_args!("rejected: {SESSIONS_MAX} pushes are running already"));
            continue;
        }
        let settings = settings.clone();
        let session = move || serve_and_report(channel, &settings);
        // Without a thread the connection is closed, which the root reports.
        sessions.extend(thread::Builder::new().name("rdmc-session".into()).spawn(session));
    }
    drop(listener);
    // They end by the same flag and keep their partial copies.
    for session in sessions {
        let _ = session.join();
    }
    // SIGTERM ends a service, which is no failure; with `--once` the awaited push is missing.
    if interrupt.is_termination() && !once { Ok(()) } else { Err(Failure::Interrupted) }
}

/// Serves a push, a stream or a bench.
fn serve(channel: Channel, settings: &ReceiverSettings) -> Result<Option<PathBuf>, ReceiveError> {
    receiver::serve_with(channel, settings, measure::take_part)
}

fn serve_and_report(channel: Channel, settings: &ReceiverSettings) {
    let peer = channel.peer();
    match serve(channel, settings) {
        Ok(Some(path)) => print_message(format_args!("{} from {peer}", path.display())),
        Ok(None) => print_message(format_args!("measured by {peer}")),
        Err(error) => print_message(format_args!("no file from {peer}: {error}")),
    }
}
