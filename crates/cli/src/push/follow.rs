//! A file that is still being written, read until its writers are done, and compared with what was read.

use std::{
    fs::{self, File},
    io::{self, Read},
    mem::MaybeUninit,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use crate::failure::Failure;

/// A buffer for several events of a watched file, which have no names.
const EVENTS_BYTES: usize = 512;
/// The default time after which an unchanged file that a writer has closed counts as complete.
const CLOSED: Duration = Duration::from_secs(5);
/// How often the file is checked, as changes by other hosts cause no events.
const LOOK: Duration = Duration::from_secs(1);
/// The time without a change after which the reason of the wait is reported.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of bytes that are compared at once.
const COMPARED_BYTES: usize = 256 << 10;

/// Reads a file to its end, and then the data that is added. At the end it reads the file again: if the contents differ from
/// what was read, reading fails.
pub struct Follow {
    path: PathBuf,
    file: File,
    events: OwnedFd,
    /// How long the file must be unchanged to be complete, closed or not. Zero: until it is closed.
    idle: Option<Duration>,
    /// The number of bytes read, and their digest.
    position: u64,
    digest: blake3::Hasher,
    changed_at: Instant,
    /// A writer has closed the file, and nothing was written since.
    is_closed: bool,
    /// The file was renamed or removed.
    is_gone: bool,
    has_said: bool,
    say: Box<dyn FnMut(&str) + Send>,
}

impl Follow {
    /// Opens the file and starts to watch it; `idle`: see `--follow-idle`. `say` gets the reason of a long wait.
    ///
    /// Errors: the path is not a file, or cannot be read; the system cannot watch files.
    pub fn open(
        path: &Path,
        idle: Option<Duration>,
        say: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self, Failure> {
        let shown = path.display();
        let unreadable = |error| Failure::Io(path.display().to_string(), error);
        let kind = fs::metadata(path).map_err(unreadable)?;
        if !kind.is_file() {
            let kind = if kind.is_dir() { "is a directory" } else { "is not a regular file" };
            return Err(Failure::Usage(format!("{shown} {kind}; --follow takes one file")));
        }
        let failed = |error: Errno| Failure::Io(format!("watching {shown}"), error.into());
        let events = inotify::init(CreateFlags::CLOEXEC).map_err(failed)?;
        // Before the first read, so that nothing is missed.
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE_SELF
            | WatchFlags::DELETE_SELF
            | WatchFlags::ATTRIB;
        inotify::add_watch(&events, path, flags).map_err(failed)?;
        Ok(Self {
            file: File::open(path).map_err(unreadable)?,
            path: path.to_owned(),
            events,
            idle,
            position: 0,
            digest: blake3::Hasher::new(),
            changed_at: Instant::now(),
            is_closed: false,
            is_gone: false,
            has_said: false,
            say: Box::new(say),
        })
    }

    /// The file's permission bits.
    ///
    /// Errors: those of the system.
    pub fn mode(&self) -> Result<u32, Failure> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(Failure::while_doing(self.path.display()))?;
        Ok(metadata.permissions().mode() & 0o777)
    }

    /// How much longer the file must be unchanged to be complete; `None` if time alone does not complete it.
    fn left(&self) -> Option<Duration> {
        let enough = match self.idle {
            _ if self.is_gone => Duration::ZERO,
            Some(idle) if !idle.is_zero() => idle,
            idle if self.is_closed => idle.unwrap_or(CLOSED),
            _ => return None,
        };
        Some(enough.saturating_sub(self.changed_at.elapsed()))
    }

    /// Waits until the file may have changed, or may be complete.
    fn wait(&mut self) -> io::Result<()> {
        if !self.has_said && self.changed_at.elapsed() >= PATIENCE {
            self.has_said = true;
            let until = match self.idle {
                Some(idle) if !idle.is_zero() => format!("for {} s", idle.as_secs()),
                _ => {
                    "and no writer has closed it (--follow-idle SECONDS ends that wait)".to_owned()
                }
            };
            let path = self.path.display();
            (self.say)(&format!("waiting: nothing was written to {path} {until}"));
        }
        let timeout = self.left().unwrap_or(LOOK).min(LOOK);
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.events, PollFlags::IN)];
        if poll(&mut polled, Some(&timeout))? > 0 {
            self.take_events()?;
        }
        Ok(())
    }

    fn take_events(&mut self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = inotify::Reader::new(&self.events, &mut buffer);
        // After the last two there are no further events.
        let ends =
            ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT;
        // All events that were read: those left in the buffer would be lost.
        loop {
            let event = events.next()?.events();
            if event.contains(ReadFlags::MODIFY) {
                self.is_closed = false;
            }
            self.is_closed |= event.contains(ReadFlags::CLOSE_WRITE);
            if event.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE) {
                self.changed_at = Instant::now();
            }
            // A file that is open here exists even without a name.
            let is_removed =
                event.contains(ReadFlags::ATTRIB) && self.file.metadata()?.nlink() == 0;
            self.is_gone |= event.intersects(ends) || is_removed;
            if events.is_buffer_empty() {
                return Ok(());
            }
        }
    }

    /// The length of the file. Errors: it is shorter than what was read.
    fn check_length(&self) -> io::Result<u64> {
        let (length, position) = (self.file.metadata()?.len(), self.position);
        if length < position {
            return Err(io::Error::other(format!(
                "{} was truncated to {length} bytes after {position} were sent",
                self.path.display()
            )));
        }
        Ok(length)
    }

    /// Compares the file with what was read; true if the file has no further data.
    ///
    /// Errors: the contents have changed.
    fn compare(&self) -> io::Result<bool> {
        let (mut digest, mut at, mut buffer) = (blake3::Hasher::new(), 0, vec![0; COMPARED_BYTES]);
        while at < self.position {
            let most = (self.position - at).min(COMPARED_BYTES as u64) as usize;
            let count = self.file.read_at(&mut buffer[..most], at)?;
            if count == 0 {
                self.check_length()?;
            }
            digest.update(&buffer[..count]);
            at += count as u64;
        }
        if digest.finalize() != self.digest.finalize() {
            return Err(io::Error::other(format!(
                "{} was overwritten: its first {} bytes are not those that were sent",
                self.path.display(),
                self.position
            )));
        }
        Ok(self.check_length()? == self.position)
    }
}

