//! A source at a URL, as a host of a push reads it: what the root has listed, in the same versions.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tree::{Kind, Layout, Listing};

use super::{
    fetching::{Fetching, Plan, RemoteContents},
    remote::{LIMITS, RemoteEntry, RemoteKind},
    window::Reader,
};
use crate::{messages::RemoteOffer, ranges::Ranges, subtrees::Subtrees};

/// How much is compared with a checksum at once.
const STEP_BYTES: u64 = 1 << 20;

/// What the root of a push has listed at a URL, open for reading.
#[derive(Debug)]
pub(crate) struct ListedRemote {
    fetching: Fetching,
}

impl ListedRemote {
    /// Starts the threads that fetch it. `encoded`: the listing of the root; `entries` and `contents`: what this host has found.
    ///
    /// Errors: something else is here, or it is no listing; no thread.
    pub(crate) fn open(
        offer: &RemoteOffer,
        encoded: &[u8],
        entries: &[RemoteEntry],
        contents: Arc<dyn RemoteContents>,
    ) -> Result<Self, String> {
        let url = &offer.url;
        let listing = Listing::decode(encoded).map_err(|error| error.to_string())?;
        let layout = Layout::of(&listing);
        let found: BTreeMap<&[u8], usize> =
            entries.iter().zip(0..).map(|(entry, number)| (&entry.path[..], number)).collect();
        let number = |file| {
            let listed = &listing.entries()[layout.entry(file)];
            let number = found.get(&listed.path[..]).copied().filter(|&number| {
                let RemoteEntry { modified_ns, kind, .. } = &entries[number];
                let is_same = matches!((kind, &listed.kind),
                    (RemoteKind::File(here), Kind::File { bytes }) if here == bytes);
                is_same && *modified_ns == listed.modified_ns
            });
            number.ok_or_else(|| {
                let path = String::from_utf8_lossy(&listed.path);
                format!("{url}: this host does not find {path} as the root has listed it: it was changed meanwhile, or its address leads elsewhere here")
            })
        };
        let numbers = (0..layout.files()).map(number).collect::<Result<Vec<usize>, String>>()?;
        let fetching = Fetching::start(url.clone(), layout, numbers, contents, LIMITS)
            .map_err(|error| format!("cannot start threads for {url}: {error}"))?;
        match fetching.fetched().version() == offer.version {
            true => Ok(Self { fetching }),
            false => {
                Err(format!("{url}: this host finds another version than the root has listed"))
            }
        }
    }

    /// The division of its files.
    pub(crate) fn subtrees(&self) -> Subtrees {
        self.fetching.fetched().subtrees()
    }

