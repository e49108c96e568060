//! Lines that launched processes print.

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read, Write, pipe},
    mem,
    os::fd::OwnedFd,
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, poll};

/// Longer lines are split into parts of this length.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The pause after poll(2) failed for lack of memory.
const PAUSE: Duration = Duration::from_millis(20);

/// A thread that reads the pipes of all processes of a push, so that a host costs no thread. When this is dropped, the thread
/// ends and closes the pipes; it is not joined, since a blocked terminal can delay it.
pub struct LineReader {
    added: mpsc::Sender<Source>,
    /// A byte announces added pipes, end of file that there are no more.
    wake: PipeWriter,
}

/// Takes a line of a pipe, or `None` at its end.
type Take = dyn FnMut(Option<&str>) + Send;

struct Source {
    pipe: File,
    /// The line that is not complete yet.
    line: Vec<u8>,
    take: Box<Take>,
}

impl LineReader {
    /// Errors: no pipe or no thread.
    pub fn start() -> io::Result<Self> {
        let (woken, wake) = pipe()?;
        let (added, sources) = mpsc::channel();
        let read = move || read(woken, &sources);
        thread::Builder::new().name("rdmc-launchers".into()).spawn(read)?;
        Ok(Self { added, wake })
    }

    /// Passes each line of a pipe to `take`, and `None` after the last. Runs on the reader's thread: a call that blocks delays
    /// the lines of all pipes.
    pub fn add(&self, pipe: impl Into<OwnedFd>, take: impl FnMut(Option<&str>) + Send + 'static) {
        let source =
            Source { pipe: File::from(pipe.into()), line: Vec::new(), take: Box::new(take) };
        // Both other ends live as long as this reader.
        let _ = self.added.send(source);
        let _ = (&self.wake).write_all(&[0]);
    }
}

fn read(mut woken: PipeReader, added: &mpsc::Receiver<Source>) {
    let mut sources: Vec<Source> = Vec::new();
    let mut buffer = vec![0; LINE_BYTES_MAX];
    loop {
        sources.extend(added.try_iter());
        let mut polled = vec![PollFd::new(&woken, PollFlags::IN)];
        polled.extend(sources.iter().map(|source| PollFd::new(&source.pipe, PollFlags::IN)));
        if poll(&mut polled, None).is_err() {
            thread::sleep(PAUSE);
            continue;
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] && woken.read(&mut buffer).is_ok_and(|bytes| bytes == 0) {
            return;
        }
        let mut ready = ready.into_iter().skip(1);
        sources.retain_mut(|source| ready.next() != Some(true) || source.read(&mut buffer));
    }
}

impl Source {
    /// Reads available bytes; does not block after poll(2) has reported the pipe ready. False at the end of the pipe.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        let bytes = match self.pipe.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            read => read.unwrap_or(0),
        };
        for &byte in &buffer[..bytes] {
            if byte != b'\n' {
                self.line.push(byte);
            }
            if byte == b'\n' || self.line.len() == LINE_BYTES_MAX {
                self.take_line();
            }
        }
        if bytes == 0 {
            if !self.line.is_empty() {
                self.take_line();
            }
            (self.take)(None);
        }
        bytes > 0
    }

    fn take_line(&mut self) {
        let line = mem::take(&mut self.line);
        (self.take)(Some(&String::from_utf8_lossy(&line)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(50);

    /// The lines of a pipe, with its name; `None` after the last.
    fn add(
        reader: &LineReader,
        name: usize,
        to: &mpsc::Sender<(usize, Option<String>)>,
    ) -> PipeWriter {
        let (read, write) = pipe().unwrap();
        let to = to.clone();
        reader.add(read, move |line| drop(to.send((name, line.map(str::to_owned)))));
        write
    }

    #[test]
    fn each_pipe_has_its_lines_and_its_end() {
        let reader = LineReader::start().unwrap();
        let (to, lines) = mpsc::channel();
        let mut pipes: Vec<PipeWriter> = (0..9).map(|name| add(&reader, name, &to)).collect();
        let next = || lines.recv_timeout(LONG).unwrap();
        let line = |name, line: &str| (name, Some(line.to_owned()));
        pipes[7].write_all(b"Host key verification").unwrap();
        pipes[2].write_all(b"one\n\ntwo \xff\nthr").unwrap();
        assert_eq!([next(), next()], [line(2, "one"), line(2, "")]);
        assert_eq!(next(), line(2, "two \u{fffd}"));
        pipes[7].write_all(b" failed.\r\n").unwrap();
        assert_eq!(next(), line(7, "Host key verification failed.\r"));
        drop(pipes.remove(2));
        assert_eq!([next(), next()], [line(2, "thr"), (2, None)]);
        let mut late = add(&reader, 9, &to);
        let sent = thread::spawn(move || late.write_all(&[b'x'; LINE_BYTES_MAX + 1]));
        assert_eq!(next(), line(9, &"x".repeat(LINE_BYTES_MAX)));
        assert_eq!([next(), next()], [line(9, "x"), (9, None)]);
        sent.join().unwrap().unwrap();
        drop(pipes);
        let mut ended: Vec<_> = (0..8).map(|_| next()).collect();
        ended.sort();
        assert_eq!(ended, [0, 1, 3, 4, 5, 6, 7, 8].map(|name| (name, None)));
    }

    /// A process left behind by another one can hold a pipe open.
    #[test]
    fn it_ends_without_the_end_of_its_pipes() {
        let reader = LineReader::start().unwrap();
        let (to, lines) = mpsc::channel();
        let pipes: Vec<PipeWriter> = (0..3).map(|name| add(&reader, name, &to)).collect();
        drop((reader, to));
        assert_eq!(lines.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
        drop(pipes);
    }
}
