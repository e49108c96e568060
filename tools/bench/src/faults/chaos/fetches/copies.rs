//! What is served, the copies of hosts, and what may be where.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{outcome::Outcome, push_command::PushFiles};

/// The contents of older copies.
const OLD: &[u8] = b"an older version";
/// Files of the directory that is fetched, below it; the first also in older copies.
const FILES: [&str; 3] = ["first", "in/second", "in/third"];

/// Directories of servers and hosts, all on this machine. Belongs to the files that it was made of.
pub struct Copies {
    rdmc: PathBuf,
    directory: PathBuf,
}

impl Copies {
    /// Makes what is served, from the file to push, and a secret. Errors: of the file system; the command does not work.
    pub fn create(files: &PushFiles) -> Outcome<Self> {
        let copies = Self { rdmc: files.rdmc.clone(), directory: files.directory().to_owned() };
        copies.put_served(&files.object)?;
        // Readable for its owner alone from the start.
        let script = "umask 077 && exec \"$0\" secret >\"$1\"";
        let mut secret = Command::new("sh");
        secret.args(["-c", script]).args([&copies.rdmc, &copies.secret()]);
        if !secret.status()?.success() {
            return Err("rdmc secret has failed".into());
        }
        Ok(copies)
    }

    fn put_served(&self, object: &Path) -> Outcome<()> {
        let served = self.served();
        fs::create_dir_all(served.join("directory/in"))?;
        fs::hard_link(object, served.join("file"))?;
        // Files of different lengths, together as long as the one.
        let bytes = fs::read(object)?;
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        let (second, third) = rest.split_at(rest.len() / 3);
        for (path, bytes) in FILES.into_iter().zip([first, second, third]) {
            fs::write(served.join("directory").join(path), bytes)?;
        }
        Ok(())
    }

    /// The command.
    pub fn rdmc(&self) -> &Path {
        &self.rdmc
    }

    pub fn secret(&self) -> PathBuf {
        self.directory.join("secret")
    }

    /// What servers serve.
    pub fn served(&self) -> PathBuf {
        self.directory.join("served")
    }

    /// The directory of a host's copy.
    pub fn place(&self, host: &str) -> PathBuf {
        self.directory.join("copies").join(host)
    }

    /// What a member has printed.
    pub fn log(&self, member: &str) -> PathBuf {
        self.directory.join("logs").join(member)
    }

    /// Empty directories for a round.
    pub fn clear<'h>(&self, mut hosts: impl Iterator<Item = &'h str>) -> Outcome<()> {
        for directory in ["copies", "logs"] {
            let directory = self.directory.join(directory);
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(directory)?;
        }
        hosts.try_for_each(|host| Ok(fs::create_dir(self.place(host))?))
    }

    /// Gives a host an older copy.
    pub fn put_old(&self, host: &str, name: &str) -> Outcome<()> {
        let copy = self.place(host).join(name);
        if name == "file" {
            return Ok(fs::write(copy, OLD)?);
        }
        fs::create_dir(&copy)?;
        Ok(fs::write(copy.join(FILES[0]), OLD)?)
    }

    /// The files of an object by their paths from the directory that it is in.
    fn files(name: &str) -> Vec<PathBuf> {
        match name {
            "file" => vec![PathBuf::from(name)],
            _ => FILES.iter().map(|file| Path::new(name).join(file)).collect(),
        }
    }

    fn is_equal(&self, host: &str, file: &Path) -> Outcome<bool> {
        Ok(fs::read(self.place(host).join(file))? == fs::read(self.served().join(file))?)
    }

    /// A host has a whole copy, and nothing else. Errors: which of this is not so.
    pub fn check_whole(&self, host: &str, name: &str) -> Outcome<()> {
        for file in Self::files(name) {
            if !self.is_equal(host, &file)? {
                return Err(format!("{host}: {} is not equal", file.display()).into());
            }
        }
        let mut expected = Self::files(name);
        if name != "file" {
            expected.extend([PathBuf::from(name), Path::new(name).join("in")]);
        }
        let mut there = Vec::new();
        list(&self.place(host), Path::new(""), &mut there)?;
        expected.sort();
        there.sort();
        if there != expected {
            return Err(format!("{host} has {there:?}, not {expected:?}").into());
        }
        Ok(())
    }

    /// Each file of a host that was killed is the old one or the new one; a directory that is new is whole or missing.
    pub fn check_old_or_new(&self, host: &str, name: &str, has_old: bool) -> Outcome<()> {
        let place = self.place(host);
        if !place.join(name).exists() {
            return if has_old {
                Err(format!("{host} has lost its old copy").into())
            } else {
                Ok(())
            };
        }
        for file in Self::files(name) {
            let path = place.join(&file);
            // The old directory has the first file alone.
            if has_old && !path.exists() && !file.ends_with(FILES[0]) && name != "file" {
                continue;
            }
            let is_old = has_old && fs::read(&path)? == OLD;
            if !is_old && !self.is_equal(host, &file)? {
                let file = file.display();
                return Err(
                    format!("{host} was killed, and its {file} is neither old nor new").into()
                );
            }
        }
        Ok(())
    }
}

/// The entries below a directory, hidden ones included.
fn list(directory: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Outcome<()> {
    for entry in fs::read_dir(directory.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(directory, &path, found)?;
        }
        found.push(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_copies_and_what_is_left_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let copies = Copies { rdmc: PathBuf::new(), directory: directory.path().to_owned() };
        let object = directory.path().join("object");
        fs::write(&object, vec![7; 100]).unwrap();
        copies.put_served(&object).unwrap();
        copies.clear(["host"].into_iter()).unwrap();
        let killed = |name, has_old| copies.check_old_or_new("host", name, has_old).is_ok();
        let whole = |name| copies.check_whole("host", name).is_ok();
        let copy = |file: &str, bytes: usize| {
            let bytes = &fs::read(copies.served().join(file)).unwrap()[..bytes];
            fs::write(copies.place("host").join(file), bytes).unwrap();
        };
        // A file: none, the old one, a part, the new one.
        assert!(killed("file", false) && !killed("file", true) && !whole("file"));
        copies.put_old("host", "file").unwrap();
        assert!(killed("file", true) && !killed("file", false) && !whole("file"));
        copy("file", 99);
        assert!(!killed("file", true) && !killed("file", false) && !whole("file"));
        copy("file", 100);
        assert!(killed("file", true) && killed("file", false) && whole("file"));
        fs::write(copies.place("host").join(".file.rdmc-0"), "").unwrap();
        assert!(killed("file", false) && !whole("file"));
        // A directory: old, of which a file is new; new.
        copies.clear(["host"].into_iter()).unwrap();
        copies.put_old("host", "directory").unwrap();
        assert!(killed("directory", true) && !killed("directory", false));
        fs::create_dir(copies.place("host").join("directory/in")).unwrap();
        copy("directory/in/second", 16);
        assert!(killed("directory", true) && !killed("directory", false));
        copy("directory/in/third", 33);
        assert!(!killed("directory", true), "a part of a file");
        copy("directory/in/third", 34);
        assert!(killed("directory", true) && !whole("directory"));
        copy("directory/first", 50);
        assert!(killed("directory", false) && whole("directory"));
        fs::create_dir(copies.place("host").join("directory/.in.rdmc-0")).unwrap();
        assert!(!whole("directory"));
        fs::remove_file(copies.place("host").join("directory/first")).unwrap();
        assert!(!killed("directory", true), "an old file is lost");
    }
}
