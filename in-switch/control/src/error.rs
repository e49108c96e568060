//! What can go wrong between who asks for a group and the switches.

use tonic::{Code, Status};

/// Why a group is not, or no longer, in the switches: a sentence that names the switch, and what kind
/// of reason it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// What can be done about it.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
}

/// Kinds of reasons, as callers have to tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The identifier or the sender's queue pair is another group's: another one may do.
    Taken,
    /// These members cannot be served by switches: they can relay instead.
    NoTree,
    /// A limit of a switch.
    Limit,
    /// Who asks may not.
    Denied,
    /// There is no such group; it can be inserted again.
    Unknown,
    /// What was asked makes no sense.
    Invalid,
    /// Nobody is there, or not now.
    Unavailable,
    /// It took too long.
    Late,
    /// The switch itself has failed.
    Failed,
}

/// Each kind, and how it travels.
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

/// What gRPC itself says when a deadline has passed.
const EXPIRED: &str = "Timeout expired";

impl ControlError {
    /// Nothing was heard of whom was asked: it may or may not have done it.
    pub const fn is_silence(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Late)
    }

    /// Of this kind; the message names the switch, host or peer.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The same, with where or when it happened.
    pub fn within(self, place: impl std::fmt::Display) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// What a peer, such as "the agent at a:1", has answered. What went wrong on the way is said by this
    /// end, which names the peer.
    pub fn of_status(peer: &str, status: &Status) -> Self {
        let known = CODES.iter().find(|(_, code)| *code == status.code());
        // A connection that breaks comes without a code of its own.
        let otherwise = match std::error::Error::source(status) {
            Some(_) => ErrorKind::Unavailable,
            None => ErrorKind::Failed,
        };
        let kind = known.map_or(otherwise, |(kind, _)| *kind);
        let message = match (std::error::Error::source(status), kind) {
            (Some(error), _) => {
                format!("{peer} cannot be reached: {}", deepest(error))
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

/// The first cause, which says most.
fn deepest<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a dyn std::error::Error {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause
}
