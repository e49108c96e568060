//! Memory of Python objects that the library uses after a call has returned, and what of it stays registered.

use pyo3::{prelude::*, types::PyMemoryView};

use crate::{errors::invalid, guard::Process, memory::Memory};

/// The memory of an object, which is registered with the network of an endpoint for as long as this or a part of it exists.
#[pyclass(frozen, module = "rdmc._rdmc")]
pub(crate) struct Region {
    region: rdmc::Region,
    process: Process,
}

impl Region {
    pub(crate) fn new(region: rdmc::Region) -> Self {
        Self { region, process: Process::this() }
    }
}

#[pymethods]
impl Region {
    #[getter]
    fn bytes(&self) -> usize {
        self.region.len()
    }

    /// These bytes of it.
    fn part(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<Self> {
        self.process.check(py)?;
        let part = self.region.slice(start..end);
        part.map(Self::new).map_err(|error| invalid(py, &error.to_string()))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // In a fork: the parent has registered it.
            std::mem::forget(self.region.clone());
        }
    }
}

/// The memory of an object, which is held until nothing uses the region any more. It is then let go by the next thread that
/// has the interpreter: threads of the library never wait for it.
pub(crate) fn region_of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<rdmc::Region> {
    let view = PyMemoryView::from(object)?;
    let memory = if writable { Memory::of(&view)? } else { Memory::to_read(&view)? };
    // SAFETY: the view keeps the memory where it is until the region's owner is dropped. `Messages` documents that the
    // application does not change it before.
    let region = unsafe {
        let (start, bytes) = memory.raw();
        rdmc::Region::from_raw(start, bytes, writable, Box::new(view.unbind()))
    };
    Ok(region)
}

/// As [`region_of`]; what is registered already is used as it is.
///
/// Errors: it is to be written, and is in use by an earlier message: the group would fail when the next one arrives.
pub(crate) fn given(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<rdmc::Region> {
    let Ok(registered) = object.cast::<Region>() else { return region_of(object, writable) };
    registered.get().process.check(object.py())?;
    let region = registered.get().region.clone();
    if writable && let Err(error) = region.write(0..region.len()) {
        let text = format!("{error}: use wait_complete, and release the memoryviews of it first");
        return Err(invalid(object.py(), &text));
    }
    Ok(region)
}
