//! A source that is open: its entries, and reading them.

use std::{
    collections::BTreeSet,
    fmt,
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::Response;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::timeout,
};

use crate::{
    bucket::{Bucket, BucketObject, ObjectBody, Objects, fault_of},
    checking::Checking,
    entry::{Entry, Kind},
    environment::Environment,
    error::{Fault, RemoteError, reasons},
    hub::{self, HubFile, Snapshot},
    location::Location,
    retries::{Retries, repeated},
    web::{Web, WebFile},
};

/// Less than the members of a group wait for one of them.
const PATIENCE: Duration = Duration::from_secs(40);
/// From one part of a body to the next.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest look at everything that there is: a list of a million objects takes some minutes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(600);
/// How long closing waits for what is running.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How a source is opened and read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long it may give no byte before it is given up.
    pub patience: Duration,
    /// Where credentials are found.
    pub environment: Environment,
    /// A repository of a hub is laid out as in the hub's cache: the destination is the directory of that repository.
    pub as_hub_cache: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { patience: PATIENCE, environment: Environment::default(), as_hub_cache: false }
    }
}

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
    store: Store,
    stop: watch::Sender<bool>,
    patience: Duration,
}

/// Where the contents of an entry are.
enum Contents {
    Web(Box<WebFile>),
    Bucket(BucketObject),
    /// In memory; of a link nothing.
    Known(Vec<u8>),
}

/// What the contents are read through, besides web servers.
#[derive(Debug)]
enum Store {
    None,
    Bucket {
        bucket: Bucket,
        /// What was asked for.
        key: String,
    },
}

/// What was found at a URL.
struct Found {
    entries: Vec<Entry>,
    contents: Vec<Contents>,
    is_directory: bool,
    store: Store,
}

/// The body of an answer.
enum Body {
    Web(Response),
    Bucket(ObjectBody),
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({} entries)", self.shown, self.entries.len())
    }
}

