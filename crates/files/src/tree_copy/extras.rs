//! What only the receiver has in a tree that is replaced as a whole.

use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, fstat, futimens,
        linkat, mkdirat, openat, statat,
    },
    io::Errno,
};
use tree::Listing;

use super::staging::open_directory;

/// Links what is in the directory `from`, and not in the listing, into the directory `to`. Both are the listing's
/// directory of this path. Errors: the path, and the system's error.
pub(super) fn add_extras(
    from: &OwnedFd,
    to: &OwnedFd,
    path: &[u8],
    listing: &Listing,
) -> Result<(), (Vec<u8>, Errno)> {
    let failed = |path: &[u8]| {
        let path = path.to_vec();
        move |error| (path, error)
    };
    // A descriptor of its own: reading moves its position.
    let reader =
        openat(from, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let reader = reader.map_err(failed(path))?;
    for entry in Dir::read_from(&reader).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let inner = match path {
            [] => name.to_vec(),
            path => [path, b"/", name].concat(),
        };
        let name = OsStr::from_bytes(name);
        let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed(&inner))?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_listed = listing.find(&inner).is_some();
        match (is_directory, is_listed) {
            (false, true) => {}
            (false, false) => {
                linkat(from, name, to, name, AtFlags::empty()).map_err(failed(&inner))?;
            }
            (true, _) => {
                if !is_listed {
                    match mkdirat(to, name, Mode::from_raw_mode(0o700)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(failed(&inner)(error)),
                    }
                }
                let open = |parent| open_directory(parent, name).map_err(failed(&inner));
                let (from, to) = (open(from)?, open(to)?);
                add_extras(&from, &to, &inner, listing)?;
                if !is_listed {
                    copy_attributes(&from, &to).map_err(failed(&inner))?;
                }
            }
        }
    }
    Ok(())
}

fn copy_attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let stat = fstat(from)?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    futimens(to, &times_of(&stat))
}

/// The times of a directory, for its copy.
fn times_of(stat: &rustix::fs::Stat) -> Timestamps {
    let time = |tv_sec, ns: u64| Timespec { tv_sec, tv_nsec: ns.cast_signed() };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}
