//! `rdmc serve`: a server from which hosts fetch.

use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use files::{
    HostState, ListOptions, PortRange, PushSettings, Selection, Server, ServerEvent, ServerSettings,
};
use plan::size;
use rdmc::{Protection, Secret};

use crate::{
    confine,
    credentials::CredentialFiles,
    failure::{Exit, Failure, plain_name, print_message},
    fetch,
    help::{EXPERTS, REPORTS, USUAL},
    hosting::protections,
    interrupt::{Interrupt, survive_file_size_limits},
    logging,
    receive::LineLimit,
    transfer::parse_limit,
};

const TICK: Duration = Duration::from_millis(100);
/// How long sessions may take to end after a signal.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Example:
  (umask 077; rdmc secret > secret)            once; copy the file to all hosts over a secure channel
  rdmc serve /models --secret-file secret
  rdmc fetch node0:/models/llama /local/ --secret-file secret      on any host, at any time

Who has the secret, or an accepted certificate, may read everything below the directories, and nothing else: links that lead
out of them are not followed. Several hosts may serve the same; a host that has fetched it can serve it, too.

SIGTERM ends the server with exit code 0. Hosts keep what they have; another server can send the rest.";

/// Serve files and directories to hosts that come at any time (`rdmc fetch`)
///
/// Hosts that fetch the same get it from each other; while hosts with a copy share it, no more than one leaves this machine.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, next_help_heading = USUAL)]
pub struct Args {
    /// Directories; everything below them can be fetched
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Address and port to listen on: IP:PORT, or :PORT for all addresses
    #[arg(long, value_name = "IP:PORT", value_parser = listen, default_value = ":7700")]
    listen: SocketAddr,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Accept only hosts whose certificate has this name (subjectAltName); may be given several times
    #[arg(long, value_name = "NAME", requires = "cert", help_heading = EXPERTS)]
    allow: Vec<String>,

    /// Protection of blocks: encrypt or none
    ///
    /// A host refuses none unless it is started with it as well. Control connections are always encrypted.
    #[arg(long, value_name = "HOW", value_parser = protections(), hide_possible_values = true, help_heading = EXPERTS)]
    protect: Option<Protection>,

    /// Limit what this machine and each host sends, and what it receives, to RATE, such as 500mbit
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    bwlimit: Option<u64>,

    /// TCP ports on which this machine and the hosts listen for each other's blocks: 7701-7800 [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<PortRange>,

    /// The most files and directories that are fetched at the same time, each by any number of hosts
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = EXPERTS)]
    max_objects: u16,

    /// Send symbolic links wherever they lead, as they are; without it, one that leads out of what is fetched is an error
    #[arg(long, help_heading = EXPERTS)]
    any_links: bool,

    /// Log to stderr (RUST_LOG sets the level)
    #[arg(short, long, help_heading = REPORTS)]
    verbose: bool,
}

/// An address with a port; all addresses without one.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| "use IP:PORT, such as 10.0.0.1:7700, or :PORT".to_owned();
    match text.strip_prefix(':') {
        Some(port) => Ok((Ipv6Addr::UNSPECIFIED, port.parse().map_err(|_| wrong(()))?).into()),
        None => text.parse().map_err(|_| wrong(())),
    }
}

/// Serves until a signal.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    survive_file_size_limits().map_err(Failure::while_doing("catching signals"))?;
    let Some(credentials) = args.credentials.read(&args.allow)? else {
        return Err(Failure::Usage("serve needs --secret-file, or --cert, --key and --ca".into()));
    };
    let interrupt = Interrupt::catch(false)?.begin();
    logging::start(args.verbose, None);
    let secret = Secret::random().map_err(Failure::while_doing("making a secret"))?;
    let mut session = PushSettings::new(Vec::new(), secret);
    session.protection = args.protect;
    session.rate_max = args.bwlimit.map(|bits| bits / 8);
    session.ports = args.ports;
    confine(&args.directories)?;
    let settings = ServerSettings {
        directories: args.directories.clone(),
        listen: args.listen,
        credentials,
        options: ListOptions::new(Selection::default()).any_links(args.any_links),
        objects_max: args.max_objects.into(),
        session,
    };
    let log = Mutex::new(Log::start());
    let observe = move |event| log.lock().unwrap_or_else(PoisonError::into_inner).note(event);
    let server = Server::open(settings, observe).map_err(|error| Failure::of_push(&error))?;
    let at = server.address();
    print_message(format_args!("serving on {at} (rdmc fetch HOST{}:PATH DEST)", port_of(at)));
    while !interrupt.happened() {
        thread::sleep(TICK);
    }
    server.close(CLOSE_TIMEOUT);
    if interrupt.is_termination() { Ok(Exit::Done) } else { Err(Failure::Interrupted) }
}

