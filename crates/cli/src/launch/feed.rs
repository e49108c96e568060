//! The standard input of a launched process.

use std::{
    io::{self, Write},
    process::ChildStdin,
    sync::{Arc, mpsc},
    thread,
};

use zeroize::Zeroizing;

use super::program::Program;

/// Texts up to this length fit into a pipe, so that writing them does not block.
const PIPE_BYTES: usize = 32 << 10;

/// What a process reads.
pub struct Feed {
    /// First the program, and the text only when this is told that the program is there.
    pub program: Option<(Arc<Program>, mpsc::Receiver<()>)>,
    pub text: Zeroizing<String>,
}

impl Feed {
    /// Writes it and closes standard input; in a thread that is not joined unless it is short. A process that ends before it
    /// has read all is reported by its status.
    ///
    /// Errors: no thread.
    pub fn once(self, mut stdin: ChildStdin) -> io::Result<()> {
        if self.program.is_none() && self.text.len() <= PIPE_BYTES {
            let _ = stdin.write_all(self.text.as_bytes());
            return Ok(());
        }
        spawn(move || drop(self.write(&mut stdin)))
    }

    /// Writes it in a thread, which then holds standard input open until what it returns is dropped, or the process ends
    /// early.
    ///
    /// Errors: no thread.
    pub fn held(self, mut stdin: ChildStdin) -> io::Result<Held> {
        let (held, dropped) = mpsc::channel();
        spawn(move || {
            if self.write(&mut stdin).is_ok() {
                // Nothing is ever sent: it returns when the other end is dropped.
                let _ = dropped.recv();
            }
        })?;
        Ok(Held { _until: held })
    }

    fn write(&self, stdin: &mut ChildStdin) -> io::Result<()> {
        if let Some((program, copied)) = &self.program {
            program.write_to(stdin)?;
            // Ends with the process, whose standard error the other end reads.
            copied.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        stdin.write_all(self.text.as_bytes())
    }
}

/// Holds standard input open, by which the process knows that the push runs.
pub struct Held {
    _until: mpsc::Sender<()>,
}

fn spawn(write: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("rdmc-stdin".into()).spawn(write).map(drop)
}
