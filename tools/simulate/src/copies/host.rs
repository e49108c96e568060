//! What a host has, and what other processes do there.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use files::simulation::is_hidden;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use super::{
    scenario::{BESIDE, CopyFault, THIS, Thing, What},
    snapshot::Snapshot,
};

/// Private, and the target of links that others make: it must not change.
const PRIVATE: &str = "private";

/// The directory of one run, in memory where that is possible; removed when dropped.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) top: PathBuf,
    pub(super) folds_case: bool,
    /// How often something was made: all contents differ.
    made: u8,
    /// Inodes of files that were written to, with their old time.
    written: Vec<u64>,
}

impl Drop for Host {
    fn drop(&mut self) {
        allow_all(&self.top);
        // What cannot be removed is left in a directory for temporary files.
        let _ = fs::remove_dir_all(&self.top);
    }
}

/// Gives this user all permissions for the directories below one.
fn allow_all(directory: &Path) {
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            allow_all(&entry.path());
        }
    }
}

impl Host {
    /// Makes what is there before.
    pub(super) fn new(folds_case: bool, things: &[Thing]) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rdmc-simulate-{}-{number}", process::id());
        let memory = Path::new("/dev/shm").join(&name);
        let top = match fs::create_dir(&memory) {
            Ok(()) => memory,
            Err(_) => {
                let other = std::env::temp_dir().join(&name);
                fs::create_dir(&other)?;
                other
            }
        };
        let host = Self { top, folds_case, made: 100, written: Vec::new() };
        let beside = host.top.join(BESIDE);
        fs::create_dir_all(beside.join(PRIVATE))?;
        fs::write(beside.join(PRIVATE).join("stays"), "private")?;
        fs::write(beside.join("private file"), "private")?;
        for (path, mode) in [("private/stays", 0o600), ("private", 0o700), ("private file", 0o600)]
        {
            fs::set_permissions(beside.join(path), fs::Permissions::from_mode(mode))?;
        }
        // What cannot be made is not there.
        things.iter().for_each(|thing| drop(host.make(thing)));
        // Directories after what is in them.
        for thing in things.iter().rev() {
            let path = host.path(&thing.path);
            if thing.what == What::Directory && path.is_dir() {
                let _ = fs::set_permissions(&path, fs::Permissions::from_mode(thing.mode.into()));
                let _ = set_modified(&path, thing.modified_s);
            }
        }
        Ok(host)
    }

    fn make(&self, thing: &Thing) -> io::Result<()> {
        let path = self.path(&thing.path);
        match &thing.what {
            What::Directory => fs::create_dir(&path)?,
            What::File { bytes, fill } => {
                fs::File::create_new(&path)?.write_all(&vec![*fill; *bytes as usize])?;
                fs::set_permissions(&path, fs::Permissions::from_mode(thing.mode.into()))?;
            }
            sparse @ What::Sparse { bytes, fill } => {
                let file = fs::File::create_new(&path)?;
                file.set_len(u64::from(*bytes))?;
                let data = sparse.data();
                file.write_all_at(&vec![*fill; data.clone().count()], data.start)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(thing.mode.into()))?;
            }
            What::Name(first) => return fs::hard_link(self.path(first), &path),
            What::Link(target) => symlink(target, &path)?,
        }
        set_modified(&path, thing.modified_s)
    }

    /// Where a path is on disk: by the names that are there, where case is not distinguished.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        let mut known = self.top.clone();
        for name in path.split('/') {
            let is_same = |other: &String| other.eq_ignore_ascii_case(name);
            let other = match self.folds_case {
                true => names(&known).into_iter().find(is_same),
                false => None,
            };
            known.push(other.as_deref().unwrap_or(name));
        }
        known
    }

    fn contents(&mut self, bytes: usize) -> Vec<u8> {
        self.made = self.made.wrapping_add(1).max(100);
        vec![self.made; bytes]
    }

    /// Moves something to where nothing of a push is.
    fn move_away(&mut self, path: &Path) -> io::Result<()> {
        self.made = self.made.wrapping_add(1);
        fs::rename(path, self.top.join(BESIDE).join(format!("moved {}", self.made)))
    }

    /// The same by a user, who gives permission to do it.
    pub(super) fn clear(&mut self, path: &Path) -> io::Result<()> {
        let writable = || fs::Permissions::from_mode(0o700);
        if fs::symlink_metadata(path)?.is_dir() {
            fs::set_permissions(path, writable())?;
        }
        let Some(directory) = path.parent() else { return Ok(()) };
        let mode = fs::metadata(directory)?.permissions();
        fs::set_permissions(directory, writable())?;
        self.move_away(path)?;
        fs::set_permissions(directory, mode)
    }

    /// Whether another process makes something under a name that is taken.
    pub(super) fn has_to_wait(&self, fault: &CopyFault) -> bool {
        let (CopyFault::Create(path) | CopyFault::MakeDirectory(path)) = fault else {
            return false;
        };
        path != THIS && self.path(path).symlink_metadata().is_ok()
    }

    /// Does what another process does before a call about `this`. What is not possible is not done, nor anything with names
    /// of rdmc.
    pub(super) fn act(&mut self, fault: &CopyFault, this: &str) {
        if this.split('/').any(is_hidden) {
            return;
        }
        let _ = self.try_act(fault, this);
    }

    fn try_act(&mut self, fault: &CopyFault, this: &str) -> io::Result<()> {
        let place = |path: &String| self.path(&path.replacen(THIS, this, 1));
        match fault {
            CopyFault::Kill | CopyFault::Fail(_) => Ok(()),
            CopyFault::Write(path) => {
                let path = place(path);
                let stat = regular(&path)?;
                let contents = self.contents(stat.len() as usize);
                fs::File::options().write(true).open(&path)?.write_all(&contents)?;
                fs::File::options().write(true).open(&path)?.set_modified(stat.modified()?)?;
                self.written.push(stat.ino());
                let set = || fs::set_permissions(&path, stat.permissions());
                until_noticed(&path, &stat, set)
            }
            CopyFault::Create(path) => {
                let path = place(path);
                fs::File::create_new(path)?.write_all(&self.contents(7))
            }
            CopyFault::Replace(path) => {
                let path = place(path);
                regular(&path)?;
                let made = self.top.join(BESIDE).join("made");
                fs::write(&made, self.contents(9))?;
                fs::rename(made, path)
            }
            CopyFault::Remove(path) => {
                let path = place(path);
                match fs::symlink_metadata(&path)?.is_dir() {
                    true => fs::remove_dir_all(path),
                    false => fs::remove_file(path),
                }
            }
            CopyFault::Move(from, to) => {
                let (from, to) = (place(from), place(to));
                match fs::symlink_metadata(&to) {
                    Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                    Err(_) => fs::rename(from, to),
                }
            }
            CopyFault::ChangeMode(path, mode) => {
                let path = place(path);
                let stat = fs::symlink_metadata(&path)?;
                if stat.is_symlink() {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let set = || fs::set_permissions(&path, fs::Permissions::from_mode(*mode));
                set()?;
                until_noticed(&path, &stat, set)
            }
            CopyFault::MakeDirectory(path) => {
                let path = place(path);
                fs::create_dir(&path)?;
                fs::write(path.join("theirs"), self.contents(5))
            }
            CopyFault::Link(path, new) => {
                let (path, new) = (place(path), place(new));
                let stat = regular(&path)?;
                fs::hard_link(&path, new)?;
                until_noticed(&path, &stat, || fs::set_permissions(&path, stat.permissions()))
            }
            CopyFault::SwapForLink(path) => {
                let path = place(path);
                let private = match fs::symlink_metadata(&path)?.is_dir() {
                    true => PRIVATE,
                    false => "private file",
                };
                self.move_away(&path)?;
                symlink(self.top.join(BESIDE).join(private), path)
            }
            CopyFault::SwapForDirectory(path) => {
                let path = place(path);
                self.move_away(&path)?;
                fs::create_dir(&path)?;
                fs::write(path.join("theirs"), self.contents(5))?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            }
        }
    }

    /// Gives files that other processes have written a time of their own, as after the last write. Without that a push that
    /// compares times would be right to keep them.
    pub(super) fn settle(&mut self, snapshot: &Snapshot) {
        for (path, node) in &snapshot.nodes {
            if self.written.contains(&node.inode) {
                let _ = set_modified(&self.path(path), 77);
            }
        }
        self.written.clear();
    }

    /// Returns the path that the name of a call stands for: of what is there, first of what is in the destination.
    pub(super) fn this(snapshot: &Snapshot, name: &str, listed: &[String]) -> String {
        let is_it = |path: &&String| path.rsplit('/').next() == Some(name);
        let there = snapshot.nodes.keys().find(|path| path.starts_with("copy") && is_it(path));
        there.or_else(|| listed.iter().find(is_it)).cloned().unwrap_or_else(|| name.to_owned())
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Errors: it is no regular file.
fn regular(path: &Path) -> io::Result<fs::Metadata> {
    let stat = fs::symlink_metadata(path)?;
    if stat.is_file() { Ok(stat) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Repeats a change until the time of the last change (ctime) differs: the kernel's clock may be coarse.
fn until_noticed(
    path: &Path,
    before: &fs::Metadata,
    change: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let changed = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
    for _ in 0..1_000 {
        if changed(&fs::symlink_metadata(path)?) != changed(before) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
        change()?;
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn set_modified(path: &Path, modified_s: i64) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified_s, tv_nsec: 0 },
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