impl Read for Follow {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.file.read(into)?;
            if count > 0 {
                self.digest.update(&into[..count]);
                self.position += count as u64;
                (self.changed_at, self.has_said) = (Instant::now(), false);
                return Ok(count);
            }
            self.check_length()?;
            if self.left().is_some_and(|left| left.is_zero()) {
                if self.compare()? {
                    return Ok(0);
                }
            } else {
                self.wait()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::OpenOptions,
        io::Write,
        sync::mpsc::{Receiver, channel},
        thread::{self, JoinHandle},
    };

    use super::*;

    /// A file that is being followed.
    struct Followed {
        directory: tempfile::TempDir,
        reading: JoinHandle<io::Result<Vec<u8>>>,
        said: Receiver<String>,
    }

    impl Followed {
        /// Follows a file with these contents, and reads all of them.
        fn new(contents: &[u8], idle: Option<Duration>) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            fs::write(&path, contents).unwrap();
            let (sender, said) = channel();
            let say = move |words: &str| drop(sender.send(words.to_owned()));
            let mut follow = Follow::open(&path, idle, say).unwrap();
            let mut all = vec![0; contents.len()];
            follow.read_exact(&mut all).unwrap();
            let reading = thread::spawn(move || follow.read_to_end(&mut all).map(|_| all));
            Self { directory, reading, said }
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("log")
        }

        fn append(&self, contents: &[u8]) {
            let file = OpenOptions::new().append(true).open(self.path());
            file.unwrap().write_all(contents).unwrap();
        }

