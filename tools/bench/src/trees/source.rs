//! What is copied: files with random contents.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use rustix::fs::{Advice, fadvise};

use crate::{interrupt::Interrupt, outcome::Outcome, random::Random};

/// Files in each directory of a tree.
const FILES_PER_DIRECTORY: u32 = 1000;
/// Read at once when contents are compared.
const PART_BYTES: usize = 1 << 20;

/// Which source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// A single file
    One,
    /// A directory of large files
    Large,
    /// A directory of small files
    Small,
}

/// A file or a tree that is copied.
#[derive(Debug)]
pub struct Source {
    pub name: &'static str,
    pub path: PathBuf,
    pub files: u32,
    pub bytes: u64,
}

impl Source {
    /// A tree of files of this length, made in `parent`. Errors: the system's; an interrupt.
    pub fn make(
        name: &'static str,
        path: PathBuf,
        (files, each_bytes): (u32, u64),
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let mut random = Random::new(u64::from(files));
        let mut contents = vec![0; usize::try_from(each_bytes)?];
        for number in 0..files {
            let directory = path.join((number / FILES_PER_DIRECTORY).to_string());
            if number % FILES_PER_DIRECTORY == 0 {
                interrupt.check()?;
                fs::create_dir_all(&directory)?;
            }
            for word in contents.chunks_mut(8) {
                word.copy_from_slice(&random.bits().to_le_bytes()[..word.len()]);
            }
            File::create(directory.join(number.to_string()))?.write_all(&contents)?;
        }
        Ok(Self { name, path, files, bytes: u64::from(files) * each_bytes })
    }

    /// Asks the system to forget the contents, so that they are read from disk. They have to be on disk.
    pub fn forget(&self) -> Outcome<()> {
        forget(&self.path)
    }

    /// Errors: the copy in this directory has not as many files, or not as many bytes.
    pub fn check_count(&self, directory: &Path) -> Outcome<()> {
        let copy = self.copy_in(directory);
        let found = count(&copy)?;
        if found == (u64::from(self.files), self.bytes) {
            return Ok(());
        }
        Err(format!("{} has {found:?} files and bytes of {}", copy.display(), self.name).into())
    }

    /// Errors: a file is missing in the copy in this directory, or has other contents.
    pub fn check_contents(&self, directory: &Path) -> Outcome<()> {
        compare(&self.path, &self.copy_in(directory))
    }

    fn copy_in(&self, directory: &Path) -> PathBuf {
        directory.join(self.path.file_name().unwrap_or_default())
    }
}

fn forget(path: &Path) -> Outcome<()> {
    if path.is_dir() {
        return fs::read_dir(path)?.try_for_each(|entry| forget(&entry?.path()));
    }
    Ok(fadvise(File::open(path)?, 0, None, Advice::DontNeed)?)
}

/// Files and bytes below a path.
fn count(path: &Path) -> Outcome<(u64, u64)> {
    if !path.is_dir() {
        return Ok((1, fs::metadata(path)?.len()));
    }
    let mut all = (0, 0);
    for entry in fs::read_dir(path)? {
        let (files, bytes) = count(&entry?.path())?;
        all = (all.0 + files, all.1 + bytes);
    }
    Ok(all)
}

/// Errors: not all files of `source` are in `copy` with the same contents.
fn compare(source: &Path, copy: &Path) -> Outcome<()> {
    if source.is_dir() {
        return fs::read_dir(source)?.try_for_each(|entry| {
            let entry = entry?;
            compare(&entry.path(), &copy.join(entry.file_name()))
        });
    }
    let other = |error| format!("{}: {error}", copy.display());
    let (mut left, mut right) = (File::open(source)?, File::open(copy).map_err(other)?);
    let (mut of_source, mut of_copy) = (vec![0; PART_BYTES], vec![0; PART_BYTES]);
    loop {
        let bytes = left.read(&mut of_source)?;
        right.read_exact(&mut of_copy[..bytes]).map_err(other)?;
        if of_source[..bytes] != of_copy[..bytes] {
            return Err(format!("{} has other contents", copy.display()).into());
        }
        if bytes == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_differs_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (interrupt, at) = (Interrupt::watch().unwrap(), |name| directory.path().join(name));
        let source = Source::make("small", at("small"), (3, 9), &interrupt).unwrap();
        let copy = at("copy").join("small/0");
        fs::create_dir_all(&copy).unwrap();
        for number in ["0", "1", "2"] {
            assert!(source.check_count(&at("copy")).is_err());
            assert!(source.check_contents(&at("copy")).is_err());
            fs::copy(at("small/0").join(number), copy.join(number)).unwrap();
        }
        source.check_count(&at("copy")).unwrap();
        source.check_contents(&at("copy")).unwrap();
        fs::write(copy.join("1"), [0; 9]).unwrap();
        source.check_count(&at("copy")).unwrap();
        let error = source.check_contents(&at("copy")).unwrap_err().to_string();
        assert!(error.ends_with("small/0/1 has other contents"), "{error}");
        fs::write(copy.join("1"), [0; 8]).unwrap();
        assert!(source.check_count(&at("copy")).is_err());
    }
}
