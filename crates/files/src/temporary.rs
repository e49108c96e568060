//! The file in which a copy comes, until it gets its name.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

use crate::{
    claim::Claim,
    disk::Disk,
    place::{Place, VERSION_DIGITS},
};

/// Nobody else reads or writes what is on its way.
const MODE: u32 = 0o600;
/// Names for one version, where others have taken some that cannot be removed.
const NAMES_MAX: u32 = 8;

/// The file `.NAME.rdmc-VERSION`; removed when dropped, unless it got its name or is to stay.
#[derive(Debug)]
pub(crate) struct Temporary {
    disk: Disk,
    name: OsString,
    file: File,
    /// It was there already.
    pub(crate) is_old: bool,
    is_removed_when_dropped: bool,
}

impl Temporary {
    /// Opens what an earlier session has left of this version, or makes a new file; removes what was left of other
    /// versions. The claim says that nobody else uses any of them.
    ///
    /// Errors: the system's.
    pub(crate) fn open(place: &Place, version: &[u8], _claim: &Claim) -> Result<Self, Errno> {
        let disk = place.disk();
        for attempt in 0..NAMES_MAX {
            let mut hasher = blake3::Hasher::new();
            hasher.update(version).update(&attempt.to_le_bytes());
            let name = place.hidden(&hasher.finalize().to_hex()[..VERSION_DIGITS]);
            if let Some((file, is_old)) = open(disk, &name)? {
                place.remove_temporaries(Some(&name));
                let disk = disk.clone();
                return Ok(Self { disk, name, file, is_old, is_removed_when_dropped: true });
            }
        }
        Err(Errno::EXIST)
    }

    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }

    /// Leaves it where it is.
    pub(crate) fn keep(mut self) {
        self.is_removed_when_dropped = false;
    }

    /// Gives the file the name of the place, in one step. Whatever had the name is replaced; if it is
    /// a link, the link is, and what it leads to stays as it is.
    pub(crate) fn publish(mut self, place: &Place) -> Result<(), Errno> {
        self.disk.rename(&self.name, place.name())?;
        self.is_removed_when_dropped = false;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_removed_when_dropped {
            // Gone already, or a disk that fails: nothing is left to do.
            let _ = self.disk.unlink(&self.name);
        }
    }
}

/// The file of this name, and whether it was there; `None` if others hold the name.
fn open(disk: &Disk, name: &OsStr) -> Result<Option<(File, bool)>, Errno> {
    match disk.create(name, MODE) {
        Ok(file) => return Ok(Some((file, false))),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    if let Some(file) = reclaim(disk, name) {
        return Ok(Some((file, true)));
    }
    // Only a name goes. What a link leads to, and what has another name, stays as it is.
    if disk.unlink(name).is_err() {
        return Ok(None);
    }
    match disk.create(name, MODE) {
        Ok(file) => Ok(Some((file, false))),
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an earlier session has left, made private again: a session that ends while it publishes leaves whatever mode the
/// source has. `None` if anybody else may have it open for writing, or has another name for it: it could change
/// after it was verified.
fn reclaim(disk: &Disk, name: &OsStr) -> Option<File> {
    let own = |file: File| is_own(&file.metadata().ok()?).then_some(file);
    let open = |flags| disk.open(name, flags).and_then(|file| own(file).ok_or(Errno::PERM));
    let file = match open(OFlags::RDWR) {
        Err(Errno::ACCESS) => {
            disk.set_mode(&open(OFlags::RDONLY).ok()?, MODE).ok()?;
            open(OFlags::RDWR)
        }
        opened => opened,
    };
    let file = file.ok()?;
    disk.set_mode(&file, MODE).ok()?;
    Some(file)
}

/// Whether nobody but this user could write to it.
fn is_own(metadata: &Metadata) -> bool {
    let has_one_writer = metadata.mode() & 0o022 == 0 && metadata.nlink() == 1;
    metadata.is_file() && has_one_writer && metadata.uid() == geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::{Path, PathBuf},
    };

    use super::*;
    use crate::claim::Owner;

    /// A place, and the right to write there.
    struct Room {
        directory: tempfile::TempDir,
        place: Place,
        claim: Claim,
    }

    impl Room {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let place = Place::anywhere(&directory.path().join("copy")).unwrap();
            let claim = Claim::take(&place, &Owner::of_no_push("")).unwrap();
            Self { directory, place, claim }
        }

        fn open(&self, version: &str) -> Temporary {
            Temporary::open(&self.place, version.as_bytes(), &self.claim).unwrap()
        }

        /// Names of temporary files.
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.directory.path()).unwrap().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| name.starts_with(".copy") && !name.ends_with("lock")).collect()
        }

        fn left_of(&self, version: &str) -> PathBuf {
            self.open(version).keep();
            self.directory.path().join(&self.names()[0])
        }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_kept_file_is_found_again_and_another_version_removes_it() {
        let room = Room::new();
        let first = room.open("one");
        assert!(!first.is_old);
        let name = room.names();
        assert_eq!(name.len(), 1);
        first.keep();
        let again = room.open("one");
        assert!(again.is_old && room.names() == name);
        again.keep();
        let other = room.open("two");
        assert!(!other.is_old && room.names().len() == 1 && room.names() != name);
        drop(other);
        assert!(room.names().is_empty());
    }

    #[test]
    fn what_only_this_user_could_write_is_gone_on_with_and_private_again() {
        for left in [0o400, 0o600, 0o640, 0o644, 0o755, 0o4755] {
            let room = Room::new();
            let path = room.left_of("one");
            fs::write(&path, "what has come").unwrap();
            mode(&path, left);
            let again = room.open("one");
            assert!(again.is_old, "{left:o}");
            assert_eq!(fs::read(&path).unwrap(), b"what has come");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600, "{left:o}");
        }
    }

    #[test]
    fn what_others_may_write_is_replaced_by_a_new_file() {
        for left in [0o620, 0o602, 0o666, 0o777] {
            let room = Room::new();
            let path = room.left_of("one");
            fs::write(&path, "theirs").unwrap();
            mode(&path, left);
            let before = fs::File::open(&path).unwrap().metadata().unwrap().ino();
            let theirs = fs::File::options().write(true).open(&path).unwrap();
            let new = room.open("one");
            assert!(!new.is_old && new.file.metadata().unwrap().len() == 0, "{left:o}");
            assert_ne!(new.file.metadata().unwrap().ino(), before);
            drop(theirs);
        }
    }

    #[test]
    fn links_and_directories_in_its_place_are_never_written_through() {
        let room = Room::new();
        let path = room.left_of("one");
        let victim = room.directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        for leave in [
            fs::hard_link as fn(PathBuf, PathBuf) -> std::io::Result<()>,
            |victim, path| symlink(victim, path),
            |_, path| fs::create_dir(path),
        ] {
            let _ = fs::remove_file(&path);
            leave(victim.clone(), path.clone()).unwrap();
            let new = room.open("one");
            assert!(!new.is_old);
            disk_write(&new);
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
            assert_eq!(fs::metadata(&victim).unwrap().nlink(), 1);
        }
    }

    fn disk_write(temporary: &Temporary) {
        temporary.disk.write(temporary.as_file(), b"contents", 0).unwrap();
    }
}
