//! A source that is open: its entries, and reading them.

use std::{
    fmt,
    ops::Range,
    time::{Duration, Instant},
};

use reqwest::Response;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::timeout,
};

use crate::{
    checking::Checking,
    entry::{Entry, Kind},
    error::{Fault, RemoteError, reasons},
    location::Location,
    retries::Retries,
    web::{Web, WebFile},
};

/// How long a source may give no byte before it is given up: less than the members of a group wait for one of them.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// From one part of a body to the next.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long closing waits for what is running.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes the next bytes that have come.
type Take<'a> = &'a mut dyn FnMut(&[u8]);

/// A source that is open.
///
/// Its methods block and may be called by several threads at once, but not within an asynchronous runtime. Dropping it closes
/// all connections within some seconds.
pub struct Remote {
    /// None once it is closed.
    runtime: Option<Runtime>,
    web: Web,
    shown: String,
    entries: Vec<Entry>,
    /// Where the contents of each entry are.
    contents: Vec<Contents>,
    is_directory: bool,
    stop: watch::Sender<bool>,
    patience: Duration,
}

/// Where the contents of an entry are.
enum Contents {
    Web(WebFile),
}

/// What was found at a URL.
struct Found {
    entries: Vec<Entry>,
    contents: Vec<Contents>,
    is_directory: bool,
}

/// The body of an answer.
enum Body {
    Web(Response),
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({} entries)", self.shown, self.entries.len())
    }
}

impl Remote {
    /// Finds out what there is at a URL; starts threads, which end when this is dropped. Blocks, while no byte comes for at most
    /// `patience`, which is also that of reads; [`PATIENCE`] by default.
    ///
    /// Errors: there is nothing, nothing that can be read in ranges, or access is denied; not reachable; no thread.
    pub fn open(location: &Location, patience: Duration) -> Result<Self, RemoteError> {
        let shown = location.shown();
        let refused = |fault: Fault| fault.of(&shown, Duration::ZERO);
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("rdmc-remote")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| {
            refused(Fault::Refused(format!("cannot start a thread: {}", reasons(&error))))
        })?;
        let web = {
            // The client takes the runtime for its timers.
            let _context = runtime.enter();
            Web::new().map_err(refused)?
        };
        let (stop, _) = watch::channel(false);
        let Found { entries, contents, is_directory } =
            runtime.block_on(persistent(&shown, patience, async || find(&web, location).await))?;
        let runtime = Some(runtime);
        Ok(Self { runtime, web, shown, entries, contents, is_directory, stop, patience })
    }

    /// The URL without what may be secret in it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// What there is, in any order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the URL names a directory, and the entries are in it; otherwise there is one.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Reads a range of a file, by the number of its entry: `take` gets the bytes in order, each once. Blocks, while no byte comes
    /// for at most the time that it was opened with.
    ///
    /// Errors: the file is not the version that was listed any more; not reachable; stopped. What `take` got before is right.
    pub fn read(&self, entry: usize, range: Range<u64>, take: Take<'_>) -> Result<(), RemoteError> {
        let shown = self.shown_of(entry);
        let Kind::File { bytes, .. } = self.entries[entry].kind else {
            return Err(Fault::Refused("a link has no contents".into()).of(&shown, Duration::ZERO));
        };
        if range.start > range.end || range.end > bytes {
            let what = format!("no bytes {} to {} in a file of {bytes}", range.start, range.end);
            return Err(Fault::Refused(what).of(&shown, Duration::ZERO));
        }
        let started = Instant::now();
        self.run(async {
            let mut rest = range;
            let mut retries = Retries::new(self.patience, started.elapsed());
            while !rest.is_empty() {
                let next = rest.clone();
                let mut count = |bytes: &[u8]| {
                    rest.start += bytes.len() as u64;
                    retries.on_progress(started.elapsed());
                    take(bytes);
                };
                if let Err(fault) = self.attempt(entry, next, &mut count).await {
                    let now = started.elapsed();
                    let after = retries.after(fault, now);
                    let at = after.map_err(|fault| fault.of(&shown, retries.waited(now)))?;
                    tokio::time::sleep(at.saturating_sub(now)).await;
                }
            }
            Ok(())
        })
    }

    /// What compares the contents of a file with the checksum that its source has of it, if it has one.
    pub fn checking(&self, entry: usize) -> Option<Checking> {
        match self.entries[entry].kind {
            Kind::File { bytes, checksum: Some(checksum) } => {
                Some(Checking::new(self.shown_of(entry), bytes, checksum))
            }
            _ => None,
        }
    }

    /// Looks at everything again. Blocks, as [`Remote::read`].
    ///
    /// Errors: something is not the version that was listed any more, or is gone; not reachable.
    pub fn look_again(&self) -> Result<(), RemoteError> {
        self.run(async {
            for (number, contents) in self.contents.iter().enumerate() {
                let look = async || match contents {
                    Contents::Web(file) => file.look_again(&self.web).await,
                };
                persistent(&self.shown_of(number), self.patience, look).await?;
            }
            Ok(())
        })
    }

    /// Ends all reading, now and later: it fails with [`RemoteError::Stopped`].
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Runs an operation on this thread, until it is stopped.
    fn run<T>(
        &self,
        operation: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        let Some(runtime) = &self.runtime else { return Err(RemoteError::Stopped) };
        let mut stopped = self.stop.subscribe();
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|is_stopped| *is_stopped) => Err(RemoteError::Stopped),
                outcome = operation => outcome,
            }
        })
    }

    /// Reads a range until something fails.
    async fn attempt(&self, entry: usize, range: Range<u64>, take: Take<'_>) -> Result<(), Fault> {
        let mut left = range.end - range.start;
        let mut body = match &self.contents[entry] {
            Contents::Web(file) => Body::Web(file.get(&self.web, &range).await?),
        };
        while left > 0 {
            let next = timeout(IDLE_TIMEOUT.min(self.patience), body.next()).await;
            match next.map_err(|_| Fault::again("nothing came any more"))?? {
                None => return Err(Fault::again("the connection ended early")),
                Some(bytes) => {
                    let wanted =
                        &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
                    left -= wanted.len() as u64;
                    if !wanted.is_empty() {
                        take(wanted);
                    }
                }
            }
        }
        // Read to its end, so that the connection can be used again.
        Ok(())
    }

    fn shown_of(&self, entry: usize) -> String {
        match &*self.entries[entry].path {
            "" => self.shown.clone(),
            path => format!("{}/{path}", self.shown.trim_end_matches('/')),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(CLOSE_TIMEOUT);
        }
    }
}

impl Body {
    async fn next(
        &mut self,
    ) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>, Fault> {
        match self {
            Self::Web(answer) => Ok(answer.chunk().await?),
        }
    }
}

async fn find(web: &Web, location: &Location) -> Result<Found, Fault> {
    match location {
        Location::Web(url) => {
            let (file, entry) = web.open(url).await?;
            Ok(Found {
                entries: vec![entry],
                contents: vec![Contents::Web(file)],
                is_directory: false,
            })
        }
    }
}

/// Repeats what makes no progress unless it succeeds.
async fn persistent<T>(
    shown: &str,
    patience: Duration,
    attempt: impl AsyncFn() -> Result<T, Fault>,
) -> Result<T, RemoteError> {
    let started = Instant::now();
    let mut retries = Retries::new(patience, Duration::ZERO);
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(fault) => {
                let now = started.elapsed();
                let at = retries
                    .after(fault, now)
                    .map_err(|fault| fault.of(shown, retries.waited(now)))?;
                tokio::time::sleep(at.saturating_sub(now)).await;
            }
        }
    }
}
