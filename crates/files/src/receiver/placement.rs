//! Which destinations a receiver accepts.

use std::path::{Component, Path, PathBuf};

use super::error::ReceiveError;
use crate::{
    TargetError,
    copy::refusal,
    disk::Directory,
    place::{NAME_BYTES_MAX, Place, is_hidden},
    reason::shows_nothing,
};

/// A receiver's rule for destinations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Any path: for a receiver started by the root, with the rights of that user.
    Anywhere,
    /// The same, and missing directories of the path are made.
    Making,
    /// Only paths below this directory: for a receiver that listens.
    Below(PathBuf),
}

impl Placement {
    /// Opens the directory of a destination. The place stays the same if directories on its path are replaced. A dry run makes no
    /// directory: the place of the outermost one that is missing stands for what would be in it, as nothing is there either.
    ///
    /// Errors: the destination is not accepted; its directory is missing, or cannot be made.
    pub(crate) fn place(&self, destination: &str, dry_run: bool) -> Result<Place, ReceiveError> {
        let path = self.path(destination)?;
        if let Self::Below(root) = self {
            return Place::below(root, Path::new(destination))
                .map_err(|error| TargetError::no_place(&path, error).into());
        }
        let place =
            |path: &Path| Place::anywhere(path).map_err(|error| TargetError::no_place(path, error));
        let placed = match place(&path) {
            Err(TargetError::MissingParent(directory)) if *self == Self::Making => {
                let missing = directory.ancestors().take_while(|outer| !outer.exists());
                match missing.last().filter(|_| dry_run) {
                    Some(outermost) => place(outermost),
                    None => {
                        let made = std::fs::create_dir_all(&directory);
                        made.map_err(|error| refusal(&directory, "create", 0, error))?;
                        place(&path)
                    }
                }
            }
            placed => placed,
        };
        Ok(placed?)
    }

    /// Opens a directory that is there; with `follows` also by a symbolic link, which may not lead out of
    /// a receiver's directory.
    ///
    /// Errors: the destination is not accepted; it is no directory.
    pub(crate) fn directory(
        &self,
        destination: &str,
        follows: bool,
    ) -> Result<Directory, ReceiveError> {
        let path = self.path(destination)?;
        let opened = match self {
            Self::Anywhere | Self::Making => Place::directory_anywhere(&path, follows),
            Self::Below(root) => Place::directory_below(root, Path::new(destination), follows),
        };
        Ok(opened.map_err(|error| TargetError::no_place(&path.join("."), error))?)
    }

    /// The path of a destination. Errors: it is not accepted.
    pub(crate) fn path(&self, destination: &str) -> Result<PathBuf, ReceiveError> {
        let Self::Below(root) = self else { return at_home(destination) };
        check(destination).map_err(ReceiveError::Refused)?;
        Ok(root.join(destination))
    }
}

/// A path in which a leading `~/` is the home directory of this receiver's user, whatever directory it was started in.
///
/// Errors: the user has none.
fn at_home(destination: &str) -> Result<PathBuf, ReceiveError> {
    let below = match destination.strip_prefix('~') {
        Some("") => "",
        Some(rest) if rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => return Ok(destination.into()),
    };
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| {
        let what = format!(
            "{destination:?}: this host's user has no home directory; give --dest an absolute path"
        );
        ReceiveError::Refused(what)
    })?;
    // A path of what is to be a directory keeps its end.
    Ok(if below.is_empty() { home } else { home.join(below) })
}

