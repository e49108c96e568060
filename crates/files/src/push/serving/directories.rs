//! What a server serves: everything below some directories, which no path and no link leaves.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, open};

use crate::{
    SourceError,
    place::{PlaceError, open_beneath_as},
    reason::shortened,
};

/// The longest path that may be asked for, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// The directories that a server serves, held open.
#[derive(Debug)]
pub(super) struct Directories(Vec<(PathBuf, OwnedFd)>);

impl Directories {
    /// Errors: one is no directory that can be read.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, SourceError> {
        let opened = paths.iter().map(|path| {
            let system = |error| SourceError::System { path: path.clone(), what: "serve", error };
            let real = path.canonicalize().map_err(system)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = open(&real, flags, Mode::empty());
            Ok((real, directory.map_err(|error| system(error.into()))?))
        });
        opened.collect::<Result<_, _>>().map(Self)
    }

    /// The real path of what is asked for: by its path here, or by its path below one of the directories.
    ///
    /// Errors: it is in none of them, or there is no such thing; for the one who asks, who learns nothing of what is elsewhere.
    pub(super) fn find(&self, asked: &str) -> Result<PathBuf, String> {
        let shown = shortened(asked);
        if asked.len() > PATH_BYTES_MAX || asked.contains('\0') {
            return Err("the path is too long, or contains a null byte".to_owned());
        }
        let path = Path::new(asked);
        for (directory, opened) in &self.0 {
            let relative = match path.is_absolute() {
                true => path.strip_prefix(directory).ok(),
                false => Some(path),
            };
            let Some(relative) = relative else { continue };
            let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
            match open_beneath_as(opened, relative, OFlags::PATH | OFlags::CLOEXEC) {
                Ok(found) => return real_path(&found, directory, &shown),
                Err(PlaceError::Outside) => {
                    return Err(format!("{shown} leads out of what is served"));
                }
                Err(_) => {}
            }
        }
        Err(format!("{shown} is not in what is served here, or there is no such file or directory"))
    }
}

/// The path of what was opened, without links.
fn real_path(found: &OwnedFd, directory: &Path, shown: &str) -> Result<PathBuf, String> {
    use std::os::fd::AsRawFd;
    let real: io::Result<PathBuf> = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()));
    // It may have been moved meanwhile.
    let real = real.ok().filter(|real| real.starts_with(directory));
    real.ok_or_else(|| format!("{shown} was moved; try again"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_asked_for_is_below_a_directory_that_is_served() {
        let all = tempfile::tempdir().unwrap();
        let top = all.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("one/in")).unwrap();
        fs::create_dir_all(top.join("two")).unwrap();
        fs::create_dir_all(top.join("one-other")).unwrap();
        fs::write(top.join("one/in/file"), "").unwrap();
        fs::write(top.join("two/other"), "").unwrap();
        fs::write(top.join("secret"), "").unwrap();
        symlink("in/file", top.join("one/near")).unwrap();
        symlink("../secret", top.join("one/far")).unwrap();
        symlink("/proc/self/root", top.join("one/root")).unwrap();
        let served = Directories::open(&[top.join("one"), top.join("two")]).unwrap();
        let find = |path: &str| served.find(path);
        let absolute = |path: &str| find(top.join(path).to_str().unwrap());
        assert_eq!(find("in/file"), Ok(top.join("one/in/file")));
        assert_eq!(find("other"), Ok(top.join("two/other")));
        assert_eq!(find("near"), Ok(top.join("one/in/file")));
        assert_eq!(absolute("one/in/file"), Ok(top.join("one/in/file")));
        assert_eq!(absolute("one"), Ok(top.join("one")));
        assert_eq!(absolute("one/"), Ok(top.join("one")));
        for out in ["far", "../secret", "in/../../secret", "root", "root/etc/passwd"] {
            let refused = find(out).unwrap_err();
            assert!(refused.contains("leads out"), "{out}: {refused}");
        }
        let long = "a/".repeat(3000);
        for missing in ["none", "in/none", "a\0b", &long] {
            assert!(find(missing).is_err(), "{missing}");
        }
        for out in ["secret", "one-other", "", "none", "two/../secret"] {
            assert!(absolute(out).is_err(), "{out}");
        }
        fs::rename(top.join("one"), top.join("moved")).unwrap();
        assert!(find("in/file").unwrap_err().contains("was moved"));
        assert!(Directories::open(&[top.join("secret")]).is_err());
    }
}
