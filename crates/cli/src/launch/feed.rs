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

/// The text that a process reads.
pub struct Feed {
    /// The program, sent first; the text is sent when the receiver reports that the program has arrived.
    pub program: Option<(Arc<Program>, mpsc::Receiver<()>)>,
    pub text: Zeroizing<String>,
}

impl Feed {
    /// Writes the text and closes standard input; a long text in a thread that is not joined. A process that ends before it
    /// has read everything is reported by its status.
    ///
    /// Errors: no thread.
    pub fn once(self, mut stdin: ChildStdin) -> io::Result<()> {
        if self.program.is_none() && self.text.len() <= PIPE_BYTES {
            let _ = stdin.write_all(self.text.as_bytes());
            return Ok(());
        }
        spawn(move || drop(self.write(&mut stdin)))
    }

    /// Writes the text in a thread, which then keeps standard input open until the returned value is dropped, or the process ends
    /// early.
    ///
    /// Errors: no thread.
    pub fn held(self, mut stdin: ChildStdin) -> io::Result<Held> {
        let (held, dropped) = mpsc::channel();
        spawn(move || {
            if self.write(&mut stdin).is_ok() {
                // Nothing is ever sent: this call returns when the other end is dropped.
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

/// Keeps standard input open; the process detects the end of the push by its end.
pub struct Held {
    _until: mpsc::Sender<()>,
}

fn spawn(write: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("rdmc-stdin".into()).spawn(write).map(drop)
}
