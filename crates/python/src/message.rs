//! A message that is received, and the memory in which it is.

use std::{
    ffi::{c_int, c_void},
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex},
};

use pyo3::{exceptions::PyBufferError, ffi, prelude::*, types::PyMemoryView};
use rdmc::ReadLease;

use crate::{
    errors::invalid,
    guard::{Process, lock},
    pending::{Answer, Pending},
};

/// A message that is received; its bytes may still be arriving.
#[pyclass(frozen, module = "rdmc._rdmc")]
pub(crate) struct Message {
    inner: Arc<Mutex<rdmc::Message>>,
    number: u64,
    bytes: u64,
    process: Process,
}

/// Bytes of a message that have arrived, as an object with the buffer protocol; they stay as they are for as long as this exists.
#[pyclass(frozen, module = "rdmc._rdmc")]
pub(crate) struct View {
    lease: ReadLease,
}

impl Message {
    pub(crate) fn new(message: rdmc::Message) -> Self {
        let (number, bytes) = (message.number(), message.len());
        Self { inner: Arc::new(Mutex::new(message)), number, bytes, process: Process::this() }
    }
}

#[pymethods]
impl Message {
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until all has arrived.
    fn wait(&self, py: Python<'_>) -> PyResult<Pending> {
        self.process.check(py)?;
        let message = Arc::clone(&self.inner);
        // Several calls may wait: the message is locked only while each looks.
        let whole = poll_fn(move |context| pin!(lock(&message).wait_async()).poll(context));
        Ok(Pending::new("a whole message", async move { whole.await.map(|()| None) }))
    }

    /// Waits for the next range that has arrived; none if all were returned.
    fn next_block(&self, py: Python<'_>) -> PyResult<Pending> {
        self.process.check(py)?;
        let message = Arc::clone(&self.inner);
        let block = poll_fn(move |context| pin!(lock(&message).next_block_async()).poll(context));
        let answer = async move {
            let range = block.await?;
            Ok(range.map(|range| Answer::new((range.start, range.end))))
        };
        Ok(Pending::new("the next block of a message", answer))
    }

    /// Bytes that have arrived, read-only.
    fn view<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        end: u64,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        self.process.check(py)?;
        let outside = || invalid(py, "these bytes are not in the message");
        if start > end || end > self.bytes {
            return Err(outside());
        }
        let (start, end) = (start.try_into(), end.try_into());
        let (Ok(start), Ok(end)) = (start, end) else { return Err(outside()) };
        let lease = lock(&self.inner).region().read(start..end);
        let lease = lease.map_err(|error| invalid(py, &error.to_string()))?;
        PyMemoryView::from(Bound::new(py, View { lease })?.as_any())
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // In a fork: the parent has it.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

#[pymethods]
impl View {
    /// # Safety
    /// Python's: `view` may be written.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let py = slf.py();
        let bytes = slf.get().lease.len();
        let Ok(length) = ffi::Py_ssize_t::try_from(bytes) else {
            return Err(PyBufferError::new_err("it is too long"));
        };
        let start = slf.get().lease.as_ptr().cast_mut().cast::<c_void>();
        // Fills in a buffer that is read-only, and refuses one that would be written.
        // SAFETY: the lease has these bytes, and `view` holds on to the object that has the lease.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
    }
}
