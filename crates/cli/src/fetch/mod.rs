//! `rdmc fetch`: gets a file or a directory from a server, and from hosts that get it too.

mod events;
mod origin;
mod progress;

use std::{
    io::Write,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use files::receiver::{
    self, Fetch, Placement, ReceiveError, ReceiverSettings, Reception, RootLimits,
};
use plan::size;
use rdmc::{CompletionMode, Protection};
use serde::Serialize;
use session::Credentials;

use crate::{
    credentials::CredentialFiles,
    failure::{Exit, Failure, plain, print_message},
    help::{EXPERTS, REPORTS, USUAL},
    hosting::protections,
    interrupt::{Interrupt, survive_file_size_limits},
    json, logging, output, parent,
    progress::Mode,
    receive::failure,
    this_machine::own_name,
};
use origin::Origin;
pub use origin::{PORT, ServerAddress, unreachable};
use progress::Progress;

/// How long connecting to a server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause after all servers have failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How often all servers may fail one after another: before anything has come ...
const ROUNDS_MAX: u32 = 3;
/// ... and after that: a server may be restarted.
const LATER_ROUNDS_MAX: u32 = 60;
/// How often progress is shown.
const TICK: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Example:
  rdmc serve /models --secret-file secret                    on node0
  rdmc fetch node0:/models/llama /local/ --secret-file secret      on any host, at any time

Hosts that fetch the same get it from each other. A host begins at once, whenever it comes, and is done in about the time of one
copy. With --share it sends its copy to others after that, so that about one copy leaves the server.

If the server is lost, the others of --from are asked, and all of them again for a minute; what is there already is not sent again.
The next fetch resumes what was interrupted. Everything is verified against the server's digests before it appears under its name.";

/// Get a file or a directory from a server (`rdmc serve`), and from other hosts that get it
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, next_help_heading = USUAL)]
pub struct Args {
    /// What to fetch: HOST:PATH or HOST:PORT:PATH [default port: 7700]
    #[arg(value_name = "HOST:PATH")]
    origin: Origin,

    /// Path of the copy; with / at its end the directory that it goes into
    dest: String,

    /// Other servers that have the same: HOST or HOST:PORT, separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    from: Vec<ServerAddress>,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Send the copy to others for at least SECONDS after it is complete, then exit once they have it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    share: Option<u64>,

    /// Name of this host at the server [default: the host name]
    #[arg(long, value_name = "NAME", help_heading = EXPERTS)]
    name: Option<String>,

    /// Refuse more than SIZE before anything is written
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, help_heading = EXPERTS)]
    max_size: Option<u64>,

    /// Required protection of blocks: encrypt or none
    ///
    /// [default: encrypt; none if all members are on this machine]
    #[arg(long, value_name = "MINIMUM", value_parser = protections(), hide_possible_values = true, help_heading = EXPERTS)]
    protect: Option<Protection>,

    /// Print the result as JSON, as soon as the copy is complete (docs/reference/exit-codes.md)
    #[arg(long, help_heading = REPORTS)]
    json: bool,

    /// Format of the progress on standard error; json has also an object for each file of the copy, as soon as it is verified
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Mode::Auto, help_heading = REPORTS)]
    progress: Mode,

    /// Show no progress
    #[arg(short, long, help_heading = REPORTS)]
    quiet: bool,

    /// End, as on SIGTERM, when this process ends; for programs that run this command
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<u32>,

    /// Log to stderr (RUST_LOG sets the level)
    #[arg(short, long, help_heading = REPORTS)]
    verbose: bool,
}

/// The result as JSON.
#[derive(Serialize)]
struct Fetched {
    path: PathBuf,
    server: String,
    bytes: Option<u64>,
    digest: Option<String>,
    seconds: f64,
    exit_code: Exit,
}

impl Args {
    /// Whether the result is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Where the copy goes. Errors: what is fetched has no name, which the copy would have.
    fn destination(&self) -> Result<String, Failure> {
        if self.dest.is_empty() {
            return Err(Failure::Usage(
                "DEST is empty; use . followed by / for this directory".into(),
            ));
        }
        if [".", ".."].contains(&self.dest.rsplit('/').next().unwrap_or_default()) {
            return Err(Failure::Usage(format!(
                "the copy would become {} itself; end DEST with / for a copy in that directory",
                self.dest
            )));
        }
        match self.dest.ends_with('/') {
            true => Ok(self.dest.clone() + self.origin.name().map_err(Failure::Usage)?),
            false => Ok(self.dest.clone()),
        }
    }
}

