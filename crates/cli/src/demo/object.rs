//! The file that the demo replicates.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use plan::size;

use crate::{failure::Failure, interrupt::Interrupt};

/// A file with its digest.
pub struct Object {
    pub path: PathBuf,
    pub bytes: u64,
    digest: blake3::Hash,
}

impl Object {
    /// An existing file. Errors: unreadable.
    pub fn existing(path: &Path) -> Result<Self, Failure> {
        // Opened as in a push, for the same errors.
        let source = files::Source::open(path).map_err(Failure::because)?;
        let digest = files::digest_of(path).map_err(Failure::while_doing(path.display()))?;
        Ok(Self { path: path.to_owned(), bytes: source.manifest().bytes, digest })
    }

    /// A new file of random data, from BLAKE3 with a random key: fast and incompressible.
    pub fn random(path: &Path, bytes: u64, interrupt: &Interrupt) -> Result<Self, Failure> {
        let failed = |error| Failure::Io(format!("writing {}", path.display()), error);
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| Failure::Failed(format!("cannot get random numbers: {error}")))?;
        let mut stream = blake3::Hasher::new_keyed(&key).finalize_xof();
        let mut file = BufWriter::new(File::create_new(path).map_err(failed)?);
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            interrupt.check()?;
            let length = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            stream.fill(&mut chunk[..length]);
            hasher.update(&chunk[..length]);
            file.write_all(&chunk[..length]).map_err(failed)?;
            left -= length as u64;
        }
        file.into_inner()
            .map_err(|error| failed(error.into_error()))?
            .sync_all()
            .map_err(failed)?;
        Ok(Self { path: path.to_owned(), bytes, digest: hasher.finalize() })
    }

    /// Compares a copy. Errors: missing or different; `what` describes the copy.
    pub fn check_copy(&self, place: &Path, what: &str) -> Result<(), Failure> {
        let digest = files::digest_of(place).map_err(Failure::while_doing(what))?;
        if digest == self.digest {
            Ok(())
        } else {
            Err(Failure::Failed(format!("{what}: the copy differs from the original")))
        }
    }
}

/// Checks that a directory has space for the copies of one run, and for a generated original.
pub fn check_space(
    directory: &Path,
    file: Option<&Path>,
    made_bytes: u64,
    receivers: usize,
) -> Result<(), Failure> {
    let shown = directory.display();
    let (bytes, copies) = match file {
        Some(path) => {
            let source = files::Source::open(path).map_err(Failure::because)?;
            (source.manifest().bytes, receivers)
        }
        None => (made_bytes, receivers + 1),
    };
    let needed = bytes.saturating_mul(copies as u64);
    let space = rustix::fs::statvfs(directory)
        .map_err(|error| Failure::Io(shown.to_string(), error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < needed {
        return Err(Failure::Failed(format!(
            "the demo needs {} in {shown}, but only {} are free; choose another --dir, or a smaller --size",
            size::show(needed),
            size::show(free)
        )));
    }
    Ok(())
}
