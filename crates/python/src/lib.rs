//! `rdmc._rdmc`: the library in a Python process. Python's side is in `python/rdmc`, which this module is internal to.
//!
//! Calls that wait release the interpreter; signals of Python are looked for some ten times a second meanwhile.

mod devices;
mod endpoint;
mod errors;
mod guard;
mod log;
mod memory;
mod message;
mod messages;
mod pending;
mod region;

use pyo3::prelude::*;

/// The members of this module.
#[pymodule]
fn _rdmc(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<endpoint::Endpoint>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<messages::Messages>()?;
    module.add_class::<pending::Notifier>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<region::Region>()?;
    module.add_function(wrap_pyfunction!(endpoint::random_secret, module)?)?;
    module.add_function(wrap_pyfunction!(log::log_from, module)?)?;
    module.add_function(wrap_pyfunction!(log::next_record, module)?)?;
    module.add_function(wrap_pyfunction!(log::end_log, module)?)
}
