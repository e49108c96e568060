//! What a push changes at a host, entry by entry: counted by receivers, and listed if the root asks for it.

use serde::{Deserialize, Serialize};
use tree::PATH_BYTES_MAX;

/// The most runs of entries that are listed: 400 KiB in a message.
const RUNS_MAX: usize = 1 << 15;

/// The most bytes of paths to be removed that are listed.
const REMOVED_BYTES_MAX: usize = 1 << 18;

/// What a push does with an entry of the source at a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// It is not there.
    New,
    /// It is there with other contents, another target, or as something else.
    Contents,
    /// Only its mode, time, owner, access list or `user.*` attributes differ.
    Attributes,
    /// It is there as it should be.
    Kept,
}

/// How many entries of the source a push changes at a host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ChangeCounts {
    /// [`Change::New`].
    pub new: u64,
    /// [`Change::Contents`].
    pub contents: u64,
    /// [`Change::Attributes`].
    pub attributes: u64,
    /// [`Change::Kept`].
    pub kept: u64,
    /// What only the host has, and is to be removed.
    pub removed: u64,
}

/// Directories that belong to other users than the receiver's, which therefore keep their mode and time where the source has others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OthersDirectories {
    /// How many there are.
    pub count: u64,
    /// The path of the first in the destination; empty if it is the destination itself.
    pub first: Vec<u8>,
}

/// What a push changes at a host.
///
/// Its size is bounded, however many entries there are: consecutive ones that change alike take one run.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Changes {
    counts: ChangeCounts,
    /// Of the destination itself, if it is the copy of a directory; not counted.
    top: Option<Change>,
    /// All entries are listed, not only those that the root has to decide.
    is_listing: bool,
    runs: Vec<Run>,
    removed: Vec<Vec<u8>>,
    removed_bytes: usize,
    others: Option<Box<OthersDirectories>>,
    /// More has changed than is listed.
    is_cut: bool,
}

/// Consecutive entries, by their numbers, that change alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Run {
    first: u32,
    entries: u32,
    change: Change,
    /// If contents that the receiver has only offered for comparison are equal; otherwise they change, too.
    if_equal: bool,
}

impl ChangeCounts {
    fn of(&mut self, change: Change) -> &mut u64 {
        match change {
            Change::New => &mut self.new,
            Change::Contents => &mut self.contents,
            Change::Attributes => &mut self.attributes,
            Change::Kept => &mut self.kept,
        }
    }
}

impl Changes {
    /// Nothing yet; `lists`: entries are listed, not only counted.
    pub(crate) fn new(lists: bool) -> Self {
        Self { is_listing: lists, ..Self::default() }
    }

    /// Adds an entry by its number, after those with lower ones.
    pub(crate) fn add(&mut self, entry: u32, change: Change) {
        self.count(change);
        if self.is_listing {
            self.list(entry, change, false);
        }
    }

    /// Adds an entry of whose contents the root gets digests: this is its change if they are equal.
    pub(crate) fn add_if_equal(&mut self, entry: u32, change: Change) {
        self.count(change);
        self.list(entry, change, true);
    }

    /// Sets what happens to the destination itself.
    pub(crate) fn set_top(&mut self, change: Change) {
        self.top = Some(change);
    }

    /// Adds what only the host has, and is to be removed: a path in the destination.
    pub(crate) fn remove(&mut self, path: &[u8]) {
        self.counts.removed = self.counts.removed.saturating_add(1);
        if !self.is_listing {
            return;
        }
        if self.removed_bytes + path.len() > REMOVED_BYTES_MAX {
            self.is_cut = true;
            return;
        }
        self.removed_bytes += path.len();
        self.removed.push(path.to_vec());
    }

    /// Adds a directory of another user, which keeps its mode and time: its path in the destination. The destination itself, which
    /// has an empty one, counts as the first.
    pub(crate) fn keep_of_other(&mut self, path: &[u8]) {
        let first = || Box::new(OthersDirectories { count: 0, first: path.to_vec() });
        let others = self.others.get_or_insert_with(first);
        others.count = others.count.saturating_add(1);
        if path.is_empty() {
            others.first.clear();
        }
    }

