//! The storage of a copy: it remembers why it failed, which a failed group does not say in full.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rdmc::{Region, RegionError, Storage};

/// The first error of a copy's storage, as a sentence.
#[derive(Clone, Default, Debug)]
pub(super) struct FirstError(Arc<OnceLock<String>>);

impl FirstError {
    pub(super) fn get(&self) -> Option<String> {
        self.0.get().cloned()
    }

    /// The same bytes, accessed with an eye on errors. `path`: of the copy.
    pub(super) fn watch(&self, region: Region, path: &Path) -> Result<Region, RegionError> {
        let (bytes, writable) = (region.len() as u64, region.is_writable());
        let watched = Watched { region, path: path.to_owned(), first: self.clone() };
        Region::from_storage(Arc::new(watched), bytes, writable)
    }
}

/// A region of a file or a tree.
struct Watched {
    region: Region,
    path: PathBuf,
    first: FirstError,
}

impl Watched {
    fn note<T>(&self, what: &str, outcome: io::Result<T>) -> io::Result<T> {
        outcome.inspect_err(|error| {
            self.first.0.get_or_init(|| sentence(what, &self.path, error));
        })
    }
}

impl Storage for Watched {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let start = offset as usize;
        let lease = self.region.read_stored(start..start + into.len()).map_err(io::Error::other)?;
        self.note("read", lease.copy_to(into))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = offset as usize;
        let lease = self.region.write_stored(start..start + bytes.len());
        self.note("write", lease.map_err(io::Error::other)?.copy_from(bytes))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// What cannot be done, why, and what to do about it.
fn sentence(what: &str, path: &Path, error: &io::Error) -> String {
    let failed = named(path, error);
    match remedy(error.kind()) {
        Some(remedy) => format!("cannot {what} {failed}; {remedy}"),
        None => format!("cannot {what} {failed}"),
    }
}

/// The error with the path of the copy; errors of files in a tree have their whole path.
pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    let (path, text) = (path.display().to_string(), error.to_string());
    let named = if text.starts_with(&path) { text } else { format!("{path}: {text}") };
    io::Error::new(error.kind(), named)
}

fn remedy(kind: io::ErrorKind) -> Option<&'static str> {
    Some(match kind {
        io::ErrorKind::StorageFull => "free some space there, or choose another --dest",
        io::ErrorKind::QuotaExceeded => {
            "that is this user's quota; free some of it, or choose another --dest"
        }
        io::ErrorKind::FileTooLarge => {
            "a file cannot be that long, by its file system or a limit of the receiver (ulimit -f); \
             raise it, or choose another --dest"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "its file system has become read-only; look for the reason in that machine's log"
        }
        // What exists was opened before, so it is a name of something new.
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            "its file system may not take that name, or something has removed it meanwhile; exclude \
             it, or choose another --dest"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// A disk that is full from the 100th byte on.
    struct Full;

    impl Storage for Full {
        fn read_at(&self, _into: &mut [u8], _offset: u64) -> io::Result<()> {
            Err(Errno::IO.into())
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            let end = offset + bytes.len() as u64;
            if end > 100 { Err(Errno::NOSPC.into()) } else { Ok(()) }
        }

        fn name(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn the_first_error_is_kept_with_path_number_and_remedy() {
        let first = FirstError::default();
        let region = Region::from_storage(Arc::new(Full), 1_000, true).unwrap();
        let region = first.watch(region, Path::new("/data/copy")).unwrap();
        region.write_stored(0..100).unwrap().copy_from(&[1; 100]).unwrap();
        assert_eq!(first.get(), None);
        region.write_stored(50..150).unwrap().copy_from(&[1; 100]).unwrap_err();
        region.read_stored(0..9).unwrap().copy_to(&mut [0; 9]).unwrap_err();
        let expected = "cannot write /data/copy: No space left on device (os error 28); free some \
                        space there, or choose another --dest";
        assert_eq!(first.get().as_deref(), Some(expected));
    }

    #[test]
    fn every_error_of_a_disk_has_its_number() {
        let all = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::ROFS, Errno::IO, Errno::INVAL];
        for errno in all {
            let number = format!("(os error {})", errno.raw_os_error());
            let own = sentence("write", Path::new("/data/tree"), &errno.into());
            assert!(own.starts_with("cannot write /data/tree: ") && own.contains(&number), "{own}");
            // As a tree names its files.
            let io = io::Error::from(errno);
            let named = io::Error::new(io.kind(), format!("/data/tree/a: {io}"));
            let named = sentence("write", Path::new("/data/tree"), &named);
            assert!(named.starts_with("cannot write /data/tree/a: "), "{named}");
            assert!(named.contains(&number), "{named}");
            assert_eq!(own.split_once("; ").map(|it| it.1), named.split_once("; ").map(|it| it.1));
        }
    }
}
