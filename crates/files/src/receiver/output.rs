//! An output of the application's that takes a stream.

use std::{
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// An output that takes a stream instead of a file, such as standard output.
#[derive(Clone)]
pub struct Output(Arc<Mutex<Box<dyn Write + Send>>>);

impl Output {
    /// Writes may block: that holds the whole stream back.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(output))))
    }

    /// Writes and flushes: a consumer waits for it.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = output.write(bytes)?;
        output.flush()?;
        Ok(written)
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Output")
    }
}