/// Checks that a destination names a file below a directory and contains visible characters only.
///
/// Errors: the fault and the remedy.
fn check(destination: &str) -> Result<(), String> {
    let path = Path::new(destination);
    let is_plain = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.file_name().is_none() || !path.components().all(is_plain) {
        return Err(format!(
            "this receiver writes only below its own directory: give --dest a relative path \
             without \"..\" instead of {destination:?}"
        ));
    }
    // `Path` ignores these; rsync and tar take them for a directory.
    if destination.ends_with('/') || destination.ends_with("/.") {
        return Err(format!("{destination:?} names a directory; name a file as --dest"));
    }
    let before = [None].into_iter().chain(destination.chars().map(Some));
    let mut pairs = before.zip(destination.chars());
    if let Some((_, character)) =
        pairs.find(|&(before, character)| shows_nothing(before, character))
    {
        return Err(format!(
            "\"{}\" has the character U+{:04X}, which is invisible or changes how a name is displayed; choose another --dest",
            destination.escape_default(),
            u32::from(character)
        ));
    }
    if let Some(name) = destination.split('/').find(|name| name.len() > NAME_BYTES_MAX) {
        return Err(format!(
            "a name in --dest has {} bytes, at most {NAME_BYTES_MAX} are possible; choose a shorter \
             one",
            name.len()
        ));
    }
    if destination.split('/').any(is_hidden) {
        return Err(format!(
            "{destination:?} has the form of a temporary file of rdmc; choose another --dest"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;
    use crate::{Manifest, Target, Verified, claim::Owner};

    #[test]
    fn a_confined_receiver_stays_in_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let below = Placement::Below(directory.path().to_owned());
        fs::create_dir(directory.path().join("sub")).unwrap();
        symlink("/", directory.path().join("out")).unwrap();
        symlink("sub", directory.path().join("in")).unwrap();
        for good in
            ["a", "sub/a", "./a", "sub/./a", "in/a", "...", "a b", "-", "\u{e4}", "a\u{308}"]
        {
            assert_eq!(below.place(good, false).unwrap().path(), directory.path().join(good));
        }
        for bad in ["/etc/passwd", "../a", "sub/../../a", "sub/../a", "", ".", "..", "/"] {
            let error = below.place(bad, false).unwrap_err().to_string();
            assert!(error.contains("only below its own directory: give --dest"), "{bad}: {error}");
        }
        for bad in ["out/a", "out/etc/b", "in/../out/b"] {
            assert!(below.place(bad, false).is_err(), "{bad}");
        }
        let missing = below.place("missing/a", false).unwrap_err().to_string();
        assert!(missing.contains("/missing does not exist; create it first"), "{missing}");
    }

    #[test]
    fn misleading_names_are_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let below = Placement::Below(directory.path().to_owned());
        let refused = |name: &str| below.place(name, false).unwrap_err().to_string();
        for name in ["a/", "a/.", "a//"] {
            assert!(refused(name).contains("names a directory; name a file"), "{name}");
        }
        for name in [
            "a\nb",
            "a\0b",
            "\u{1b}[2J",
            "a\u{7f}",
            "gpj\u{202e}.exe",
            "a\u{200b}",
            "\u{85}",
            "a\u{ad}",
            "\u{3164}",
        ] {
            let error = refused(name);
            assert!(error.contains("has the character U+"), "{name:?}: {error}");
            assert!(!error.contains(name), "shown as it is: {error:?}");
        }
        assert!(below.place(&"n".repeat(255), false).is_ok());
        assert!(refused(&"n".repeat(256)).contains("has 256 bytes, at most 255"));
        assert!(refused(&format!("{}/a", "\u{e4}".repeat(128))).contains("has 256 bytes"));
        assert!(refused(".copy.rdmc-0123456789ab").contains("temporary file of rdmc"));
    }

    fn manifest() -> Manifest {
        Manifest { name: "object".into(), bytes: 1, mode: 0o755, modified_ns: 0 }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn publish(target: Target) -> Result<bool, TargetError> {
        let digest = blake3::hash(b"");
        target.publish(&Verified::compare(digest, digest).unwrap())
    }

    #[test]
    fn a_directory_replaced_by_a_link_is_named_and_never_written_through() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (sub, moved) = (root.path().join("sub"), root.path().join("moved"));
        fs::create_dir(&sub).unwrap();
        let below = Placement::Below(root.path().to_owned());
        let target = Target::create_at(
            below.place("sub/a", false).unwrap(),
            manifest(),
            &Owner::of_no_push(""),
        )
        .unwrap();
        fs::rename(&sub, &moved).unwrap();
        symlink(outside.path(), &sub).unwrap();
        let replaced = publish(target);
        assert!(matches!(replaced, Err(TargetError::Replaced(path)) if path == sub));
        assert!(names(&moved)[0].starts_with(".a.rdmc-"), "kept for another push");
        assert!(names(outside.path()).is_empty());
        assert!(below.place("sub/b", false).unwrap_err().to_string().contains("leads out of"));
    }

    #[test]
    fn a_race_between_directory_and_link_never_leads_outside() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (sub, link) = (root.path().join("sub"), root.path().join("link"));
        fs::create_dir(&sub).unwrap();
        symlink(outside.path(), &link).unwrap();
        let done = AtomicBool::new(false);
        let below = Placement::Below(root.path().to_owned());
        let (mut published, mut replaced, mut refused) = (0, 0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    renameat_with(CWD, &sub, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            for _ in 0..500 {
                let place = below.place("sub/a", false);
                let target =
                    place.map(|place| Target::create_at(place, manifest(), &Owner::of_no_push("")));
                match target.map(|target| target.and_then(publish)) {
                    Ok(Ok(_)) => published += 1,
                    Ok(Err(TargetError::Replaced(_))) => replaced += 1,
                    Ok(Err(_)) | Err(_) => refused += 1,
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(
            names(outside.path()).is_empty(),
            "of {published} published, {replaced} replaced, {refused} refused"
        );
    }

    #[test]
    fn a_receiver_started_by_the_root_accepts_any_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sub/../a");
        fs::create_dir(directory.path().join("sub")).unwrap();
        let place = Placement::Anywhere.place(path.to_str().unwrap(), false).unwrap();
        assert_eq!(place.path(), path);
    }

    #[test]
    fn a_leading_tilde_is_the_home_directory() {
        let home = std::env::home_dir().unwrap();
        let path = |destination: &str| Placement::Anywhere.path(destination).unwrap();
        assert_eq!([path("~/a/b"), path("~//a/b")], [home.join("a/b"), home.join("a/b")]);
        assert_eq!([path("~"), path("~/")], [home.clone(), home]);
        for other in ["./~", "~a/b", "a/~/b", "/~/b"] {
            assert_eq!(path(other), Path::new(other));
        }
        let below = Placement::Below("/srv".into());
        assert_eq!(below.path("~/a").unwrap(), Path::new("/srv/~/a"));
    }
}