        fn read(self) -> io::Result<Vec<u8>> {
            self.reading.join().unwrap()
        }
    }

    const AT_CLOSE: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn a_file_is_read_until_its_writer_closes_renames_or_removes_it() {
        let followed = |idle, end: &dyn Fn(&Path, File)| {
            let followed = Followed::new(b"one ", idle);
            let mut file = OpenOptions::new().append(true).open(followed.path()).unwrap();
            for _ in 0..3 {
                file.write_all(b"more ").unwrap();
            }
            end(&followed.path(), file);
            followed.read().unwrap()
        };
        let expected = b"one more more more ";
        assert_eq!(followed(AT_CLOSE, &|_, file| drop(file)), expected);
        assert_eq!(followed(None, &|_, file| drop(file)), expected);
        // Even while it is open.
        let renamed = followed(None, &|path, file| {
            fs::rename(path, path.with_extension("done")).unwrap();
            std::mem::forget(file);
        });
        assert_eq!(renamed, expected);
        let removed = followed(None, &|path, file| {
            fs::remove_file(path).unwrap();
            std::mem::forget(file);
        });
        assert_eq!(removed, expected);
    }

    #[test]
    fn programs_that_open_it_again_for_each_line_are_followed() {
        let followed = Followed::new(b"", None);
        let lines: Vec<String> = (0..20).map(|line| format!("line {line}\n")).collect();
        for line in &lines {
            followed.append(line.as_bytes());
            // Between two closes.
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(followed.read().unwrap(), lines.concat().as_bytes());
    }

    #[test]
    fn an_idle_time_ends_it_although_a_writer_has_it_open() {
        let followed = Followed::new(b"one ", Some(Duration::from_secs(1)));
        let mut file = OpenOptions::new().append(true).open(followed.path()).unwrap();
        file.write_all(b"two").unwrap();
        assert_eq!(followed.read().unwrap(), b"one two");
        drop(file);
    }

    #[test]
    fn what_was_truncated_or_overwritten_meanwhile_is_an_error() {
        let followed = Followed::new(b"one two three", AT_CLOSE);
        OpenOptions::new().write(true).open(followed.path()).unwrap().set_len(3).unwrap();
        let error = followed.read().unwrap_err().to_string();
        assert!(error.contains("log was truncated to 3 bytes after 13 were sent"), "{error}");

        let followed = Followed::new(b"one two three", AT_CLOSE);
        let file = OpenOptions::new().write(true).open(followed.path()).unwrap();
        file.write_all_at(b"TWO", 4).unwrap();
        drop(file);
        let error = followed.read().unwrap_err().to_string();
        assert!(error.contains("log was overwritten: its first 13 bytes"), "{error}");

        // Truncated, and as long as before at the next check.
        let followed = Followed::new(b"one two three", AT_CLOSE);
        fs::write(followed.directory.path().join("new"), b"un deux trois").unwrap();
        fs::copy(followed.directory.path().join("new"), followed.path()).unwrap();
        assert!(followed.read().is_err());
    }

    #[test]
    fn a_long_wait_is_said_once() {
        let followed = Followed::new(b"one", AT_CLOSE);
        let said = followed.said.recv_timeout(PATIENCE * 5).unwrap();
        assert!(
            said.contains("waiting: nothing was written to ") && said.contains("log"),
            "{said}"
        );
        followed.append(b"");
        followed.append(b" two");
        let said: Vec<String> = followed.said.try_iter().collect();
        assert!(said.is_empty(), "{said:?}");
    }

    #[test]
    fn what_is_no_file_is_named() {
        let refused = |path: &str| {
            let error = Follow::open(Path::new(path), None, |_| {}).err().unwrap();
            format!("{error:?}")
        };
        assert!(refused("/missing/log").contains("/missing/log"));
        assert!(refused("/dev").contains("/dev is a directory; --follow takes one file"));
        assert!(refused("/dev/null").contains("/dev/null is not a regular file"));
    }
}
