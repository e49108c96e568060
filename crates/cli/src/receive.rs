//! `rdmc receive`: the other end of a push.

use std::{
    io::{self, BufRead, IsTerminal, Read},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    thread,
    time::Duration,
};

use files::receiver::{self, Placement, ReceiveError, ReceiverSettings};
use rdmc::{
    Secret,
    bootstrap::{Channel, Deadline},
};
use trace::Writer;

use crate::{
    failure::{Failure, say},
    hosting::read_secret,
    interrupt,
    invitation::{Invitation, LINE_BYTES_MAX},
    recording,
};

/// How long a root may take to let a receiver in.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How long whoever connects may take to prove that it knows the secret.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Sessions that are served at the same time.
const SESSIONS_MAX: usize = 32;
const TICK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Example, for hosts without ssh:
  (umask 077; rdmc secret > secret)            once; copy the file to all hosts by a safe way
  rdmc receive --listen 0.0.0.0:7000 --secret-file secret --dir /srv/incoming
  rdmc push FILE --to HOST:7000 --secret-file secret     on the host that has the file

Whoever knows the secret may write files below the directory, and nowhere else. The contents are
not encrypted on their way.";

/// Receive files (`rdmc push` runs this on each host)
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Read an invitation from standard input and call back: what a launcher runs
    #[arg(long, conflicts_with_all = ["listen", "secret_file", "dir", "trace", "once"],
          required_unless_present = "listen")]
    session: bool,

    /// Wait for pushes at this address and port (port 0 takes a free one, and says which)
    #[arg(long, value_name = "IP:PORT", requires_all = ["secret_file", "dir"])]
    listen: Option<SocketAddr>,

    /// The secret that roots must know, as `rdmc secret` prints it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// Where files go; destinations outside are refused
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Write what this member does when, for https://ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// End after one push, with its outcome
    #[arg(long)]
    once: bool,

    /// Say on standard error what happens (or choose by RUST_LOG)
    #[arg(short, long)]
    verbose: bool,
}

/// Receives until done, or for ever with `--listen`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = interrupt::flag().map_err(Failure::while_doing("catching signals"))?;
    match (args.listen, &args.secret_file, &args.dir) {
        (Some(address), Some(secret_file), Some(directory)) => {
            if !directory.is_dir() {
                let shown = directory.display();
                return Err(Failure::Failed(format!("--dir {shown} is not a directory")));
            }
            let settings = ReceiverSettings {
                host: address.to_string(),
                secret: read_secret(secret_file)?,
                placement: Placement::Below(directory.clone()),
                stop,
            };
            let writer = args.trace.as_ref().map(|path| {
                recording::alone(path, format!("receiver {address}"))
                    .map_err(Failure::while_doing(format_args!("--trace {}", path.display())))
            });
            recorded(writer.transpose()?, args.verbose, || listen(address, &settings, args.once))
        }
        _ => answer_invitation(stop, args.verbose),
    }
}

/// Runs with logs, and with a trace if there is one.
fn recorded<T>(
    writer: Option<Writer>,
    verbose: bool,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    crate::start_logging(verbose, writer.as_ref());
    let outcome = run();
    if let Some(Err(error)) = writer.map(recording::close) {
        say(format_args!("the trace is not complete: {error}"));
    }
    outcome
}

fn answer_invitation(stop: Arc<AtomicBool>, verbose: bool) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        let hint = "is for launchers, which pass an invitation on; people use --listen";
        return Err(Failure::Usage(format!("receive --session {hint}")));
    }
    let mut line = zeroize::Zeroizing::new(String::new());
    io::stdin()
        .lock()
        .take(LINE_BYTES_MAX)
        .read_line(&mut line)
        .map_err(Failure::while_doing("standard input"))?;
    let invitation = Invitation::from_line(&line).map_err(Failure::Failed)?;
    let Invitation { host, secret, addresses, port, trace } = invitation;
    let writer = trace.as_ref().map(recording::to_standard_output).transpose();
    let writer = writer.map_err(Failure::while_doing("its part of the trace"))?;
    recorded(writer, verbose, || {
        let settings = ReceiverSettings { host, secret, placement: Placement::Anywhere, stop };
        call(&addresses, port, &settings)
    })
}

fn call(addresses: &[IpAddr], port: u16, settings: &ReceiverSettings) -> Result<(), Failure> {
    let secret = &settings.secret;
    let channel = receiver::call(addresses, port, secret, CALL_TIMEOUT).map_err(|error| {
        Failure::Failed(format!("cannot call the root back: {error} (see --advertise)"))
    })?;
    receiver::serve(channel, settings).map(drop).map_err(failure)
}

fn failure(error: ReceiveError) -> Failure {
    match error {
        ReceiveError::Stopped => Failure::Interrupted,
        other => Failure::because(other),
    }
}

fn listen(address: SocketAddr, settings: &ReceiverSettings, once: bool) -> Result<(), Failure> {
    let failed = |error| Failure::Io(format!("listening on {address}"), error);
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    say(format_args!("listening on {}", listener.local_addr().map_err(failed)?));
    let mut sessions: Vec<thread::JoinHandle<()>> = Vec::new();
    while !settings.stop.load(Ordering::Relaxed) {
        sessions.retain(|session| !session.is_finished());
        if sessions.len() >= SESSIONS_MAX {
            thread::sleep(TICK);
            continue;
        }
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(TICK);
            continue;
        };
        if once {
            // Whoever does not know the secret is not the one push that is waited for.
            if let Some(channel) = authenticate(stream, &settings.secret) {
                return receiver::serve(channel, settings).map(drop).map_err(failure);
            }
            continue;
        }
        let settings = settings.clone();
        let session = move || serve(stream, &settings);
        // Without a thread the root is hung up on, which it reports.
        sessions.extend(thread::Builder::new().name("rdmc-session".into()).spawn(session));
    }
    // They see the same flag, and clean up.
    for session in sessions {
        let _ = session.join();
    }
    Err(Failure::Interrupted)
}

fn serve(stream: TcpStream, settings: &ReceiverSettings) {
    let Some(channel) = authenticate(stream, &settings.secret) else { return };
    let peer = channel.peer();
    match receiver::serve(channel, settings) {
        Ok(Some(path)) => say(format_args!("{} from {peer}", path.display())),
        Ok(None) => say(format_args!("measured by {peer}")),
        Err(error) => say(format_args!("nothing from {peer}: {error}")),
    }
}

fn authenticate(stream: TcpStream, secret: &Secret) -> Option<Channel> {
    let channel = stream.set_nonblocking(false).map_err(|error| error.to_string()).and_then(|()| {
        Channel::accept(stream, secret, Deadline::after(AUTHENTICATION_TIMEOUT))
            .map_err(|error| error.to_string())
    });
    channel.map_err(|error| say(format_args!("turned away: {error}"))).ok()
}