/// Fetches, from one server after another until one has sent everything.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(process) = args.end_with {
        parent::end_with(process)?;
    }
    survive_file_size_limits().map_err(Failure::while_doing("catching signals"))?;
    let destination = args.destination()?;
    let Some(credentials) = args.credentials.read(&[])? else {
        return Err(Failure::Usage("fetch needs --secret-file, or --cert, --key and --ca".into()));
    };
    let interrupt = Interrupt::catch(args.json)?.begin();
    logging::start(args.verbose, None);
    let mode = if args.quiet { Mode::None } else { args.progress };
    let mut progress = Progress::start(mode.shown(args.verbose));
    let fetch = Fetch {
        path: args.origin.path.clone(),
        destination,
        shares: args.share.map(Duration::from_secs),
        reports_files: progress.shows_files(),
    };
    let host = args.name.clone().unwrap_or_else(own_name);
    let settings = ReceiverSettings {
        fetch: Some(fetch),
        bytes_max: args.max_size,
        limits: Some(RootLimits {
            protection_min: args.protect,
            networks: None,
            peers: None,
            completion: CompletionMode::default(),
        }),
        stop: interrupt.flag(),
        ..ReceiverSettings::new(host, Placement::Anywhere)
    };
    let servers = [&args.origin.server].into_iter().chain(&args.from).collect();
    let fetching = Fetching { args, servers, credentials, settings, started: Instant::now() };
    let outcome = fetching.run(&interrupt, &mut progress);
    progress.finish(false);
    outcome
}

struct Fetching<'a> {
    args: &'a Args,
    servers: Vec<&'a ServerAddress>,
    credentials: Credentials,
    settings: ReceiverSettings,
    started: Instant,
}

/// How an attempt has ended.
enum Ended {
    Done,
    /// The next server may do better. `has_progressed`: something new is there.
    Failed {
        reason: String,
        has_progressed: bool,
    },
}

impl Fetching<'_> {
    fn run(&self, interrupt: &Interrupt, progress: &mut Progress) -> Result<Exit, Failure> {
        let mut reasons = Vec::new();
        let (mut rounds, mut most) = (0, ROUNDS_MAX);
        loop {
            reasons.clear();
            for server in &self.servers {
                interrupt.check()?;
                match self.attempt(server, progress)? {
                    Ended::Done => return Ok(Exit::Done),
                    Ended::Failed { reason, has_progressed } => {
                        tracing::info!(%server, reason, "the next server is asked");
                        if has_progressed {
                            (rounds, most) = (0, LATER_ROUNDS_MAX);
                        }
                        reasons.push(format!("{server}: {reason}"));
                    }
                }
            }
            rounds += 1;
            if rounds >= most {
                return Err(Failure::Failed(reasons.join("\n")));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Errors: no server could do better.
    fn attempt(&self, server: &ServerAddress, progress: &mut Progress) -> Result<Ended, Failure> {
        let failed = |reason: String, has_progressed| Ok(Ended::Failed { reason, has_progressed });
        let address = server.to_string();
        let channel = match receiver::join(&address, &self.credentials, CONNECT_TIMEOUT) {
            Ok(channel) => channel,
            Err(error) => return failed(unreachable(error), false),
        };
        // A certificate has already authenticated the named host.
        let root = matches!(self.credentials, Credentials::Secret(_)).then(|| channel.peer());
        let reception = Arc::new(Reception::default());
        let settings =
            ReceiverSettings { root, reception: Arc::clone(&reception), ..self.settings.clone() };
        let session = thread::Builder::new()
            .name("rdmc-fetch".into())
            .spawn(move || receiver::serve(channel, &settings))
            .map_err(Failure::while_doing("starting a thread"))?;
        let mut is_shown = false;
        while !session.is_finished() {
            thread::sleep(TICK);
            // Before progress is shown, so that all files are.
            let is_published = reception.published_path().is_some();
            progress.show(&reception);
            if is_published && !is_shown {
                is_shown = true;
                self.show(server, &reception, progress)?;
            }
        }
        progress.show(&reception);
        let outcome =
            session.join().map_err(|_| Failure::Failed("the session has panicked".into()))?;
        match outcome {
            Ok(_) if is_shown => Ok(Ended::Done),
            Ok(_) => self.show(server, &reception, progress).map(|()| Ended::Done),
            Err(error @ (ReceiveError::Root(_) | ReceiveError::Aborted { .. })) => {
                let reason = match error {
                    ReceiveError::Aborted { reason, .. } => reason,
                    other => other.to_string(),
                };
                failed(reason, reception.received_bytes() > 0)
            }
            Err(error) => Err(failure(error)),
        }
    }

    /// Ends the progress, and prints that the copy is there.
    fn show(
        &self,
        server: &ServerAddress,
        reception: &Reception,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        progress.finish(true);
        let record = reception.take_record();
        record.notes.iter().for_each(print_message);
        let path = reception.published_path().cloned().unwrap_or_default();
        let seconds = self.started.elapsed().as_secs_f64();
        let digest =
            record.digest.map(|digest| blake3::Hash::from_bytes(digest).to_hex().to_string());
        if self.args.json {
            let (server, bytes, exit_code) = (server.to_string(), record.bytes, Exit::Done);
            let fetched = Fetched { path, server, bytes, digest, seconds, exit_code };
            return output::print(|out| json::write_line(out, &fetched));
        }
        let bytes = record.bytes.map_or(String::new(), |bytes| format!(", {}", size::show(bytes)));
        output::print(|out| {
            writeln!(out, "{}{bytes}, {seconds:.1} s", plain(&path.display().to_string()))
        })
    }
}
