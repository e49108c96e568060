//! Calls that may have to wait: for a thread of Python, or for an event loop.

use std::{
    future::Future,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Instant,
};

use pyo3::{IntoPyObjectExt, prelude::*};
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    errors::{invalid, raise, timed_out},
    guard::{SIGNALS_EVERY, duration, lock},
};

/// What a call may return that may have waited: made into an object of Python by the thread that has the interpreter.
pub(crate) struct Answer(Box<Conversion>);

type Conversion = dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send;

impl Answer {
    pub(crate) fn new<T>(value: T) -> Self
    where
        T: for<'py> IntoPyObjectExt<'py> + Send + 'static,
    {
        Self(Box::new(move |py| value.into_py_any(py)))
    }
}

type Call = Pin<Box<dyn Future<Output = Result<Option<Answer>, rdmc::Error>> + Send>>;

/// A call that was made, and has perhaps not ended. Its waiting may be given up, which takes nothing.
#[pyclass(frozen, module = "rdmc._rdmc")]
pub(crate) struct Pending {
    call: Mutex<Option<Call>>,
    /// What is waited for, in errors.
    what: &'static str,
}

/// Tells an event loop that calls may have ended: a descriptor that becomes readable. Threads of the library write to it, and
/// do not wait for the interpreter.
#[pyclass(frozen, module = "rdmc._rdmc")]
pub(crate) struct Notifier {
    descriptor: Arc<Descriptor>,
}

struct Descriptor(OwnedFd);

impl Wake for Descriptor {
    fn wake(self: Arc<Self>) {
        // It fails only if it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Pending {
    pub(crate) fn new(
        what: &'static str,
        call: impl Future<Output = Result<Option<Answer>, rdmc::Error>> + Send + 'static,
    ) -> Self {
        Self { call: Mutex::new(Some(Box::pin(call))), what }
    }

    fn poll_once(&self, py: Python<'_>, waker: &Waker) -> PyResult<Poll<Option<Py<PyAny>>>> {
        let mut call = lock(&self.call);
        let future = call.as_mut().ok_or_else(|| invalid(py, "this call has already ended"))?;
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(outcome) => {
                *call = None;
                let answer = outcome.map_err(|error| raise(py, &error))?;
                Ok(Poll::Ready(answer.map(|answer| (answer.0)(py)).transpose()?))
            }
        }
    }
}

#[pymethods]
impl Pending {
    /// Waits for its end, for at most this many seconds. Raises what has failed, what a signal's handler raises, or TimedOut.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let limit = duration(timeout);
        let end = Instant::now().checked_add(limit);
        loop {
            if let Poll::Ready(answer) = self.poll_once(py, &waker)? {
                return Ok(answer);
            }
            let left =
                end.map_or(SIGNALS_EVERY, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                *lock(&self.call) = None;
                return Err(timed_out(py, self.what, limit));
            }
            py.detach(|| thread::park_timeout(left.min(SIGNALS_EVERY)));
            py.check_signals()?;
        }
    }

    /// A tuple of what it has returned; `None`: it has not ended, and the notifier will tell when this is to be called again.
    fn poll(&self, py: Python<'_>, notifier: &Notifier) -> PyResult<Option<(Option<Py<PyAny>>,)>> {
        let waker = Waker::from(Arc::clone(&notifier.descriptor));
        Ok(match self.poll_once(py, &waker)? {
            Poll::Ready(answer) => Some((answer,)),
            Poll::Pending => None,
        })
    }
}

#[pymethods]
impl Notifier {
    #[new]
    fn new() -> PyResult<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = eventfd(0, flags).map_err(std::io::Error::from)?;
        Ok(Self { descriptor: Arc::new(Descriptor(descriptor)) })
    }

    /// The descriptor, open as long as this and the calls that were polled with it.
    fn fileno(&self) -> i32 {
        self.descriptor.0.as_raw_fd()
    }

    /// Makes it unreadable, until the next call may have ended.
    fn clear(&self) {
        // It fails only if it is not readable.
        let _ = rustix::io::read(&self.descriptor.0, &mut [0; 8]);
    }
}
