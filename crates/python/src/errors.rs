//! Errors of the library as exceptions of `rdmc.errors`.

use std::time::Duration;

use pyo3::prelude::*;
use rdmc::{Error, FailureKind};

/// The exception for an error.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let (kind, member) = match error {
        Error::Failed(failure) => (kind_of(failure.kind), failure.member),
        Error::TeamFailed(failure) => (kind_of(failure.kind), failure.member),
        Error::Member { member, .. } => ("refused", Some(*member)),
        Error::Timeout { .. } => ("timeout", None),
        Error::Setting { .. } | Error::TeamCall(_) | Error::Schedule(_) => ("invalid", None),
        _ => ("other", None),
    };
    made(py, kind, member, &error.to_string()).unwrap_or_else(|problem| problem)
}

/// The exception for an error of a call that uses a GPU.
pub(crate) fn raise_of_device(py: Python<'_>, error: &gpu::Error) -> PyErr {
    let kind = match error {
        gpu::Error::Rdmc(error) => return raise(py, error),
        gpu::Error::Timeout { .. } => "timeout",
        gpu::Error::Memory { .. } | gpu::Error::Call(_) | gpu::Error::NoDevice { .. } => "invalid",
        _ => "other",
    };
    made(py, kind, None, &error.to_string()).unwrap_or_else(|problem| problem)
}

/// The exception for arguments that cannot be used.
pub(crate) fn invalid(py: Python<'_>, text: &str) -> PyErr {
    made(py, "invalid", None, text).unwrap_or_else(|problem| problem)
}

/// The exception for a time that has run out.
pub(crate) fn timed_out(py: Python<'_>, what: &str, limit: Duration) -> PyErr {
    let text = format!("{what} has taken longer than {} s", limit.as_secs_f64());
    made(py, "timeout", None, &text).unwrap_or_else(|problem| problem)
}

fn made(py: Python<'_>, kind: &str, member: Option<u32>, text: &str) -> PyResult<PyErr> {
    let make = py.import("rdmc.errors")?.getattr("make")?;
    Ok(PyErr::from_value(make.call1((kind, member, text))?))
}

fn kind_of(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Lost => "lost",
        FailureKind::Silent => "silent",
        FailureKind::Memory => "memory",
        FailureKind::Application => "refused",
        FailureKind::Stalled => "stalled",
        FailureKind::Corrupt => "corrupt",
        FailureKind::Network => "network",
        FailureKind::Differs => "differs",
        _ => "protocol",
    }
}