impl Remote {
    /// Finds out what there is at a URL; starts threads, which end when this is dropped. Blocks, while no byte comes for at most
    /// the patience of the settings, which is also that of reads.
    ///
    /// Errors: there is nothing, nothing that can be read in ranges, or access is denied; not reachable; no thread.
    pub fn open(location: &Location, settings: &Settings) -> Result<Self, RemoteError> {
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
        let patience = settings.patience;
        let find = async || find(&web, location, settings).await;
        let Found { entries, contents, is_directory, store } =
            runtime.block_on(persistent(&shown, patience, find))?;
        let runtime = Some(runtime);
        Ok(Self { runtime, web, shown, entries, contents, is_directory, store, stop, patience })
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

    /// What distinguishes the version of a file that was listed from others, by the number of its entry: the same wherever it is
    /// listed.
    pub fn version(&self, entry: usize) -> String {
        match (&self.contents[entry], &self.entries[entry].kind) {
            (_, Kind::File { checksum: Some(checksum), .. }) => format!("{checksum:?}"),
            (Contents::Web(file), _) => file.version(),
            (Contents::Bucket(object), _) => object.version(),
            (Contents::Known(bytes), _) => blake3::hash(bytes).to_string(),
        }
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
            if let (true, Store::Bucket { bucket, key }) = (self.is_directory, &self.store) {
                let objects = self.contents.iter().filter_map(|contents| match contents {
                    Contents::Bucket(object) => Some(object),
                    Contents::Web(_) | Contents::Known(_) => None,
                });
                let objects: Vec<&BucketObject> = objects.collect();
                let look = async || bucket.list_again(key, &objects).await;
                return persistent(&self.shown, self.patience, look).await;
            }
            for (number, contents) in self.contents.iter().enumerate() {
                let look = async || match (contents, &self.store) {
                    (Contents::Web(file), _) => file.look_again(&self.web).await,
                    (Contents::Bucket(object), Store::Bucket { bucket, .. }) => {
                        bucket.look_again(object).await
                    }
                    (Contents::Bucket(_), Store::None) | (Contents::Known(_), _) => Ok(()),
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
        let mut body = match (&self.contents[entry], &self.store) {
            (Contents::Web(file), _) => Body::Web(file.get(&self.web, &range).await?),
            (Contents::Bucket(object), Store::Bucket { bucket, .. }) => {
                Body::Bucket(bucket.get(object, &range).await?)
            }
            (Contents::Bucket(_), Store::None) => return Err(Fault::Refused("no store".into())),
            (Contents::Known(bytes), _) => {
                take(&bytes[range.start as usize..range.end as usize]);
                return Ok(());
            }
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
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        match self {
            Self::Web(answer) => Ok(answer.chunk().await?),
            Self::Bucket(body) => body.next().await.transpose().map_err(fault_of),
        }
    }
}

async fn find(web: &Web, location: &Location, settings: &Settings) -> Result<Found, Fault> {
    let environment = &settings.environment;
    match location {
        Location::Web(url) => {
            let (file, entry) = web.open(url).await?;
            let (entries, contents) = (vec![entry], vec![Contents::Web(Box::new(file))]);
            Ok(Found { entries, contents, is_directory: false, store: Store::None })
        }
        Location::Bucket { bucket, key } => {
            let (bucket, key) = (Bucket::open(bucket, environment)?, key.clone());
            let (objects, is_directory) = match bucket.find(&key).await? {
                Objects::One(object, entry) => (vec![(object, entry)], false),
                Objects::Several(objects) => (objects, true),
            };
            let (objects, entries): (Vec<_>, Vec<_>) = objects.into_iter().unzip();
            let contents = objects.into_iter().map(Contents::Bucket).collect();
            Ok(Found { entries, contents, is_directory, store: Store::Bucket { bucket, key } })
        }
        Location::Hub(location) => {
            let snapshot = hub::find(web, location, environment, settings.patience).await?;
            let is_directory = snapshot.is_directory || settings.as_hub_cache;
            let (entries, contents) = match settings.as_hub_cache {
                true => cached(snapshot, location.revision.as_deref().unwrap_or("main")),
                false => {
                    let files = snapshot.files.into_iter();
                    files.map(|file| (file.entry, Contents::Web(Box::new(file.file)))).unzip()
                }
            };
            Ok(Found { entries, contents, is_directory, store: Store::None })
        }
    }
}

/// A snapshot as the hub's tools have it in their cache: contents by their number, and a link to them for each file.
fn cached(snapshot: Snapshot, revision: &str) -> (Vec<Entry>, Vec<Contents>) {
    let Snapshot { commit, files, .. } = snapshot;
    let modified_ns = Entry::time_of(commit.as_bytes());
    let (mut entries, mut contents, mut blobs) = (Vec::new(), Vec::new(), BTreeSet::new());
    for HubFile { file, entry, path, blob } in files {
        let up = "../".repeat(path.split('/').count() + 1);
        let kind = Kind::Link { target: format!("{up}blobs/{blob}") };
        entries.push(Entry { path: format!("snapshots/{commit}/{path}"), modified_ns, kind });
        contents.push(Contents::Known(Vec::new()));
        if blobs.insert(blob.clone()) {
            entries.push(Entry { path: format!("blobs/{blob}"), ..entry });
            contents.push(Contents::Web(Box::new(file)));
        }
    }
    if revision != commit {
        let kind = Kind::File { bytes: commit.len() as u64, checksum: None };
        entries.push(Entry { path: format!("refs/{revision}"), modified_ns, kind });
        contents.push(Contents::Known(commit.into_bytes()));
    }
    (entries, contents)
}

/// Repeats what fails until it succeeds, or for too long.
async fn persistent<T>(
    shown: &str,
    patience: Duration,
    attempt: impl AsyncFn() -> Result<T, Fault>,
) -> Result<T, RemoteError> {
    let started = Instant::now();
    let outcome = timeout(LOOK_TIMEOUT, repeated(patience, attempt)).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Fault::again("it takes too long")));
    outcome.map_err(|fault| fault.of(shown, started.elapsed()))
}
