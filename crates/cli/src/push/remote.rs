//! A source at a URL.

use std::{ops::Range, sync::Arc};

use files::{
    ListOptions, RemoteChecksum, RemoteContents, RemoteEntry, RemoteKind, RemoteShape, Source,
    SourceError,
    receiver::{FoundAtUrl, ReadsUrls},
};
use remote::{Checking, Environment, Kind, Location, Remote, Settings};

use crate::failure::Failure;

/// What a URL names.
pub struct RemoteObject {
    remote: Arc<Contents>,
    name: Option<String>,
    means_contents: bool,
}

#[derive(Debug)]
struct Contents(Remote);

struct Compared(Checking);

impl RemoteObject {
    /// Asks for what a URL names; blocks until the source has answered.
    ///
    /// Errors: no URL of a known kind; there is nothing, or nothing that can be read.
    pub fn open(url: &str, as_hub_cache: bool) -> Result<Self, Failure> {
        let location = Location::parse(url).map_err(|error| Failure::Usage(error.to_string()))?;
        let name = match &location {
            Location::Hub(hub) if as_hub_cache => Some(hub.cache_name()),
            _ if as_hub_cache => {
                let what = "--hub-cache is for repositories of a hub: hf://ORG/NAME";
                return Err(Failure::Usage(what.into()));
            }
            location => location.name(),
        };
        let environment = Environment::of_process();
        let settings = Settings { environment, as_hub_cache, ..Settings::default() };
        let remote = Remote::open(&location, &settings).map_err(Failure::because)?;
        let means_contents = location.means_contents();
        Ok(Self { remote: Arc::new(Contents(remote)), name, means_contents })
    }

    pub fn is_directory(&self) -> bool {
        self.remote.0.is_directory()
    }

    /// Whether it means what is in a directory: the destination becomes its copy.
    pub fn means_contents(&self) -> bool {
        self.means_contents
    }

    /// The name of its copy in a directory. Errors: it has none.
    pub fn name(&self) -> Result<&str, Failure> {
        self.name.as_deref().ok_or_else(|| {
            Failure::Usage(format!(
                "{} does not end with a name; name the copy with --dest",
                self.remote.0.shown()
            ))
        })
    }

    /// What there is, as a push has it.
    fn entries(&self) -> Vec<RemoteEntry> {
        let remote = &self.remote.0;
        let name = self.name.as_deref().unwrap_or("file");
        let entries = remote.entries().iter().map(|entry| RemoteEntry {
            path: if remote.is_directory() { entry.path.as_str() } else { name }.into(),
            modified_ns: entry.modified_ns,
            kind: match &entry.kind {
                Kind::File { bytes, .. } => RemoteKind::File(*bytes),
                Kind::Link { target } => RemoteKind::Link(target.clone().into_bytes()),
            },
        });
        entries.collect()
    }

    /// The source of a push. Errors: the patterns leave nothing; it is no tree.
    pub fn source(&self, options: &ListOptions) -> Result<Source, SourceError> {
        let remote = &self.remote.0;
        let shape = match (remote.is_directory(), self.means_contents) {
            (false, _) => RemoteShape::File,
            (true, true) => RemoteShape::Contents,
            (true, false) => RemoteShape::Directory,
        };
        let name = self.name.as_deref().unwrap_or("file");
        let contents = Arc::clone(&self.remote);
        Source::of_remote(remote.shown(), name, shape, self.entries(), contents, options)
    }
}

/// What reads URLs for roots that have started this receiver; none in builds without them.
pub fn reads_urls() -> Option<Arc<dyn ReadsUrls>> {
    Some(Arc::new(OfProcess))
}

/// With the credentials of this process.
#[derive(Debug)]
struct OfProcess;

impl ReadsUrls for OfProcess {
    fn open(&self, url: &str, as_hub_cache: bool) -> Result<FoundAtUrl, String> {
        let object = RemoteObject::open(url, as_hub_cache).map_err(|error| error.to_string())?;
        Ok((object.entries(), object.remote))
    }
}

impl RemoteContents for Contents {
    fn read(
        &self,
        entry: usize,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), String> {
        self.0.read(entry, range, take).map_err(|error| error.to_string())
    }

    fn version(&self, entry: usize) -> String {
        self.0.version(entry)
    }

    fn checksum(&self, entry: usize) -> Option<Box<dyn RemoteChecksum>> {
        Some(Box::new(Compared(self.0.checking(entry)?)))
    }

    fn look_again(&self) -> Result<(), String> {
        self.0.look_again().map_err(|error| error.to_string())
    }

    fn stop(&self) {
        self.0.stop();
    }
}

impl RemoteChecksum for Compared {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.0.finish().map_err(|error| error.to_string())
    }
}
