//! Ctrl-C ends a measurement the ordinary way, so that whatever was set up is taken down.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::outcome::Outcome;

/// Says whether somebody wants this program to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals to end are noted instead of obeyed.
    pub fn watch() -> Outcome<Self> {
        Ok(Self(lab::stop_flag()?))
    }

    /// An error once somebody has asked.
    pub fn check(&self) -> Outcome<()> {
        if self.0.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
    }
}