    /// At the root, which trusts no receiver: the same of a source with this many entries, where it has decided whether contents
    /// that were compared are equal.
    pub(crate) fn settled(self, entries: u32, is_equal: impl Fn(u32) -> bool) -> Self {
        let (counts, is_cut) = (self.counts, self.is_cut);
        let removed = if self.is_listing { self.removed } else { Vec::new() };
        let mut settled = Self { runs: Vec::new(), removed, counts, is_cut, ..self };
        settled.others.iter_mut().for_each(|others| others.first.truncate(PATH_BYTES_MAX));
        let mut next = 0;
        for run in self.runs {
            let end = run.first.checked_add(run.entries).filter(|&end| end <= entries);
            let Some(end) = end.filter(|_| run.first >= next) else {
                settled.is_cut = true;
                break;
            };
            for entry in run.first..end {
                let is_as_said = !run.if_equal || is_equal(entry);
                let change = if is_as_said { run.change } else { Change::Contents };
                if !is_as_said {
                    let before = settled.counts.of(run.change);
                    *before = before.saturating_sub(1);
                    settled.count(change);
                }
                if settled.is_listing {
                    settled.list(entry, change, false);
                }
            }
            next = end;
        }
        settled
    }

    /// How many entries change how.
    pub fn counts(&self) -> ChangeCounts {
        self.counts
    }

    /// Of the destination itself, if it is the copy of a directory; not counted.
    pub fn top(&self) -> Option<Change> {
        self.top
    }