/// Before anything else can be opened. Errors: the kernel refuses.
fn confine(directories: &[PathBuf]) -> Result<(), Failure> {
    match confine::to_reading(directories) {
        Ok(true) => Ok(()),
        Ok(false) => {
            tracing::info!(
                "this kernel has no Landlock: only rdmc itself keeps to the directories"
            );
            Ok(())
        }
        Err(error) => Err(Failure::Failed(format!("keeping to the directories: {error}"))),
    }
}

/// The port as it has to be given to fetch.
fn port_of(at: SocketAddr) -> String {
    if at.port() == fetch::PORT { String::new() } else { format!(":{}", at.port()) }
}

/// Prints lines about hosts. Those that cost a peer nothing are limited.
struct Log {
    started: Instant,
    refused: LineLimit,
    hosts: LineLimit,
    /// How many hosts have got each object in its session.
    copies: BTreeMap<PathBuf, u64>,
}

impl Log {
    fn start() -> Self {
        let (refused, hosts) = (LineLimit::of_failures(), LineLimit::of_copies());
        Self { started: Instant::now(), refused, hosts, copies: BTreeMap::new() }
    }

    fn note(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Opened { path } => drop(self.copies.insert(path.to_path_buf(), 0)),
            ServerEvent::Host { path, name, state } => self.host(&path, &name, &state),
            ServerEvent::Closed { path, sent_bytes, error } => {
                let copies = self.copies.remove(&*path).unwrap_or(0);
                let error =
                    error.map_or(String::new(), |error| format!("; it has ended early: {error}"));
                let sent = size::show(sent_bytes);
                let copies =
                    if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
                self.line(format_args!("{path:?}: {copies}, {sent} sent from here{error}"));
            }
            ServerEvent::Refused { reason } => {
                let now = self.started.elapsed();
                if let Some(count) = self.refused.left_out(now) {
                    print_message(format_args!("{count} more refusals in the last minute"));
                }
                if self.refused.admits(now) {
                    print_message(format_args!("refused: {}", files::shortened(&reason)));
                }
            }
        }
    }

    fn host(&mut self, path: &Path, name: &str, state: &HostState) {
        let name = plain_name(name);
        match state {
            HostState::Preparing => self.line(format_args!("{name} fetches {path:?}")),
            HostState::Published => {
                *self.copies.entry(path.to_owned()).or_insert(0) += 1;
                self.line(format_args!("{name} has {path:?}"));
            }
            HostState::Failed(reason) | HostState::Unknown(reason) => {
                self.line(format_args!("{name} has not got {path:?}: {reason}"));
            }
            _ => {}
        }
    }

    fn line(&mut self, words: std::fmt::Arguments<'_>) {
        let now = self.started.elapsed();
        if let Some(count) = self.hosts.left_out(now) {
            print_message(format_args!("{count} more lines about hosts in the last minute"));
        }
        if self.hosts.admits(now) {
            print_message(words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_on_may_lack_the_host() {
        assert_eq!(listen(":7700").unwrap(), "[::]:7700".parse().unwrap());
        assert_eq!(listen("10.0.0.1:0").unwrap(), "10.0.0.1:0".parse().unwrap());
        for wrong in ["7700", ":", ":x", "node:7700", ""] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }
}
