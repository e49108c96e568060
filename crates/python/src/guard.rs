//! What all classes share: the process that made an object, and conversions.

use std::{
    net::SocketAddr,
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crossbeam_channel::{RecvTimeoutError, bounded};
use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::errors::{invalid, raise};

/// How often a thread that waits looks for signals.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The process that has made something. A fork of it has neither its threads nor the right to end its connections.
#[derive(Clone, Copy)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(process::id())
    }

    pub(crate) fn is_this(self) -> bool {
        self.0 == process::id()
    }

    /// Errors: this process is a fork of it.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_this() {
            return Ok(());
        }
        let text = "this process is a fork of the one that made the group: use spawn, or make a group in the child";
        Err(invalid(py, text))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds as Python has them; `None` and infinity: no limit.
pub(crate) fn duration(seconds: Option<f64>) -> Duration {
    let given = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    given.unwrap_or(Duration::MAX)
}

pub(crate) fn address_of(py: Python<'_>, text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| {
        invalid(
            py,
            &format!(
                "{text:?} is not an address; use an IP address and a port, as in 10.0.0.1:7000"
            ),
        )
    })
}

/// Calls what blocks and cannot be interrupted, on a thread of its own, while this one looks for signals. If a handler raises
/// something, or `failure` returns an error, that is raised at once; the call ends by itself later, and its result is dropped.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    failure: impl Fn() -> Option<rdmc::Error>,
    call: impl FnOnce() -> Result<T, rdmc::Error> + Send + 'static,
) -> PyResult<T> {
    let (result, results) = bounded(1);
    let run = move || {
        // Nobody receives it after an interruption.
        let _ = result.send(call());
    };
    thread::Builder::new().name("rdmc-call".into()).spawn(run)?;
    loop {
        match py.detach(|| results.recv_timeout(SIGNALS_EVERY)) {
            Ok(outcome) => return outcome.map_err(|error| raise(py, &error)),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                if let Some(error) = failure() {
                    return Err(raise(py, &error));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a call has panicked; see standard error"));
            }
        }
    }
}
