//! Errors of the library as exceptions of `rdmc.errors`.

use std::{fmt, time::Duration};

use pyo3::prelude::*;
use rdmc::{Error, Failure, FailureKind, TeamFailure};

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
    let text = match error {
        Error::Failed(Failure { kind, member, reporter, detail, .. })
        | Error::TeamFailed(TeamFailure { kind, member, reporter, detail, .. }) => {
            let failed = Failed { kind: *kind, member: *member, reporter: *reporter, detail };
            format!("the group has failed: {failed}")
        }
        other => in_ranks(&other.to_string()),
    };
    made(py, kind, member, &text).unwrap_or_else(|problem| problem)
}

/// Why a group has failed.
struct Failed<'a> {
    kind: FailureKind,
    member: Option<u32>,
    reporter: u32,
    detail: &'a str,
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, member, reporter, detail } = *self;
        match member {
            Some(rank) => write!(f, "rank {rank}")?,
            None => f.write_str("a process")?,
        }
        match (kind, detail) {
            (_, "") => write!(f, " {kind}")?,
            // It is what its program has said, or what it has called.
            (FailureKind::Application, said) => write!(f, ": {said}")?,
            (_, detail) => write!(f, " {kind}: {}", in_ranks(detail))?,
        }
        if Some(reporter) != member { write!(f, " (noticed by rank {reporter})") } else { Ok(()) }
    }
}

/// A text of the library in Python's words: members are ranks there, and a team is a group, whose number no program has chosen.
fn in_ranks(text: &str) -> String {
    let text = text.replace("`rdmc secret`", "rdmc.random_secret()");
    let mut words = text.split(' ').peekable();
    let mut said = Vec::new();
    while let Some(word) = words.next() {
        let number =
            words.peek().and_then(|next| next.strip_prefix(|it: char| it.is_ascii_digit()));
        said.push(match (word, number) {
            ("member" | "(member" | "members", Some(_)) => word.replace("member", "rank"),
            ("team" | "group", Some(rest)) => {
                words.next();
                format!("the group{}", rest.trim_start_matches(|it: char| it.is_ascii_digit()))
            }
            ("team", None) => "group".to_owned(),
            _ => word.to_owned(),
        });
    }
    said.join(" ")
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
    made(py, "invalid", None, &in_ranks(text)).unwrap_or_else(|problem| problem)
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
        FailureKind::Application => "aborted",
        FailureKind::Stalled => "stalled",
        FailureKind::Corrupt => "corrupt",
        FailureKind::Network => "network",
        FailureKind::Differs => "differs",
        _ => "protocol",
    }
}