    /// The entries that were listed, by their numbers in the source.
    pub fn listed(&self) -> impl Iterator<Item = (usize, Change)> + '_ {
        let entries = |run: &Run| run.first..run.first.saturating_add(run.entries);
        let of_run = move |run| entries(run).map(|entry| (entry as usize, run.change));
        self.runs.iter().flat_map(of_run)
    }

    /// Paths in the destination that are to be removed, as they were listed.
    pub fn removed(&self) -> impl Iterator<Item = &[u8]> {
        self.removed.iter().map(Vec::as_slice)
    }

    /// Directories that keep their mode and time, as they are other users'; `None` if there are none.
    pub fn others_directories(&self) -> Option<&OthersDirectories> {
        self.others.as_deref()
    }

    /// Whether more changes than is listed.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn count(&mut self, change: Change) {
        let count = self.counts.of(change);
        *count = count.saturating_add(1);
    }

    fn list(&mut self, entry: u32, change: Change, if_equal: bool) {
        let is_full = self.runs.len() >= RUNS_MAX;
        match self.runs.last_mut() {
            Some(last)
                if (last.change, last.if_equal) == (change, if_equal)
                    && last.first.checked_add(last.entries) == Some(entry) =>
            {
                last.entries += 1;
            }
            _ if is_full => self.is_cut = true,
            _ => self.runs.push(Run { first: entry, entries: 1, change, if_equal }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_change() -> impl Strategy<Value = Change> {
        prop::sample::select(vec![Change::New, Change::Contents, Change::Attributes, Change::Kept])
    }

    fn total(counts: ChangeCounts) -> u64 {
        counts.new + counts.contents + counts.attributes + counts.kept
    }

    proptest! {
        #[test]
        fn what_is_added_is_counted_and_listed(
            added in prop::collection::vec((any_change(), any::<bool>(), any::<bool>()), 0..200),
        ) {
            let mut changes = Changes::new(true);
            for (entry, &(change, if_equal, _)) in (0..).zip(&added) {
                match if_equal {
                    true => changes.add_if_equal(entry, change),
                    false => changes.add(entry, change),
                }
            }
            prop_assert_eq!(total(changes.counts()), added.len() as u64);
            let entries = added.len() as u32;
            let settled = changes.settled(entries, |entry| added[entry as usize].2);
            let expected: Vec<(usize, Change)> = added.iter().enumerate().map(|(entry, &(change, if_equal, is_equal))| {
                (entry, if if_equal && !is_equal { Change::Contents } else { change })
            }).collect();
            prop_assert_eq!(settled.listed().collect::<Vec<_>>(), &expected[..]);
            let kept = expected.iter().filter(|(_, change)| *change == Change::Kept).count();
            prop_assert_eq!((settled.counts().kept, total(settled.counts())), (kept as u64, added.len() as u64));
            prop_assert!(!settled.is_cut());
        }

        /// Whatever a receiver sends: only entries of the source are listed, once, and no more than the bound.
        #[test]
        fn what_a_receiver_invents_is_cut(
            runs in prop::collection::vec((0..12_u32, any::<u32>(), any_change(), any::<bool>()), 0..8),
            short: bool,
        ) {
            let runs = runs.into_iter().map(|(first, entries, change, if_equal)| {
                let entries = if short { entries % 4 } else { entries };
                Run { first, entries, change, if_equal }
            });
            let claimed = Changes { is_listing: true, runs: runs.collect(), ..Changes::default() };
            let settled = claimed.settled(10, |entry| entry % 2 == 0);
            let listed: Vec<usize> = settled.listed().map(|(entry, _)| entry).collect();
            prop_assert!(listed.iter().all(|&entry| entry < 10), "{listed:?}");
            prop_assert!(listed.windows(2).all(|pair| pair[0] < pair[1]), "{listed:?}");
        }
    }

    #[test]
    fn alike_neighbours_take_one_run_and_others_are_bounded() {
        let mut alike = Changes::new(true);
        (0..1_000_000).for_each(|entry| alike.add(entry, Change::Kept));
        assert_eq!((alike.runs.len(), alike.is_cut()), (1, false));
        let mut different = Changes::new(true);
        let entries = 4 * RUNS_MAX as u32;
        let change = |entry| if entry % 2 == 0 { Change::New } else { Change::Kept };
        (0..entries).for_each(|entry| different.add(entry, change(entry)));
        assert_eq!((different.runs.len(), different.is_cut()), (RUNS_MAX, true));
        assert_eq!(different.counts().new, u64::from(entries) / 2);
        let encoded = postcard::to_stdvec(&different).unwrap();
        assert!(encoded.len() <= 13 * RUNS_MAX, "{} bytes", encoded.len());
        (0..10_000).for_each(|_| different.remove(&[b'a'; 100]));
        assert_eq!(different.counts().removed, 10_000);
        assert_eq!(different.removed().count(), REMOVED_BYTES_MAX / 100);
    }

    #[test]
    fn what_is_only_counted_lists_what_the_root_decides_and_forgets_it() {
        let mut changes = Changes::new(false);
        changes.add(0, Change::New);
        changes.add_if_equal(1, Change::Attributes);
        changes.add_if_equal(2, Change::Kept);
        changes.set_top(Change::Attributes);
        changes.remove(b"old");
        changes.keep_of_other(b"theirs");
        changes.keep_of_other(&[b'a'; 2 * PATH_BYTES_MAX]);
        let settled = changes.settled(3, |entry| entry == 1);
        let expected = ChangeCounts { new: 1, contents: 1, attributes: 1, kept: 0, removed: 1 };
        assert_eq!((settled.counts(), settled.top()), (expected, Some(Change::Attributes)));
        assert_eq!((settled.listed().count(), settled.removed().count()), (0, 0));
        let others = OthersDirectories { count: 2, first: b"theirs".to_vec() };
        assert_eq!(settled.others_directories(), Some(&others));
        let mut invented = Changes::new(false);
        invented.keep_of_other(&[b'a'; 2 * PATH_BYTES_MAX]);
        let settled = invented.settled(3, |_| true);
        assert_eq!(settled.others_directories().unwrap().first.len(), PATH_BYTES_MAX);
    }
}
