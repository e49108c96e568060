//! Errors of the control API.

use tonic::{Code, Status};

/// Why a call failed: a sentence that names the switch, host or peer, and a kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
}

/// Kinds of errors, as callers have to distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The identifier or the sender's queue pair is in use by another group: try another one.
    Taken,
    /// Switches cannot copy for these members, who can relay instead.
    NoTree,
    /// A limit is exceeded.
    Limit,
    /// The caller is not authorized.
    Denied,
    /// There is no such group; it can be inserted again.
    Unknown,
    /// The request is invalid.
    Invalid,
    /// The peer cannot be reached, or is shutting down.
    Unavailable,
    /// The deadline has passed.
    Late,
    /// Internal error of the peer.
    Failed,
}

/// Each kind's gRPC status code.
const CODES: [(ErrorKind, Code); 9] = [
    (ErrorKind::Taken, Code::AlreadyExists),
    (ErrorKind::NoTree, Code::FailedPrecondition),
    (ErrorKind::Limit, Code::ResourceExhausted),
    (ErrorKind::Denied, Code::PermissionDenied),
    (ErrorKind::Unknown, Code::NotFound),
    (ErrorKind::Invalid, Code::InvalidArgument),
    (ErrorKind::Unavailable, Code::Unavailable),
    (ErrorKind::Late, Code::DeadlineExceeded),
    (ErrorKind::Failed, Code::Internal),
];

/// The message of tonic's status when a deadline has passed.
const EXPIRED: &str = "Timeout expired";

impl ControlError {
    /// There was no answer: the call may or may not have been carried out.
    pub const fn is_no_answer(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Late)
    }

    /// The message names the switch, host or peer.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The same, with a prefix: where or when it happened.
    pub fn within(self, place: impl std::fmt::Display) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// The status that a call to a peer, such as "the agent at a:1", has returned. The message names the peer
    /// if the status was made at this end.
    pub fn from_status(peer: &str, status: &Status) -> Self {
        let known = CODES.iter().find(|(_, code)| *code == status.code());
        // A connection that breaks comes without a code of its own.
        let otherwise = match std::error::Error::source(status) {
            Some(_) => ErrorKind::Unavailable,
            None => ErrorKind::Failed,
        };
        let kind = known.map_or(otherwise, |(kind, _)| *kind);
        let message = match (std::error::Error::source(status), kind) {
            (Some(error), _) => {
                format!("{peer} cannot be reached: {}", root_cause(error))
            }
            (None, ErrorKind::Late) if ["", EXPIRED].contains(&status.message()) => {
                format!("{peer} has not answered in time")
            }
            (None, _) if known.is_none() || status.message().is_empty() => {
                format!("{peer} has answered {:?} {}", status.code(), status.message())
            }
            (None, _) => status.message().to_owned(),
        };
        Self { kind, message }
    }
}

impl From<ControlError> for Status {
    fn from(error: ControlError) -> Self {
        let code = CODES.iter().find(|(kind, _)| *kind == error.kind);
        Self::new(code.map_or(Code::Unknown, |(_, code)| *code), error.message)
    }
}

/// The root cause.
fn root_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a dyn std::error::Error {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause
}
