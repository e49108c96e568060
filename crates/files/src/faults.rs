//! What tests and the simulator inject before system calls that change files: deaths, errors, other processes; a file
//! system that does not distinguish case; and planted bugs. Without them there is `no_faults.rs` instead.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fmt, fs,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{OFlags, RenameFlags, Stat, fstat},
    io::{Errno, Result},
};

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// What it should.
    Succeeds,
    /// It fails, with this number of the system's error.
    Fails(i32),
    /// Neither it nor any call after it has an effect: the process was killed before it.
    Killed,
}

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Files are created without `O_EXCL`.
    CreatesOver,
    /// Renames replace what has got the name meanwhile.
    RenamesOver,
    /// Modes are set by paths that are looked up again, and so through links.
    ChangesByPath,
    /// A file that was written to since it was compared looks the same.
    IgnoresChangeTime,
    /// What is exchanged is not compared with what was looked at.
    ExchangesAnything,
    /// Files that only the host has get their names in the new directory when it is made, and lose the old ones after the
    /// exchange.
    LinksEarly,
}

/// Called before each call that changes or opens something, with its number from 0 and the name it is about, if any.
pub type Hook = Box<dyn FnMut(u64, Option<&OsStr>) -> Fate + Send>;

#[derive(Default)]
struct State {
    calls: u64,
    is_killed: bool,
    hook: Option<Hook>,
    folds_case: bool,
    bug: Option<Bug>,
    /// For [`Bug::ChangesByPath`]: the last path that was looked up, and its inode then.
    last: Option<(PathBuf, u64)>,
}

/// Counts calls; clones share the count.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

impl fmt::Debug for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Faults")
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from 0 again. `hook` decides what calls do; it must not make any.
    pub(crate) fn start(&self, hook: Hook) {
        let mut state = self.state();
        (state.calls, state.is_killed) = (0, false);
        state.hook = Some(hook);
    }

    /// Lets the file system seem to distinguish no case of ASCII letters.
    pub(crate) fn fold_case(&self, folds_case: bool) {
        self.state().folds_case = folds_case;
    }

    /// Plants a bug.
    pub(crate) fn plant(&self, bug: Option<Bug>) {
        self.state().bug = bug;
    }

    fn has(&self, bug: Bug) -> bool {
        self.state().bug == Some(bug)
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Whether the process would be dead by now.
    pub fn is_killed(&self) -> bool {
        self.state().is_killed
    }

    pub(crate) fn call(&self) -> Result<()> {
        self.next(None)
    }

    pub(crate) fn call_on(&self, name: &OsStr) -> Result<()> {
        self.next(Some(name))
    }

    fn next(&self, name: Option<&OsStr>) -> Result<()> {
        let mut state = self.state();
        let State { calls, is_killed, hook, .. } = &mut *state;
        let this = *calls;
        *calls += 1;
        if *is_killed {
            return Err(Errno::CANCELED);
        }
        match hook.as_mut().map_or(Fate::Succeeds, |hook| hook(this, name)) {
            Fate::Succeeds => Ok(()),
            Fate::Fails(error) => Err(Errno::from_raw_os_error(error)),
            Fate::Killed => {
                *is_killed = true;
                Err(Errno::CANCELED)
            }
        }
    }

    /// The name by which the directory has it. It may have several components.
    pub(crate) fn name<'n>(&self, directory: &OwnedFd, name: &'n OsStr) -> Cow<'n, OsStr> {
        let top = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        if self.has(Bug::ChangesByPath)
            && let Ok(path) = fs::read_link(&top).map(|top| top.join(name))
        {
            let inode = fs::symlink_metadata(&path).map(|stat| stat.ino());
            self.state().last = inode.ok().map(|inode| (path, inode));
        }
        if !self.state().folds_case {
            return Cow::Borrowed(name);
        }
        let mut known = PathBuf::new();
        for part in Path::new(name).components() {
            let Component::Normal(part) = part else { return Cow::Borrowed(name) };
            known.push(found(&top.join(&known), part).unwrap_or_else(|| part.to_owned()));
        }
        Cow::Owned(known.into_os_string())
    }

    pub(crate) fn creating(&self, flags: OFlags) -> OFlags {
        if self.has(Bug::CreatesOver) { flags - OFlags::EXCL } else { flags }
    }

    pub(crate) fn renaming(&self, flags: RenameFlags) -> RenameFlags {
        if self.has(Bug::RenamesOver) { flags - RenameFlags::NOREPLACE } else { flags }
    }

    pub(crate) fn seen(&self, mut stat: Stat) -> Stat {
        if self.has(Bug::IgnoresChangeTime) {
            (stat.st_ctime, stat.st_ctime_nsec) = (0, 0);
        }
        stat
    }

    pub(crate) fn compared(&self, is_same: bool) -> bool {
        is_same || self.has(Bug::ExchangesAnything)
    }

    pub(crate) fn path_of(&self, file: impl AsFd) -> Option<PathBuf> {
        let stat = fstat(file).ok()?;
        let (path, inode) = self.state().last.clone()?;
        (inode == stat.st_ino).then_some(path)
    }

    pub(crate) fn links_early(&self) -> bool {
        self.has(Bug::LinksEarly)
    }
}

/// The name in a directory that differs from this one at most by case.
fn found(directory: &Path, name: &OsStr) -> Option<OsString> {
    let mut names: Vec<OsString> =
        fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    names.into_iter().find(|other| other.eq_ignore_ascii_case(name))
}
