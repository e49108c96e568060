//! The standard input of a launched process.

use std::{
    io::{self, Write},
    process::ChildStdin,
    sync::mpsc,
    thread,
};

use zeroize::Zeroizing;

/// Texts up to this length fit into a pipe, so that writing them does not block.
const PIPE_BYTES: usize = 32 << 10;

/// Standard input that is held open until this is dropped, by which the process knows that the push runs.
pub struct Feed {
    _held: mpsc::Sender<()>,
}

impl Feed {
    /// Writes a text and closes standard input. Does not block if the text is short. A process that has ended is
    /// reported by its status.
    pub fn once(mut stdin: ChildStdin, text: &Zeroizing<String>) {
        debug_assert!(text.len() <= PIPE_BYTES);
        let _ = stdin.write_all(text.as_bytes());
    }

    /// Writes a text of any length in a thread, which then holds standard input open. The thread ends when this is
    /// dropped, or when the process ends before it has read all.
    ///
    /// Errors: no thread.
    pub fn held(mut stdin: ChildStdin, text: Zeroizing<String>) -> io::Result<Self> {
        let (held, dropped) = mpsc::channel();
        let write = move || {
            if stdin.write_all(text.as_bytes()).is_ok() {
                // Nothing is ever sent: it returns when the other end is dropped.
                let _ = dropped.recv();
            }
        };
        thread::Builder::new().name("rdmc-stdin".into()).spawn(write)?;
        Ok(Self { _held: held })
    }
}
