//! The lock of a destination: one push at a time may write it.
//!
//! A claim is a lock (flock) on the file `.NAME.rdmc-lock` beside the destination. It ends with its process; a file
//! left behind by a kill is unlocked and is reused. Its contents name the owner, for messages. Over NFS the server
//! keeps the lock, so hosts that share a file system exclude each other.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    process, thread,
    time::{Duration, Instant},
};

use rdmc::Secret;
use rustix::{fs::OFlags, io::Errno, process::geteuid, system::uname};

use crate::{
    disk::{Directory, Disk, errno},
    place::{LOCK, Place},
};

/// How long to wait for the lock of a session that is ending.
const TIMEOUT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);
/// Other users may open the file to lock it, but not write to it.
const MODE: u32 = 0o644;
const TRIES: usize = 64;
/// The most that is read of another process's lock file.
const TEXT_BYTES_MAX: usize = 4096;
const VALUE_CHARACTERS_MAX: usize = 300;
/// Digits of the secret's digest: they distinguish pushes and do not reveal the secret.
const PUSH_DIGITS: usize = 16;

/// The owner of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// Identifies the push; empty without one.
    push: String,
    /// The host's name in its push.
    host: String,
    machine: String,
    process: u32,
}

/// Why a destination cannot be claimed.
#[derive(Debug)]
pub(crate) enum ClaimError {
    /// Another process owns it.
    Busy(Option<Owner>),
    /// Another host of the same push owns it: both use one file system.
    Shared(Owner),
    System(Errno),
}

impl From<Errno> for ClaimError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

/// The right to write a destination and the temporary files beside it, until dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    directory: Directory,
    name: OsString,
    file: File,
}

