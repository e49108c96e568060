//! A machine's disk: its contents for processes, and after a crash of the machine.

use crate::dice::Dice;

/// How many bytes are lost or kept together.
const PAGE_BYTES: usize = 16;

/// The contents of a file.
#[derive(Clone)]
pub(super) struct File {
    /// The bytes that processes read.
    pub(super) bytes: Vec<u8>,
    /// The bytes at the last sync; after a crash, a page that was written later may have these
    /// contents.
    synced: Vec<u8>,
}

impl File {
    pub(super) fn synced(bytes: Vec<u8>) -> Self {
        Self { synced: bytes.clone(), bytes }
    }

    fn sync(&mut self) {
        self.synced.clone_from(&self.bytes);
    }

    fn crash(&mut self, dice: &mut Dice) {
        let pages = self.bytes.chunks_mut(PAGE_BYTES).zip(self.synced.chunks(PAGE_BYTES));
        for (page, synced) in pages {
            if page != synced && dice.percent(50) {
                page.copy_from_slice(&synced[..page.len()]);
            }
        }
        self.sync();
    }
}

/// A target that is being published. Three calls take a third of the time each: sync of the file,
/// the rename, sync of the directory.
struct Publishing {
    file: File,
    since_ns: u64,
    until_ns: u64,
    /// Whether the file is synced.
    syncs: bool,
}

/// The files of one target.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) temporary: Option<File>,
    /// The process that writes it.
    pub(super) owner: Option<usize>,
    /// The synced contents of the file that the owner writes.
    synced: Vec<u8>,
    publishing: Option<Publishing>,
    published: Option<File>,
}

impl Disk {
    /// Has these contents under the target's name from the start.
    pub(super) fn hold(&mut self, bytes: Vec<u8>) {
        self.published = Some(File::synced(bytes));
    }

    /// Opens the temporary file for a process. Bytes that were never written are `poison`.
    pub(super) fn open(&mut self, owner: usize, poison: impl Fn() -> Vec<u8>) -> Opened {
        self.owner = Some(owner);
        let is_left = self.temporary.is_some();
        let file = self.temporary.take().unwrap_or_else(|| {
            let bytes = self.published.as_ref().map_or_else(&poison, |file| file.bytes.clone());
            File { bytes, synced: poison() }
        });
        self.synced = file.synced;
        Opened { bytes: file.bytes, is_left: is_left || self.published.is_some() }
    }

    /// Ends the owner's use of the temporary file, which stays with these bytes or is removed.
    pub(super) fn let_go(&mut self, bytes: Option<Vec<u8>>) {
        self.owner = None;
        let synced = std::mem::take(&mut self.synced);
        self.temporary = bytes.map(|bytes| File { bytes, synced });
    }

    /// Syncs the owner's copy, which has these bytes.
    pub(super) fn store(&mut self, bytes: Vec<u8>) {
        self.synced = bytes;
    }

    /// Starts the publishing of the owner's copy, which takes this time.
    pub(super) fn publish(&mut self, bytes: Vec<u8>, since_ns: u64, until_ns: u64, syncs: bool) {
        let file = File { bytes, synced: self.synced.clone() };
        self.publishing = Some(Publishing { file, since_ns, until_ns, syncs });
    }

    /// Returns the published contents of the target.
    pub(super) fn published(&mut self, now_ns: u64) -> Option<&[u8]> {
        self.advance(now_ns);
        self.published.as_ref().map(|file| &file.bytes[..])
    }

    /// Returns whether a process still uses the target.
    pub(super) fn is_busy(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        self.owner.is_some() || self.publishing.is_some()
    }

    fn advance(&mut self, now_ns: u64) {
        if let Some(mut done) = self.publishing.take_if(|it| it.until_ns <= now_ns) {
            if done.syncs {
                done.file.sync();
            }
            self.published = Some(done.file);
        }
    }

    /// Ends all processes of the machine, between any two calls; a crash of the machine also loses
    /// data that was not synced. Returns `false` if a target was being published and does not have
    /// its name.
    pub(super) fn stop(&mut self, now_ns: u64, is_crash: bool, dice: &mut Dice) -> bool {
        self.advance(now_ns);
        let mut has_name = true;
        if let Some(Publishing { mut file, since_ns, until_ns, syncs }) = self.publishing.take() {
            let is_synced = now_ns >= since_ns + (until_ns - since_ns) / 3;
            if is_synced && syncs {
                file.sync();
            }
            // Until the directory is synced, a crash may or may not lose the rename.
            has_name = is_synced && (!is_crash || dice.percent(50));
            let place = if has_name { &mut self.published } else { &mut self.temporary };
            *place = Some(file);
        }
        if is_crash {
            let files = self.temporary.iter_mut().chain(&mut self.published);
            files.for_each(|file| file.crash(dice));
        }
        has_name
    }
}

/// A temporary file that was opened.
pub(super) struct Opened {
    pub(super) bytes: Vec<u8>,
    /// Whether there was a file, of an earlier session or published.
    pub(super) is_left: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: [u8; 64] = [7; 64];

    fn publishing(syncs: bool) -> Disk {
        let mut disk = Disk::default();
        disk.open(1, || vec![0; 64]);
        disk.publish(NEW.to_vec(), 0, 30, syncs);
        disk.let_go(None);
        disk
    }

    #[test]
    fn a_crash_between_any_two_calls_leaves_the_whole_copy_or_no_name() {
        let mut has_name = [false; 40];
        for (seed, now_ns) in (0..100).flat_map(|seed| (0..40).map(move |at| (seed, at))) {
            let mut disk = publishing(true);
            let named = disk.stop(now_ns, true, &mut Dice::new(seed, 0));
            assert_eq!(named, disk.published(now_ns).is_some());
            assert!(disk.published(now_ns).is_none_or(|bytes| bytes == NEW));
            assert!(named || now_ns < 30);
            assert!(!named || now_ns >= 10);
            has_name[now_ns as usize] |= named;
        }
        assert!(has_name[10..].iter().all(|&it| it));
    }

    #[test]
    fn what_was_not_synced_is_lost_with_the_machine_alone() {
        let (mut lost, dice) = (0, &mut Dice::new(1, 0));
        for is_crash in [false, true] {
            for _ in 0..20 {
                let mut disk = publishing(false);
                assert!(disk.stop(30, is_crash, dice));
                let is_whole = disk.published(30) == Some(&NEW[..]);
                assert!(is_whole || is_crash);
                lost += u32::from(!is_whole);
            }
        }
        assert!(lost > 10);
    }
}
