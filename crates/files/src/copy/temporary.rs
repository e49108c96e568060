//! The temporary file of a copy.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

use crate::{
    claim::Claim,
    disk::Directory,
    place::{Place, VERSION_DIGITS},
};

/// A partial copy is private.
const MODE: u32 = 0o600;
/// Names to try for one version, if other users' files that cannot be removed have some of them.
const NAMES_MAX: u32 = 8;

/// The file `.NAME.rdmc-VERSION`; removed when dropped, unless it was published or is kept.
#[derive(Debug)]
pub(crate) struct Temporary {
    directory: Directory,
    name: OsString,
    file: File,
    is_removed_when_dropped: bool,
}

impl Temporary {
    /// Opens the file that an earlier session left of this version. `user`: whose it is to be; it may be already.
    pub(crate) fn find(place: &Place, version: &[u8], user: Option<u32>) -> Option<Self> {
        let directory = place.parent().clone();
        let found = |name: OsString| {
            let file = reclaim(&directory, &name, user)?;
            Some((name, file))
        };
        let (name, file) = names(place, version).find_map(found)?;
        Some(Self { directory, name, file, is_removed_when_dropped: true })
    }

    /// The same, or creates one; removes those of other versions. The claim excludes other users of these files.
    ///
    /// Errors: the system's.
    pub(crate) fn open(
        place: &Place,
        version: &[u8],
        user: Option<u32>,
        _claim: &Claim,
    ) -> Result<Self, Errno> {
        let directory = place.parent();
        for name in names(place, version) {
            if let Some(file) = open(directory, &name, user)? {
                place.remove_temporaries(Some(&name));
                let directory = directory.clone();
                return Ok(Self { directory, name, file, is_removed_when_dropped: true });
            }
        }
        Err(Errno::EXIST)
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }

    /// Leaves the file.
    pub(crate) fn keep(mut self) {
        self.is_removed_when_dropped = false;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_removed_when_dropped {
            // Removed already, or a failing disk.
            let _ = self.directory.unlink(&self.name);
        }
    }
}

/// Names to try for a version.
fn names(place: &Place, version: &[u8]) -> impl Iterator<Item = OsString> {
    (0..NAMES_MAX).map(move |attempt: u32| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(version).update(&attempt.to_le_bytes());
        place.hidden(&hasher.finalize().to_hex()[..VERSION_DIGITS])
    })
}

/// The file of this name; `None` if the name has another user's file that cannot be removed.
fn open(directory: &Directory, name: &OsStr, user: Option<u32>) -> Result<Option<File>, Errno> {
    match directory.create(name, MODE) {
        Ok(file) => return Ok(Some(file)),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    if let Some(file) = reclaim(directory, name, user) {
        return Ok(Some(file));
    }
    // Removes only the name: the target of a link, and a file with a second name, stay.
    if directory.unlink(name).is_err() {
        return Ok(None);
    }
    match directory.create(name, MODE) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file of an earlier session, made private again: a session that is killed while it publishes leaves the source's
/// mode. `None` if others may have it open for writing, or it has a second name: it could change after verification.
fn reclaim(directory: &Directory, name: &OsStr, user: Option<u32>) -> Option<File> {
    let own = |file: File| is_own(&file.metadata().ok()?, user).then_some(file);
    let open = |flags| directory.open(name, flags).and_then(|file| own(file).ok_or(Errno::PERM));
    let file = match open(OFlags::RDWR) {
        Err(Errno::ACCESS) => {
            directory.disk().set_mode(&open(OFlags::RDONLY).ok()?, MODE).ok()?;
            open(OFlags::RDWR)
        }
        opened => opened,
    };
    let (file, own) = (file.ok()?, geteuid().as_raw());
    if file.metadata().ok()?.uid() != own {
        directory.disk().set_owner(&file, Some(own), None).ok()?;
    }
    directory.disk().set_mode(&file, MODE).ok()?;
    Some(file)
}

/// Whether only this user could write to it, or the one whose it is to be.
fn is_own(metadata: &Metadata, user: Option<u32>) -> bool {
    let has_one_writer = metadata.mode() & 0o022 == 0 && metadata.nlink() == 1;
    let uid = metadata.uid();
    metadata.is_file() && has_one_writer && (uid == geteuid().as_raw() || Some(uid) == user)
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
            Temporary::open(&self.place, version.as_bytes(), None, &self.claim).unwrap()
        }

        fn find(&self, version: &str) -> Option<Temporary> {
            Temporary::find(&self.place, version.as_bytes(), None)
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
        assert!(fixture.find("one").is_none());
        let first = fixture.open("one");
        let name = fixture.names();
        assert_eq!(name.len(), 1);
        first.keep();
        let again = fixture.find("one").unwrap();
        assert_eq!(fixture.names(), name);
        again.keep();
        assert!(fixture.find("two").is_none());
        let other = fixture.open("two");
        assert!(fixture.names().len() == 1 && fixture.names() != name);
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
            assert!(
                fixture.find("one").is_some_and(|found| {
                    found.keep();
                    true
                }),
                "{left:o}"
            );
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
            assert!(fixture.find("one").is_none(), "{left:o}");
            let new = fixture.open("one");
            assert!(new.file.metadata().unwrap().len() == 0, "{left:o}");
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
            assert!(fixture.find("one").is_none());
            let new = fixture.open("one");
            disk_write(&new);
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
            assert_eq!(fs::metadata(&victim).unwrap().nlink(), 1);
        }
    }

    fn disk_write(temporary: &Temporary) {
        temporary.directory.disk().write(temporary.as_file(), b"contents", 0).unwrap();
    }
}
