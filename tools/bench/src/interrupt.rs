//! Ctrl-C ends a measurement the ordinary way, so that whatever was set up is taken down.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::outcome::Outcome;

/// Says whether somebody wants this program to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals to end are noted instead of obeyed.
    pub fn watch() -> Outcome<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// An error once somebody has asked.
    pub fn check(&self) -> Outcome<()> {
        if self.0.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
    }
}
