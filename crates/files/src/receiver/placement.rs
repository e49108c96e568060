//! Where a root may make a receiver write.

use std::path::{Component, Path, PathBuf};

/// Which destinations a receiver accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Whatever this process may write: for a receiver that the root has started itself.
    Anywhere,
    /// Only below this directory: for a receiver that waits for whoever knows its secret.
    Below(PathBuf),
}

impl Placement {
    /// The path for a destination that the root asks for, or the reason for refusing it.
    pub fn resolve(&self, destination: &str) -> Result<PathBuf, String> {
        let Self::Below(directory) = self else { return Ok(PathBuf::from(destination)) };
        let relative = Path::new(destination);
        let is_plain = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
        if relative.file_name().is_none() || !relative.components().all(is_plain) {
            return Err(format!(
                "this receiver writes only below its own directory: give --dest a relative path \
                 without \"..\" instead of \"{destination}\""
            ));
        }
        let path = directory.join(relative);
        // A symbolic link below the directory could lead out of it. What does not exist yet is
        // refused later, with a better message.
        let real = |path: &Path| path.canonicalize().ok();
        if let (Some(directory), Some(parent)) = (real(directory), path.parent().and_then(real))
            && !parent.starts_with(&directory)
        {
            return Err(format!(
                "\"{destination}\" leads out of this receiver's directory by a symbolic link"
            ));
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_receiver_stays_in_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let below = Placement::Below(directory.path().to_owned());
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::os::unix::fs::symlink("/", directory.path().join("out")).unwrap();
        for good in ["a", "sub/a", "./a", "missing/a"] {
            assert_eq!(below.resolve(good), Ok(directory.path().join(good)));
        }
        for bad in ["/etc/passwd", "../a", "sub/../../a", "", ".", "..", "/", "out/a", "out/etc/b"]
        {
            assert!(below.resolve(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_started_receiver_writes_where_it_is_told() {
        assert_eq!(Placement::Anywhere.resolve("/a/../b"), Ok(PathBuf::from("/a/../b")));
    }
}
