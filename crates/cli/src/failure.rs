//! How a command fails.

use std::{
    fmt,
    io::{self, ErrorKind},
    process::ExitCode,
};

/// Why a command stops, which decides its exit code.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense together: exit code 2, like those that the parser rejects.
    Usage(String),
    /// Something went wrong while doing it, with what was being done: exit code 1.
    Io(String, io::Error),
}

impl Failure {
    /// What was being done when an I/O error came, as an adapter for `map_err`.
    pub fn while_doing(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io(what.to_string(), error)
    }

    /// Says it on standard error and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            // The reader went away, as in `rdmc plan … | head`: nobody is left to tell.
            Self::Io(_, error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Io(what, error) => {
                eprintln!("rdmc: {what}: {error}");
                ExitCode::from(1)
            }
            Self::Usage(message) => {
                eprintln!("rdmc: {message}");
                ExitCode::from(2)
            }
        }
    }
}
