//! Fetches what is read of a remote source, on threads of its own, into a [`Window`].

use std::{
    fmt, io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rdmc::Storage;
use tree::Layout;

use super::window::{Access, Limits, Reader, Window};
use crate::{
    open_files::read_pieces,
    ranges::{ByteRange, Ranges},
    subtrees::{SUBTREE_BYTES, Subtrees},
};

/// What bytes are handed on in: each hand-over wakes what waits for them.
const PART_BYTES: usize = 256 << 10;
/// A chunk that takes less does not slow the others.
const QUICK: Duration = Duration::from_secs(4);
/// The longest wait for the bytes of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// How long what digests waits for what sends, which may wait for hosts.
const SENDER_PATIENCE: Duration = Duration::from_secs(60);
/// How long what sends waits for what digests: less than members of a group wait for it.
const DIGEST_PATIENCE: Duration = Duration::from_secs(10);
/// How often a waiting reader looks whether it is to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Where the contents of a remote source come from. Its methods block, with deadlines, and several threads call them at once.
pub trait RemoteContents: Send + Sync + fmt::Debug {
    /// Reads a range of a file, by the number of its entry ([`super::RemoteEntry`]). `take` gets the bytes in order, each once.
    ///
    /// Errors: not readable, or not the version that was listed. They name what cannot be read, and say what to do.
    fn read(
        &self,
        entry: usize,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), String>;

    /// What distinguishes the version of a file that was listed from others.
    fn version(&self, entry: usize) -> String;

    /// What checks the contents of a file, if its source has a checksum of it.
    fn checksum(&self, entry: usize) -> Option<Box<dyn RemoteChecksum>>;

    /// Looks at everything again. Errors: something has changed, or is not readable.
    fn look_again(&self) -> Result<(), String>;

    /// Ends all reading, at once and for good.
    fn stop(&self);
}

/// Compares the contents of a file with the checksum that its source has of it.
pub trait RemoteChecksum {
    /// The next bytes of the contents.
    fn update(&mut self, bytes: &[u8]);

    /// After the last. Errors: they are others; names the file.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// The contents of all files of a remote source, as they are fetched.
pub(super) struct Fetched {
    layout: Layout,
    contents: Arc<dyn RemoteContents>,
    /// The number of the entry of each file with contents.
    entries: Vec<usize>,
    name: String,
    window: Mutex<Window>,
    /// The window has changed, or reading has ended.
    changed: Condvar,
    is_stopped: AtomicBool,
    /// Why something could not be read: the first reason.
    fault: OnceLock<String>,
}

/// The threads that fetch; they end when this is dropped.
pub(super) struct Fetching {
    fetched: Arc<Fetched>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Fetching {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} threads", self.threads.len())
    }
}

impl Fetching {
    /// Starts to fetch what is read of the contents. `entries`: the number of the entry of each file of the layout.
    ///
    /// Errors: the system has no further thread.
    pub(super) fn start(
        name: String,
        layout: Layout,
        entries: Vec<usize>,
        contents: Arc<dyn RemoteContents>,
        limits: Limits,
    ) -> io::Result<Self> {
        let window = Mutex::new(Window::new(layout.bytes(), limits));
        let (changed, is_stopped, fault) = Default::default();
        let fetched =
            Fetched { layout, contents, entries, name, window, changed, is_stopped, fault };
        // What was started ends if a further one cannot be.
        let mut fetching = Self { fetched: Arc::new(fetched), threads: Vec::new() };
        for _ in 0..limits.fetches_max {
            let fetched = Arc::clone(&fetching.fetched);
            let named = thread::Builder::new().name("rdmc-fetch".into());
            fetching.threads.push(named.spawn(move || fetched.fetch())?);
        }
        Ok(fetching)
    }

    pub(super) fn fetched(&self) -> &Arc<Fetched> {
        &self.fetched
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.fetched.stop();
        // They notice it within a moment: reading has been stopped.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// What a reader has planned to read; given up when this is dropped.
pub(super) struct Plan<'a> {
    fetched: &'a Fetched,
    reader: Reader,
    ranges: Vec<ByteRange>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(fetched: &'a Fetched, reader: Reader, ranges: Vec<ByteRange>) -> Self {
        fetched.plan(reader, ranges.iter().copied());
        Self { fetched, reader, ranges }
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        self.fetched.give_up(self.reader, &self.ranges);
    }
}

impl Fetched {
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn contents(&self) -> &dyn RemoteContents {
        &*self.contents
    }

    /// The division of the files into subtrees.
    pub(super) fn subtrees(&self) -> Subtrees {
        let range = |file| self.layout.range_of(file);
        let files = (0..self.layout.files()).map(range).map(|range| (range.start, range.end));
        Subtrees::new(files, SUBTREE_BYTES)
    }

    /// The digest of the versions of all files.
    pub(super) fn version(&self) -> [u8; 32] {
        let mut digest = blake3::Hasher::new();
        for &entry in &self.entries {
            let version = self.contents.version(entry);
            digest.update(&(version.len() as u64).to_le_bytes()).update(version.as_bytes());
        }
        *digest.finalize().as_bytes()
    }

    /// The number of the entry of a file with contents.
    pub(super) fn entry(&self, file: usize) -> usize {
        self.entries[file]
    }

    /// Why something could not be read.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Ends all reading with this error, unless there was an earlier one; returns the first.
    pub(super) fn fail(&self, fault: String) -> io::Error {
        let first = self.fault.get_or_init(|| fault).clone();
        let _window = self.window();
        self.changed.notify_all();
        io::Error::other(first)
    }

    /// A reader will read these ranges.
    pub(super) fn plan(&self, reader: Reader, ranges: impl IntoIterator<Item = ByteRange>) {
        self.window().plan(reader, ranges);
        self.changed.notify_all();
    }

    /// It will not.
    pub(super) fn give_up(&self, reader: Reader, ranges: &[ByteRange]) {
        let mut window = self.window();
        ranges.iter().for_each(|&range| window.give_up(reader, range));
        self.changed.notify_all();
    }

    /// Fills `into` with what is from `at` on. Blocks until that has come, or until `stop`.
    ///
    /// Errors: something could not be read; too slow; stopped.
    pub(super) fn read(
        &self,
        reader: Reader,
        into: &mut [u8],
        at: u64,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let (mut rest, mut at) = (into, at);
        while !rest.is_empty() {
            let bytes = self.window().first_part((at, at + rest.len() as u64));
            let (part, after) = rest.split_at_mut(bytes as usize);
            self.read_part(reader, part, at, stop)?;
            (rest, at) = (after, at + bytes);
        }
        Ok(())
    }

    fn read_part(
        &self,
        reader: Reader,
        into: &mut [u8],
        at: u64,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let patience = match reader.other() {
            Reader::Sender => SENDER_PATIENCE,
            Reader::Digest => DIGEST_PATIENCE,
        };
        let since = Instant::now();
        let mut window = self.window();
        loop {
            if let Some(fault) = self.fault.get() {
                return Err(io::Error::other(fault.clone()));
            }
            if stop.load(Ordering::Relaxed) || self.is_stopped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match window.read(reader, into, at) {
                Access::Done => {
                    self.changed.notify_all();
                    return Ok(());
                }
                Access::Apart => break,
                Access::Full if since.elapsed() >= patience => window.on_absent(reader.other()),
                Access::Wait | Access::Full => {
                    if since.elapsed() >= READ_TIMEOUT {
                        drop(window);
                        let seconds = READ_TIMEOUT.as_secs();
                        return Err(self.fail(format!(
                            "{}: a block took more than {seconds} s to come; the source is too slow for a push",
                            self.name
                        )));
                    }
                    self.changed.notify_all();
                    let waited = self.changed.wait_timeout(window, LOOK_INTERVAL);
                    window = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        drop(window);
        self.read_apart(into, at)
    }

    /// Reads without the window.
    fn read_apart(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        read_pieces(&self.layout, into, at, |piece, part| {
            let mut filled = 0;
            let mut take = |bytes: &[u8]| {
                if let Some(next) = part.get_mut(filled..filled + bytes.len()) {
                    next.copy_from_slice(bytes);
                }
                filled += bytes.len();
            };
            let read =
                self.contents.read(self.entries[piece.file], piece.in_file.clone(), &mut take);
            let wanted = piece.in_file.end - piece.in_file.start;
            read.and_then(|()| self.check_length(filled as u64, wanted))
                .map_err(|fault| self.fail(fault))
        })
    }

    /// A thread that fetches, until the end.
    fn fetch(&self) {
        while let Some((number, wanted)) = self.await_fetch() {
            let started = Instant::now();
            match self.fetch_chunk(number, &wanted) {
                Ok(()) => self.window().on_fetched(number, started.elapsed() < QUICK),
                Err(_) if self.is_stopped.load(Ordering::Relaxed) => return,
                Err(fault) => return drop(self.fail(fault)),
            }
            self.changed.notify_all();
        }
    }

    /// Waits for something to be fetched; `None` at the end.
    fn await_fetch(&self) -> Option<(u64, Ranges)> {
        let mut window = self.window();
        loop {
            if self.is_stopped.load(Ordering::Relaxed) || self.fault.get().is_some() {
                return None;
            }
            if let Some(next) = window.next_fetch() {
                return Some(next);
            }
            // Each change wakes it; the time is a bound all the same.
            let waited = self.changed.wait_timeout(window, SENDER_PATIENCE);
            window = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Errors: why something cannot be read.
    fn fetch_chunk(&self, number: u64, wanted: &Ranges) -> Result<(), String> {
        let mut part: Vec<u8> = Vec::with_capacity(PART_BYTES);
        for (start, end) in wanted.iter() {
            let mut at = start;
            let mut hand_over = |part: &mut Vec<u8>| {
                self.window().on_bytes(number, at, part);
                self.changed.notify_all();
                at += part.len() as u64;
                part.clear();
            };
            for piece in self.layout.pieces(start..end) {
                let (wanted, mut came) = (piece.in_file.end - piece.in_file.start, 0);
                let mut take = |bytes: &[u8]| {
                    came += bytes.len() as u64;
                    if came <= wanted {
                        part.extend_from_slice(bytes);
                    }
                    if part.len() >= PART_BYTES {
                        hand_over(&mut part);
                    }
                };
                self.contents.read(self.entries[piece.file], piece.in_file, &mut take)?;
                self.check_length(came, wanted)?;
            }
            hand_over(&mut part);
        }
        Ok(())
    }

    /// Errors: more or less has come than was asked for.
    fn check_length(&self, came: u64, wanted: u64) -> Result<(), String> {
        if came == wanted {
            return Ok(());
        }
        Err(format!("{}: {came} bytes came of {wanted} that were requested", self.name))
    }

    /// Ends all reading, for good.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.contents.stop();
        let _window = self.window();
        self.changed.notify_all();
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Fetched {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read(Reader::Sender, into, offset, &AtomicBool::new(false))
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a source is not written"))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
