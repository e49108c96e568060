//! Errors of the system, as the library has them.

use std::io;

use rdmc::Error;

/// The system refused while this was done.
pub(crate) fn system(what: &str, error: io::Error) -> Error {
    Error::System { what: what.to_owned(), error }
}
