//! Who may write a destination: one push at a time, whatever it brings.
//!
//! A claim is a lock on the file `.NAME.rdmc-lock` beside the destination. The lock belongs to an open descriptor, so
//! it ends with its process; the file alone, which a process that was killed leaves behind, means nothing and is
//! taken over. Its contents say who has it, for messages. Over NFS the server keeps the lock, so that hosts
//! which share a file system exclude each other too.

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
    disk::Disk,
    place::{LOCK, Place},
};

/// How long a session that is ending may take to let go.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);
/// Others may open it for locking, too; nobody writes to it but its owner.
const MODE: u32 = 0o644;
const TRIES: usize = 64;
/// What is read of a lock that somebody else has written.
const TEXT_BYTES_MAX: usize = 4096;
const VALUE_CHARACTERS_MAX: usize = 300;
/// Enough to tell pushes apart; not enough to find a secret.
const PUSH_DIGITS: usize = 16;

/// Who claims a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// Which push; empty if it is none.
    push: String,
    /// The host, as its push calls it.
    host: String,
    machine: String,
    process: u32,
}

/// Why a destination cannot be claimed.
#[derive(Debug)]
pub(crate) enum ClaimError {
    /// Somebody else has it.
    Busy(Option<Owner>),
    /// Another host of the same push has it: both see one file system.
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
    disk: Disk,
    name: OsString,
    file: File,
}

impl Claim {
    /// Waits a few seconds for another push to let go, and not at all for another host of the same push.
    ///
    /// Errors: somebody else has it; the system's.
    pub(crate) fn take(place: &Place, owner: &Owner) -> Result<Self, ClaimError> {
        let (disk, name) = (place.disk(), place.hidden(LOCK));
        let until = Instant::now() + PATIENCE;
        loop {
            let (file, is_own) = open(disk, &name)?;
            let known = Owner::read(&file);
            // Also where it can be locked: some mounts keep the locks of their hosts apart.
            if let Some(other) = known.as_ref().filter(|other| other.is_elsewhere(owner)) {
                return Err(ClaimError::Shared(other.clone()));
            }
            match disk.lock(&file) {
                // Whoever had it may have removed it between opening and locking.
                Ok(()) if disk.is_named(&file, &name) => {
                    // Another user's file says who that was: it is replaced, where that is allowed.
                    if is_own || disk.unlink(&name).is_err() {
                        let claim = Self { disk: disk.clone(), name, file };
                        if is_own {
                            owner.write(disk, &claim.file)?;
                        }
                        return Ok(claim);
                    }
                }
                Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR | Errno::STALE) => {}
                // Nobody can hold one where there are no locks.
                Err(error @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK)) => {
                    let _ = disk.unlink(&name);
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
}

impl Drop for Claim {
    /// Removes the file while it is still locked, so that nobody else's is removed.
    fn drop(&mut self) {
        if self.disk.is_named(&self.file, &self.name) {
            // What cannot be removed does no harm.
            let _ = self.disk.unlink(&self.name);
        }
    }
}

/// Opens the file to lock, or makes it; tells also whether it may be written to. What else has its name is removed: in
/// a shared directory others can put there what they like.
fn open(disk: &Disk, name: &OsString) -> Result<(File, bool), Errno> {
    for _ in 0..TRIES {
        match disk.create(name, MODE) {
            Ok(file) => {
                // Whatever this process's mask takes away. Without it other users are refused, no more.
                let _ = disk.set_mode(&file, MODE);
                return Ok((file, true));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let opened = match disk.open(name, OFlags::RDWR) {
            Err(Errno::ACCESS) => disk.open(name, OFlags::RDONLY),
            opened => opened,
        };
        match opened {
            Ok(file) => {
                let known = file.metadata().map_err(|_| Errno::IO)?;
                let is_own = known.uid() == geteuid().as_raw();
                // One with other names could be anybody's file.
                if known.is_file() && known.nlink() <= 1 {
                    if is_own && known.mode() & 0o600 != 0o600 {
                        disk.set_mode(&file, MODE)?;
                        continue;
                    }
                    return Ok((file, is_own));
                }
            }
            // Removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(Errno::ACCESS) => return Err(Errno::ACCESS),
            Err(_) => {}
        }
        disk.unlink(name)?;
    }
    Err(Errno::AGAIN)
}

impl Owner {
    /// This process, for a host that its push calls so.
    pub(crate) fn here(push: &Secret, host: &str) -> Self {
        let digest = blake3::derive_key("rdmc owner of a destination", push.to_bytes().as_slice());
        let push = blake3::Hash::from_bytes(digest).to_hex()[..PUSH_DIGITS].to_owned();
        Self { push, ..Self::of_no_push(host) }
    }

    /// The same where there is no push.
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
        disk.write(file, text.as_bytes(), 0)?;
        // Hosts that share the file system are to see it now.
        disk.sync(file)
    }

    /// What a lock says; others may have written anything.
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

/// What a lock says and what is read of it is the same, on one line, and cannot steer a terminal.
fn shown(value: &str) -> String {
    let shown = value.chars().filter(|character| !character.is_control());
    shown.take(VALUE_CHARACTERS_MAX).collect()
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
    fn another_host_of_the_same_push_is_told_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        let (push, other) = (Secret::from_bytes([1; 32]), Secret::from_bytes([2; 32]));
        let claim = Claim::take(&place, &Owner::here(&push, "a")).unwrap();
        match Claim::take(&place, &Owner::here(&push, "b")) {
            Err(ClaimError::Shared(owner)) => assert_eq!(owner, Owner::here(&push, "a")),
            outcome => panic!("{outcome:?}"),
        }
        // The same host once more may be one that comes back.
        for owner in [Owner::here(&push, "a"), Owner::here(&other, "b")] {
            assert!(matches!(Claim::take(&place, &owner), Err(ClaimError::Busy(Some(_)))));
        }
        // Where the lock says nothing, as on mounts that keep the locks of hosts apart, its contents do.
        claim.disk.rename(&claim.name, "kept".as_ref()).unwrap();
        let lock = directory.path().join(".copy.rdmc-lock");
        fs::copy(directory.path().join("kept"), lock).unwrap();
        let shared = Claim::take(&place, &Owner::here(&push, "b"));
        assert!(matches!(shared, Err(ClaimError::Shared(_))));
        assert!(Claim::take(&place, &Owner::here(&other, "b")).is_ok());
    }

    #[test]
    fn what_is_left_of_a_lock_claims_nothing_whatever_it_is() {
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
    fn what_others_write_into_a_lock_cannot_steer_a_terminal() {
        let mut file = tempfile::tempfile().unwrap();
        let text = format!("push 0\nhost \u{1b}[2J{}\nmachine y\r\nprocess 7\n", "x".repeat(1000));
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let shown = Owner::read(&file).unwrap().to_string();
        assert!(!shown.contains(char::is_control) && shown.len() < 400, "{shown:?}");
        assert!(shown.ends_with("by process 7 on y"), "{shown:?}");
    }

    #[test]
    fn among_many_that_come_and_go_one_at_a_time_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let (holders, claims) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let place = place(directory.path());
                        // Busy is right, too, where a machine is slow.
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
