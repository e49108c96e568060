//! Signals that end a program in order.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// A flag that SIGINT, SIGTERM and SIGHUP set instead of ending this process.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
