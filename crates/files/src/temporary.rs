//! The temporary file of a copy.

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

/// A partial copy is private.
const MODE: u32 = 0o600;
/// Names to try for one version, if other users' files that cannot be removed have some of them.
const NAMES_MAX: u32 = 8;

/// The file `.NAME.rdmc-VERSION`; removed when dropped, unless it was published or is kept.
#[derive(Debug)]
pub(crate) struct Temporary {
    disk: Disk,
    name: OsString,
    file: File,
    /// It is that of an earlier session.
    pub(crate) is_old: bool,
    is_removed_when_dropped: bool,
}

impl Temporary {
    /// Opens the file that an earlier session left of this version, or creates one; removes those of other versions.
    /// The claim excludes other users of these files.
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

    /// Leaves the file.
    pub(crate) fn keep(mut self) {
        self.is_removed_when_dropped = false;
    }

    /// Gives the file the name of the place, atomically. Replaces what had the name; of a link only the link itself.
    pub(crate) fn publish(mut self, place: &Place) -> Result<(), Errno> {
        self.disk.rename(&self.name, place.name())?;
        self.is_removed_when_dropped = false;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_removed_when_dropped {
            // Removed already, or a failing disk.
            let _ = self.disk.unlink(&self.name);
        }
    }
}

/// The file of this name, and whether it is old; `None` if the name has another user's file that cannot be removed.
fn open(disk: &Disk, name: &OsStr) -> Result<Option<(File, bool)>, Errno> {
    match disk.create(name, MODE) {
        Ok(file) => return Ok(Some((file, false))),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    if let Some(file) = reclaim(disk, name) {
        return Ok(Some((file, true)));
    }
    // Removes only the name: the target of a link, and a file with a second name, stay.
    if disk.unlink(name).is_err() {
        return Ok(None);
    }
    match disk.create(name, MODE) {
        Ok(file) => Ok(Some((file, false))),
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file of an earlier session, made private again: a session that is killed while it publishes leaves the source's
/// mode. `None` if others may have it open for writing, or it has a second name: it could change after verification.
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

/// Whether only this user could write to it.
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

    /// A claimed place.
    struct Fixture {
        directory: tempfile::TempDir,
        place: Place,
        claim: Claim,
    }

    impl Fixture {
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
        let fixture = Fixture::new();
        let first = fixture.open("one");
        assert!(!first.is_old);
        let name = fixture.names();
        assert_eq!(name.len(), 1);
        first.keep();
        let again = fixture.open("one");
        assert!(again.is_old && fixture.names() == name);
        again.keep();
        let other = fixture.open("two");
        assert!(!other.is_old && fixture.names().len() == 1 && fixture.names() != name);
        drop(other);
        assert!(fixture.names().is_empty());
    }

    #[test]
    fn files_writable_only_for_this_user_are_reused_and_made_private() {
        for left in [0o400, 0o600, 0o640, 0o644, 0o755, 0o4755] {
            let fixture = Fixture::new();
            let path = fixture.left_of("one");
            fs::write(&path, "partial").unwrap();
            mode(&path, left);
            let again = fixture.open("one");
            assert!(again.is_old, "{left:o}");
            assert_eq!(fs::read(&path).unwrap(), b"partial");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600, "{left:o}");
        }
    }

    #[test]
    fn files_writable_for_others_are_replaced() {
        for left in [0o620, 0o602, 0o666, 0o777] {
            let fixture = Fixture::new();
            let path = fixture.left_of("one");
            fs::write(&path, "theirs").unwrap();
            mode(&path, left);
            let before = fs::File::open(&path).unwrap().metadata().unwrap().ino();
            let theirs = fs::File::options().write(true).open(&path).unwrap();
            let new = fixture.open("one");
            assert!(!new.is_old && new.file.metadata().unwrap().len() == 0, "{left:o}");
            assert_ne!(new.file.metadata().unwrap().ino(), before);
            drop(theirs);
        }
    }

    #[test]
    fn links_and_directories_in_its_place_are_never_written_through() {
        let fixture = Fixture::new();
        let path = fixture.left_of("one");
        let victim = fixture.directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        for leave in [
            fs::hard_link as fn(PathBuf, PathBuf) -> std::io::Result<()>,
            |victim, path| symlink(victim, path),
            |_, path| fs::create_dir(path),
        ] {
            let _ = fs::remove_file(&path);
            leave(victim.clone(), path.clone()).unwrap();
            let new = fixture.open("one");
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
