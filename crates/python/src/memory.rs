//! Memory of Python objects, by the buffer protocol.

use pyo3::{buffer::PyUntypedBuffer, prelude::*};

use crate::errors::invalid;

/// The bytes of an object that are read and written while the interpreter runs other threads. The object cannot be
/// resized or freed as long as this exists.
pub(crate) struct Memory {
    buffer: PyUntypedBuffer,
}

impl Memory {
    /// Errors: the object has no buffer, or one that is read-only or not contiguous.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Self::to_read(object)?;
        if memory.buffer.readonly() {
            let text =
                "the array is read-only, but is received into: copy it, or use broadcast_bytes";
            return Err(invalid(object.py(), text));
        }
        Ok(memory)
    }

    /// As [`Memory::of`], but it may be read-only: its bytes are not to be written then.
    pub(crate) fn to_read(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            let text =
                "the array is not contiguous: use numpy.ascontiguousarray, or tensor.contiguous()";
            return Err(invalid(py, text));
        }
        Ok(Self { buffer })
    }

    /// Length of an element in bytes.
    pub(crate) fn item_size(&self) -> usize {
        self.buffer.item_size()
    }

    /// The first byte (dangling, if there is none), and how many there are.
    pub(crate) fn raw(&self) -> (*mut u8, usize) {
        match self.buffer.len_bytes() {
            0 => (std::ptr::NonNull::dangling().as_ptr(), 0),
            bytes => (self.buffer.buf_ptr().cast::<u8>(), bytes),
        }
    }

    /// The bytes.
    ///
    /// # Safety
    /// No other code of this process reads or writes them as long as the slice exists. (Python code that does so on another
    /// thread during an operation sees, and leaves, undefined contents; `Group` documents that.)
    pub(crate) unsafe fn bytes(&mut self) -> &mut [u8] {
        let (start, length) = self.raw();
        // SAFETY: contiguous, so that all bytes follow the first; writable; kept by `buffer`; not used elsewhere by the
        // contract of this function.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Gives the object back.
    pub(crate) fn release(self, py: Python<'_>) {
        self.buffer.release(py);
    }
}
