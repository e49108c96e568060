//! The files of labs that stay, and the lock for making and removing labs.
//!
//! A lab's file is written when all of the lab is made, and removed before any of it goes:
//! namespaces without one are what a crash has left.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    path::PathBuf,
    process::{self, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{Error, LabSettings};

const DIRECTORY: &str = "/run/rdmc-lab";
/// Longer than making a large lab on a busy machine.
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// The right to make and remove labs, for one process at a time; given back when dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Waits until no other process makes or removes labs.
    ///
    /// Errors: the state's directory cannot be written; another process takes longer than two minutes.
    pub fn take() -> Result<Self, Error> {
        let path = PathBuf::from(DIRECTORY).join("lock");
        let failed = |error| Error::while_doing(path.display())(error);
        fs::create_dir_all(DIRECTORY).map_err(Error::while_doing(DIRECTORY))?;
        let mut options = File::options();
        let mut file = options
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            if Instant::now() > deadline {
                let mut owner = String::new();
                file.read_to_string(&mut owner).map_err(failed)?;
                return Err(Error::Failed(format!(
                    "process {} has been making or removing labs for two minutes",
                    owner.trim()
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", process::id()).map_err(failed)?;
        Ok(Self { file })
    }

    /// The lock as the standard output of a program that prints nothing. It is held until that program ends: if this
    /// process is killed meanwhile, no other removes what the program still makes.
    pub fn to_output(&self) -> Result<Stdio, Error> {
        self.file.try_clone().map(Stdio::from).map_err(Error::while_doing("keeping the lock"))
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(format!("{name}.json"))
}

/// Records that a lab is whole.
pub fn write(name: &str, settings: &LabSettings) -> Result<(), Error> {
    let (path, draft) = (path(name), path(name).with_extension("draft"));
    let text = serde_json::to_vec_pretty(settings)
        .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    fs::write(&draft, text)
        .and_then(|()| fs::rename(&draft, &path))
        .map_err(Error::while_doing(path.display()))
}

/// What a whole lab is; `None` if there is no such lab.
pub fn read(name: &str) -> Result<Option<LabSettings>, Error> {
    let path = path(name);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            let remedy = format!("`rdmc-lab down --name {name}` removes the lab");
            Error::Failed(format!("{}: {error}; {remedy}", path.display()))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::while_doing(path.display())(error)),
    }
}

/// Removes the file of a lab, whole or not.
pub fn remove(name: &str) -> Result<(), Error> {
    for path in [path(name), path(name).with_extension("draft")] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::while_doing(path.display())(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The names of whole labs.
pub fn names() -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::while_doing(DIRECTORY)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::while_doing(DIRECTORY))?;
        names.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.strip_suffix(".json"))
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}
