//! A file that is still being written, read until its writer is done.

use std::{
    fs::File,
    io::{self, Read},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::Path,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use crate::failure::Failure;

/// Room for several events of a watched file, which have no names.
const EVENTS_BYTES: usize = 512;

/// Reads a file to its end, and then what is added, until it is closed by a writer, renamed or removed.
pub struct Follow {
    file: File,
    events: OwnedFd,
    /// It is complete: what is left is the rest.
    is_done: bool,
}

impl Follow {
    /// Opens the file and begins to watch it.
    ///
    /// Errors: it cannot be read; the system cannot watch files.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed =
            |error: Errno| Failure::Io(format!("watching {}", path.display()), error.into());
        let events = inotify::init(CreateFlags::CLOEXEC).map_err(failed)?;
        // Before the first read, so that nothing is missed.
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE_SELF
            | WatchFlags::DELETE_SELF
            | WatchFlags::ATTRIB;
        inotify::add_watch(&events, path, flags).map_err(failed)?;
        let opened = File::open(path);
        let file = opened.map_err(|error| Failure::Io(path.display().to_string(), error))?;
        Ok(Self { file, events, is_done: false })
    }

    /// The file's permission bits.
    ///
    /// Errors: the system's.
    pub fn mode(&self) -> Result<u32, Failure> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(Failure::while_doing("the mode of the file"))?;
        Ok(metadata.permissions().mode() & 0o777)
    }

    /// Waits until the file has changed.
    fn wait(&mut self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = inotify::Reader::new(&self.events, &mut buffer);
        let ends = ReadFlags::CLOSE_WRITE | ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF;
        // All that were read: what remains in the buffer would be lost.
        loop {
            let event = events.next()?.events();
            // A file that is open here is not gone when its last name is.
            let is_removed = event.contains(ReadFlags::ATTRIB) && has_no_name(&self.file)?;
            self.is_done |= event.intersects(ends) || is_removed;
            if events.is_buffer_empty() {
                break;
            }
        }
        Ok(())
    }
}

fn has_no_name(file: &File) -> io::Result<bool> {
    Ok(std::os::unix::fs::MetadataExt::nlink(&file.metadata()?) == 0)
}

impl Read for Follow {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.file.read(into)?;
            if count > 0 || self.is_done {
                return Ok(count);
            }
            self.wait()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, thread};

    use super::*;

    fn followed(end: impl FnOnce(&Path, File)) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one ").unwrap();
        let mut follow = Follow::open(&path).unwrap();
        let mut first = [0; 4];
        follow.read_exact(&mut first).unwrap();
        let reading = thread::spawn(move || {
            let mut rest = Vec::new();
            follow.read_to_end(&mut rest).map(|_| rest)
        });
        for _ in 0..3 {
            file.write_all(b"more ").unwrap();
        }
        end(&path, file);
        [&first[..], &reading.join().unwrap().unwrap()].concat()
    }

    #[test]
    fn a_file_is_read_until_its_writer_closes_renames_or_removes_it() {
        let expected = b"one more more more ";
        assert_eq!(followed(|_, file| drop(file)), expected);
        let mut kept = Vec::new();
        let renamed = followed(|path, file| {
            fs::rename(path, path.with_extension("done")).unwrap();
            kept.push(file);
        });
        assert_eq!(renamed, expected);
        let removed = followed(|path, file| {
            fs::remove_file(path).unwrap();
            kept.push(file);
        });
        assert_eq!(removed, expected);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Follow::open(Path::new("/missing/log")).err().unwrap();
        assert!(format!("{error:?}").contains("/missing/log"), "{error:?}");
    }
}
