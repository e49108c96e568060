//! What the commands share: the option for the lab's name, signals, and standard output.

use std::{
    io::{self, ErrorKind, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lab::Error;

/// Which lab a command is about.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Name of the lab: lower-case letters, digits and -
    #[arg(long, value_name = "NAME", default_value = "lab")]
    pub name: String,
}

/// The flag of [`lab::stop_flag`].
pub fn watch_signals() -> Result<Arc<AtomicBool>, Error> {
    lab::stop_flag().map_err(|error| Error::Failed(format!("catching signals: {error}")))
}

/// [`Error::Interrupted`] once a signal has come.
pub fn check_stop(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Writes to standard output. A closed pipe is no error.
pub fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes JSON to standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Failed(format!("writing JSON: {error}")))?;
    print(&(text + "\n"))
}