    /// Reads ranges in order, in these parts. Blocks; several requests run at once. `take` gets each part with its place; it may end
    /// the reading by `false`, which this then returns.
    ///
    /// Errors: not readable, too slow, or not the version that was listed; `stop`.
    pub(crate) fn read(
        &self,
        parts: &[(u64, u64)],
        stop: &AtomicBool,
        mut take: impl FnMut(u64, &[u8]) -> bool,
    ) -> io::Result<bool> {
        let fetched = self.fetching.fetched();
        let _plan = Plan::new(fetched, Reader::Digest, parts.to_vec());
        let mut bytes = Vec::new();
        for &(start, end) in parts {
            bytes.resize((end - start) as usize, 0);
            fetched.read(Reader::Digest, &mut bytes, start, stop)?;
            if !take(start, &bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares files with the checksums that the source has: those that are not in `kept`, as `read` reads them. Calls `worked` with
    /// the number of bytes after each step.
    ///
    /// Errors: one differs; unreadable; `stop`.
    pub(crate) fn check(
        &self,
        kept: &Ranges,
        read: impl Fn(&mut [u8], u64) -> io::Result<()>,
        worked: impl Fn(u64),
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let fetched = self.fetching.fetched();
        let mut step = vec![0; STEP_BYTES as usize];
        for file in 0..fetched.layout().files() {
            let range = fetched.layout().range_of(file);
            let checksum = fetched.contents().checksum(fetched.entry(file));
            let Some(mut checksum) = checksum.filter(|_| !kept.covers((range.start, range.end)))
            else {
                continue;
            };
            let mut at = range.start;
            while at < range.end {
                if stop.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let part = &mut step[..STEP_BYTES.min(range.end - at) as usize];
                read(part, at)?;
                checksum.update(part);
                at += part.len() as u64;
                worked(part.len() as u64);
            }
            checksum.finish().map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Ends all reading, for good.
    pub(crate) fn stop(&self) {
        self.fetching.fetched().stop();
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::Range, sync::atomic::AtomicU64};

    use tree::Entry;

    use super::{super::fetching::RemoteChecksum, *};

    const BYTES: u64 = 20_000_000;

    /// One file; counts what is read of it.
    #[derive(Debug)]
    struct Made {
        version: &'static str,
        has_checksum: bool,
        read: AtomicU64,
    }

    fn byte(at: u64) -> u8 {
        (at * 7 % 251) as u8
    }

    impl RemoteContents for Made {
        fn read(
            &self,
            _entry: usize,
            range: Range<u64>,
            take: &mut dyn FnMut(&[u8]),
        ) -> Result<(), String> {
            self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
            take(&range.map(byte).collect::<Vec<u8>>());
            Ok(())
        }

        fn version(&self, _entry: usize) -> String {
            self.version.into()
        }

        fn checksum(&self, _entry: usize) -> Option<Box<dyn RemoteChecksum>> {
            self.has_checksum.then(|| Box::new(Sum(blake3::Hasher::new())) as _)
        }

        fn look_again(&self) -> Result<(), String> {
            Ok(())
        }

        fn stop(&self) {}
    }

    struct Sum(blake3::Hasher);

    impl RemoteChecksum for Sum {
        fn update(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(self: Box<Self>) -> Result<(), String> {
            let all: Vec<u8> = (0..BYTES).map(byte).collect();
            let is_right = self.0.finalize() == blake3::hash(&all);
            is_right.then_some(()).ok_or_else(|| "it has another checksum".into())
        }
    }

    fn made(version: &'static str, has_checksum: bool) -> Arc<Made> {
        Arc::new(Made { version, has_checksum, read: AtomicU64::new(0) })
    }

    fn found(path: &str, modified_ns: i64, bytes: u64) -> RemoteEntry {
        RemoteEntry { path: path.into(), modified_ns, kind: RemoteKind::File(bytes) }
    }

    /// What a host makes of the listing of the file `a`, of version `one`.
    fn open(entries: &[RemoteEntry], made: &Arc<Made>) -> Result<ListedRemote, String> {
        let kind = Kind::File { bytes: BYTES };
        let listed = vec![Entry { path: b"a".to_vec(), mode: 0o644, modified_ns: 7, kind }];
        let encoded = Listing::new(listed).unwrap().encode().unwrap();
        let mut version = blake3::Hasher::new();
        version.update(&3_u64.to_le_bytes()).update(b"one");
        let version = *version.finalize().as_bytes();
        let offer = RemoteOffer { url: "s3://b/k".into(), as_hub_cache: false, version };
        ListedRemote::open(&offer, &encoded, entries, Arc::clone(made) as _)
    }

    #[test]
    fn only_what_the_root_has_listed_is_opened() {
        let made_one = made("one", false);
        let others = [found("b", 7, 5), found("a", 7, BYTES)];
        assert!(open(&others, &made_one).is_ok(), "patterns may have left some out");
        for other in [found("b", 7, BYTES), found("a", 8, BYTES), found("a", 7, BYTES + 1)] {
            let error = open(&[other], &made_one).unwrap_err();
            assert!(error.contains("does not find a as"), "{error}");
        }
        let link = RemoteEntry { kind: RemoteKind::Link(b"x".to_vec()), ..found("a", 7, 0) };
        assert!(open(&[link], &made_one).is_err());
        let error = open(&others, &made("two", false)).unwrap_err();
        assert!(error.contains("another version"), "{error}");
    }

    #[test]
    fn parts_are_read_once_and_in_order() {
        let made = made("one", false);
        let remote = open(&[found("a", 7, BYTES)], &made).unwrap();
        let parts = [(1_000, 4_000_000), (4_000_000, 9_000_001), (15_000_000, BYTES)];
        let (go_on, mut taken) = (AtomicBool::new(false), Vec::new());
        let read = remote.read(&parts, &go_on, |at, bytes| {
            assert!((at..).zip(bytes).all(|(at, &is)| is == byte(at)));
            taken.push((at, at + bytes.len() as u64));
            true
        });
        assert_eq!((read.unwrap(), &taken[..]), (true, &parts[..]));
        let wanted: u64 = parts.iter().map(|(start, end)| end - start).sum();
        assert_eq!(made.read.load(Ordering::Relaxed), wanted);
        assert!(!remote.read(&parts, &go_on, |_, _| false).unwrap());
        assert!(remote.read(&parts, &AtomicBool::new(true), |_, _| true).is_err());
    }

    #[test]
    fn copies_are_compared_with_checksums() {
        let remote = open(&[found("a", 7, BYTES)], &made("one", true)).unwrap();
        let check = |kept: &Ranges, wrong_at: u64| {
            let read = |into: &mut [u8], at: u64| {
                for (at, byte_of) in (at..).zip(into) {
                    *byte_of = byte(at) ^ u8::from(at == wrong_at);
                }
                Ok(())
            };
            remote.check(kept, read, |_| {}, &AtomicBool::new(false))
        };
        let nothing = Ranges::default();
        assert!(check(&nothing, u64::MAX).is_ok());
        let error = check(&nothing, BYTES - 1).unwrap_err().to_string();
        assert!(error.contains("another checksum"), "{error}");
        // Kept as a whole for its length and time.
        assert!(check(&[(0, BYTES)].into_iter().collect(), 0).is_ok());
    }
}
