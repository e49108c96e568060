//! Signals end a measurement by an error, so that labs, processes and files are removed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::outcome::Outcome;

/// Whether a signal to end has arrived.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP set a flag.
    pub fn watch() -> Outcome<Self> {
        Ok(Self(lab::stop_flag()?))
    }

    /// An error after such a signal.
    pub fn check(&self) -> Outcome<()> {
        if self.0.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
    }
}