impl Claim {
    /// Waits up to 3 seconds for another push, and not at all for another host of the same push.
    ///
    /// Errors: owned by another process; the system's.
    pub(crate) fn take(place: &Place, owner: &Owner) -> Result<Self, ClaimError> {
        let (directory, name) = (place.parent(), place.hidden(LOCK));
        let until = Instant::now() + TIMEOUT;
        loop {
            let (file, is_own) = open(directory, &name)?;
            let known = Owner::read(&file);
            // Even if the lock is free: some mounts do not share locks between hosts.
            if let Some(other) = known.as_ref().filter(|other| other.is_elsewhere(owner)) {
                return Err(ClaimError::Shared(other.clone()));
            }
            match directory.disk().lock(&file) {
                // Unless its last owner removed the file between opening and locking.
                Ok(()) if directory.is_named(&file, &name) => {
                    // Another user's file cannot be written to and is replaced, if permitted.
                    if is_own || directory.unlink(&name).is_err() {
                        let claim = Self { directory: directory.clone(), name, file };
                        if is_own {
                            owner.write(directory.disk(), &claim.file)?;
                        }
                        return Ok(claim);
                    }
                }
                Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR | Errno::STALE) => {}
                // The file system has no locks.
                Err(error @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK)) => {
                    let _ = directory.unlink(&name);
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= until {
                return Err(ClaimError::Busy(known));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Checks that no other process has claimed a place. Changes nothing.
    ///
    /// Errors: [`ClaimError::Busy`].
    pub(crate) fn check_free(place: &Place) -> Result<(), ClaimError> {
        let directory = place.parent();
        let Ok(file) = directory.open(&place.hidden(LOCK), OFlags::RDONLY) else { return Ok(()) };
        match directory.disk().lock(&file) {
            Err(Errno::WOULDBLOCK) => Err(ClaimError::Busy(Owner::read(&file))),
            // Left behind; or there are no locks.
            _ => Ok(()),
        }
    }
}

impl Drop for Claim {
    /// Removes the file while it is still locked, so that it is not another owner's.
    fn drop(&mut self) {
        if self.directory.is_named(&self.file, &self.name) {
            // An unlocked file that remains is reused.
            let _ = self.directory.unlink(&self.name);
        }
    }
}

/// Opens or creates the lock file; true if it is this user's. Anything else of that name is removed: in a shared
/// directory others can create it.
fn open(directory: &Directory, name: &OsString) -> Result<(File, bool), Errno> {
    for _ in 0..TRIES {
        match directory.create(name, MODE) {
            Ok(file) => {
                // Against the umask. If it fails, other users cannot lock the file and are refused.
                let _ = directory.disk().set_mode(&file, MODE);
                return Ok((file, true));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let opened = match directory.open(name, OFlags::RDWR) {
            Err(Errno::ACCESS) => directory.open(name, OFlags::RDONLY),
            opened => opened,
        };
        match opened {
            Ok(file) => {
                let known = file.metadata().map_err(|_| Errno::IO)?;
                let is_own = known.uid() == geteuid().as_raw();
                // A file with a second name may be any file of the user.
                if known.is_file() && known.nlink() <= 1 {
                    if is_own && known.mode() & 0o600 != 0o600 {
                        directory.disk().set_mode(&file, MODE)?;
                        continue;
                    }
                    return Ok((file, is_own));
                }
            }
            // Removed since.
            Err(Errno::NOENT) => continue,
            Err(Errno::ACCESS) => return Err(Errno::ACCESS),
            Err(_) => {}
        }
        directory.unlink(name)?;
    }
    Err(Errno::AGAIN)
}

impl Owner {
    /// This process, for a host of this name in a push.
    pub(crate) fn here(push: &Secret, host: &str) -> Self {
        let digest = blake3::derive_key("rdmc owner of a destination", push.as_bytes().as_slice());
        let push = blake3::Hash::from_bytes(digest).to_hex()[..PUSH_DIGITS].to_owned();
        Self { push, ..Self::of_no_push(host) }
    }

    /// This process, without a push.
    pub(crate) fn of_no_push(host: &str) -> Self {
        Self {
            push: String::new(),
            host: shown(host),
            machine: shown(&uname().nodename().to_string_lossy()),
            process: process::id(),
        }
    }

    /// Whether this is another host of the same push.
    fn is_elsewhere(&self, other: &Self) -> bool {
        let is_same_push = !self.push.is_empty() && self.push == other.push;
        is_same_push && (&self.host, &self.machine) != (&other.host, &other.machine)
    }

    fn write(&self, disk: &Disk, file: &File) -> Result<(), Errno> {
        let Self { push, host, machine, process } = self;
        let text = format!("push {push}\nhost {host}\nmachine {machine}\nprocess {process}\n");
        disk.set_len(file, 0)?;
        disk.write(file, text.as_bytes(), 0).map_err(errno)?;
        // Makes it visible to other hosts of a shared file system.
        disk.sync(file)
    }

    /// The contents of a lock file, which may be anything.
    fn read(file: &File) -> Option<Self> {
        let mut bytes = [0; TEXT_BYTES_MAX];
        let length = file.read_at(&mut bytes, 0).ok()?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
            Some(shown(line))
        };
        let process = value("process")?.parse().ok()?;
        let (push, host, machine) = (value("push")?, value("host")?, value("machine")?);
        Some(Self { push, host, machine, process })
    }
}

/// A value on one line without control characters, the same when written and when read.
fn shown(value: &str) -> String {
    let shown = value.chars().filter(|character| !character.is_control());
    shown.take(VALUE_CHARACTERS_MAX).collect()
}

impl Owner {
    /// The host's name in its push.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, machine, process, .. } = self;
        if !host.is_empty() {
            write!(formatter, "for host {host}, ")?;
        }
        write!(formatter, "by process {process} on {machine}")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::Path,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    fn place(directory: &Path) -> Place {
        Place::anywhere(&directory.join("copy")).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_claim_excludes_others_names_its_owner_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::take(&place(directory.path()), &Owner::of_no_push("one")).unwrap();
        assert_eq!(names(directory.path()), [".copy.rdmc-lock"]);
        match Claim::take(&place(directory.path()), &Owner::of_no_push("two")) {
            Err(ClaimError::Busy(Some(owner))) => assert_eq!(owner, Owner::of_no_push("one")),
            other => panic!("{other:?}"),
        }
        drop(claim);
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn another_host_of_the_same_push_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        let (push, other) = (Secret::from_bytes([1; 32]), Secret::from_bytes([2; 32]));
        let claim = Claim::take(&place, &Owner::here(&push, "a")).unwrap();
        match Claim::take(&place, &Owner::here(&push, "b")) {
            Err(ClaimError::Shared(owner)) => assert_eq!(owner, Owner::here(&push, "a")),
            outcome => panic!("{outcome:?}"),
        }
        // The same host again may be one that returns.
        for owner in [Owner::here(&push, "a"), Owner::here(&other, "b")] {
            assert!(matches!(Claim::take(&place, &owner), Err(ClaimError::Busy(Some(_)))));
        }
        // By its contents, as on mounts that do not share locks between hosts.
        claim.directory.rename(&claim.name, &claim.directory, "kept".as_ref()).unwrap();
        let lock = directory.path().join(".copy.rdmc-lock");
        fs::copy(directory.path().join("kept"), lock).unwrap();
        let shared = Claim::take(&place, &Owner::here(&push, "b"));
        assert!(matches!(shared, Err(ClaimError::Shared(_))));
        assert!(Claim::take(&place, &Owner::here(&other, "b")).is_ok());
    }

    #[test]
    fn lock_files_without_an_owner_are_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join(".copy.rdmc-lock");
        let victim = directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let leave: [&dyn Fn(); 5] = [
            &|| fs::write(&lock, "push 0\nhost x\nmachine y\nprocess 1\n").unwrap(),
            &|| fs::write(&lock, [0xff; 10_000]).unwrap(),
            &|| {
                fs::write(&lock, "").unwrap();
                fs::set_permissions(&lock, fs::Permissions::from_mode(0o400)).unwrap();
            },
            &|| symlink(&victim, &lock).unwrap(),
            &|| fs::hard_link(&victim, &lock).unwrap(),
        ];
        for left in leave {
            left();
            drop(Claim::take(&place(directory.path()), &Owner::of_no_push("two")).unwrap());
            assert_eq!(names(directory.path()), ["victim"]);
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
        }
    }

    #[test]
    fn control_characters_in_a_lock_file_are_removed() {
        let mut file = tempfile::tempfile().unwrap();
        let text = format!("push 0\nhost \u{1b}[2J{}\nmachine y\r\nprocess 7\n", "x".repeat(1000));
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let shown = Owner::read(&file).unwrap().to_string();
        assert!(!shown.contains(char::is_control) && shown.len() < 400, "{shown:?}");
        assert!(shown.ends_with("by process 7 on y"), "{shown:?}");
    }

    #[test]
    fn only_one_of_many_processes_owns_it_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let (holders, claims) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let place = place(directory.path());
                        // Busy is correct as well, if the wait for the lock ends.
                        let Ok(claim) = Claim::take(&place, &Owner::of_no_push("")) else {
                            continue;
                        };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        claims.fetch_add(1, Ordering::SeqCst);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(claim);
                    }
                });
            }
        });
        assert!(claims.into_inner() > 0);
        assert!(names(directory.path()).is_empty());
    }
}
