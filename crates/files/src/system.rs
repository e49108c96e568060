//! Errors of the system.

use std::io;

use rdmc::Error;

/// An error of the system during this operation.
pub(crate) fn system(what: &str, error: io::Error) -> Error {
    Error::System { what: what.to_owned(), error }
}
