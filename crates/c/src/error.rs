//! Results of calls: codes and error texts.

use std::{ffi::c_char, fmt};

use rdmc::{Failure, FailureKind, TeamFailure};

/// The result of a call. Codes are never renumbered.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// An argument or setting is invalid, or inconsistent with another; nothing has changed.
    Invalid = 1,
    /// The call is not valid in this state, or inside a callback; nothing has changed.
    State = 2,
    /// The group, team or context is closed.
    Closed = 3,
    /// The timeout has expired.
    Timeout = 4,
    /// The maximum number of messages is queued.
    QueueFull = 5,
    /// Memory cannot be allocated or used, or is too small for the message.
    NoMemory = 6,
    /// This library or this host does not support it: the fabric is missing, or the feature was not built.
    Unsupported = 7,
    /// A member is unreachable, refuses, or has different settings.
    Unreachable = 8,
    /// A system call failed.
    System = 9,
    /// The process is a fork of the one that created the object.
    Forked = 10,
    /// A bug in the library ended the call.
    Panicked = 11,
    /// The group or team has failed: a member's process or connection ended.
    Lost = 16,
    /// As `RDMC_LOST`: nothing was received from a member within the timeout.
    Silent = 17,
    /// As `RDMC_LOST`: a member broke the protocol.
    Protocol = 18,
    /// As `RDMC_LOST`: a member's memory could not be read or written.
    Memory = 19,
    /// As `RDMC_LOST`: a member's application refused a message or aborted.
    Application = 20,
    /// As `RDMC_LOST`: nothing was transferred for too long; names the member that stalled.
    Stalled = 21,
    /// As `RDMC_LOST`: data changed in transit.
    Corrupt = 22,
    /// As `RDMC_LOST`: the network no longer carries the group's blocks, although its members are alive.
    Network = 23,
    /// As `RDMC_LOST`: a member's copy of a message differs from the root's, in a group with `verify`.
    Differs = 24,
}

/// Length in bytes of the text of an error, with its terminating NUL.
pub const TEXT_BYTES: usize = 488;

/// Why a call failed. Owned by the caller; contains nothing to free. Successful calls do not change it.
#[repr(C)]
pub struct Error {
    /// The result of the call, an `rdmc_code`.
    pub code: i32,
    /// Zero.
    pub reserved: i32,
    /// The rank of the member that caused the error; -1 if none did, or if it is unknown.
    pub member: i64,
    /// If a group has failed: the number of messages, counted from the first, that every member is known to have.
    pub delivered: u64,
    /// What happened, where, and the remedy: UTF-8, truncated to this length, NUL-terminated.
    pub text: [c_char; TEXT_BYTES],
}

/// An error on its way to the caller.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    member: Option<u32>,
    delivered: u64,
    text: String,
}

pub(crate) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, member: None, delivered: 0, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(Code::Invalid, text)
    }

    /// Fills the caller's error, if there is one, and returns the code.
    pub(crate) fn report(&self, into: Option<&mut Error>) -> i32 {
        let code = self.code as i32;
        if let Some(error) = into {
            error.code = code;
            error.reserved = 0;
            error.member = self.member.map_or(-1, i64::from);
            error.delivered = self.delivered;
            error.text = [0; TEXT_BYTES];
            let end = self.text.floor_char_boundary(TEXT_BYTES - 1);
            // A NUL within the text would hide the rest.
            let bytes = self.text[..end].bytes().map(|byte| if byte == 0 { b' ' } else { byte });
            for (to, byte) in error.text.iter_mut().zip(bytes) {
                *to = byte as c_char;
            }
        }
        code
    }
}

fn code_of(kind: FailureKind) -> Code {
    match kind {
        FailureKind::Lost => Code::Lost,
        FailureKind::Silent => Code::Silent,
        FailureKind::Memory => Code::Memory,
        FailureKind::Application => Code::Application,
        FailureKind::Stalled => Code::Stalled,
        FailureKind::Corrupt => Code::Corrupt,
        FailureKind::Network => Code::Network,
        FailureKind::Differs => Code::Differs,
        _ => Code::Protocol,
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let (code, text) = (code_of(failure.kind), failure.to_string());
        Self { code, member: failure.member, delivered: failure.delivered, text }
    }
}

impl From<TeamFailure> for Problem {
    fn from(failure: TeamFailure) -> Self {
        let (code, text) = (code_of(failure.kind), failure.to_string());
        Self { code, member: failure.member, delivered: 0, text }
    }
}

impl From<rdmc::Error> for Problem {
    fn from(error: rdmc::Error) -> Self {
        use rdmc::Error as E;
        let code = match error {
            E::Failed(failure) => return failure.into(),
            E::TeamFailed(failure) => return failure.into(),
            E::Member { member, .. } => {
                let member = Some(member);
                return Self {
                    code: Code::Unreachable,
                    member,
                    delivered: 0,
                    text: error.to_string(),
                };
            }
            E::Schedule(_) | E::Setting { .. } | E::NumberInUse(_) | E::TeamCall(_) => {
                Code::Invalid
            }
            E::RegionReadOnly { .. } => Code::Invalid,
            E::Relay(_) | E::HasCallbacks(_) | E::HasProgressThread | E::InsideCallback(..) => {
                Code::State
            }
            E::NoSuchGroup(_) | E::Closed(_) | E::ContextClosed | E::TeamClosed(_) => Code::Closed,
            E::Timeout { .. } => Code::Timeout,
            E::QueueFull { .. } => Code::QueueFull,
            E::RegionTooSmall { .. } | E::Region(_) => Code::NoMemory,
            E::Fabric { .. } | E::InSwitch { .. } => Code::Unsupported,
            E::Peer { .. } => Code::Unreachable,
            E::ContextFailed(_) => Code::Panicked,
            _ => Code::System,
        };
        let text = match error {
            // The library's text names Rust functions.
            E::InsideCallback(call, _) => format!(
                "{call} waits for callbacks and was called in one; callbacks report what it waits for, and \
                 rdmc_group_start_close starts closing"
            ),
            error => error.to_string(),
        };
        Self::new(code, text)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn empty() -> Error {
        Error { code: 0, reserved: 1, member: 0, delivered: 1, text: [1; TEXT_BYTES] }
    }

    fn text(error: &Error) -> &str {
        let bytes = error.text.map(|byte| byte as u8);
        let end = bytes.iter().position(|&byte| byte == 0).expect("a zero ends it");
        // The texts of these tests live as long as the program.
        Box::leak(CStr::from_bytes_with_nul(&bytes[..=end]).unwrap().to_owned().into_boxed_c_str())
            .to_str()
            .unwrap()
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut error = empty();
        let code = Problem::invalid("\u{e4}".repeat(400)).report(Some(&mut error));
        assert_eq!((code, error.code, error.member), (1, 1, -1));
        assert_eq!(text(&error), "\u{e4}".repeat(243));
        Problem::invalid("one\0two").report(Some(&mut error));
        assert_eq!(text(&error), "one two");
    }

    #[test]
    fn the_struct_has_the_size_that_programs_were_built_with() {
        assert_eq!(size_of::<Error>(), 512);
    }

    #[test]
    fn a_failure_names_member_and_watermark() {
        let failure = Failure {
            group: 4,
            member: Some(2),
            reporter: 1,
            kind: FailureKind::Stalled,
            detail: "d".into(),
            delivered: 7,
        };
        let mut error = empty();
        let code = Problem::from(rdmc::Error::Failed(failure)).report(Some(&mut error));
        assert_eq!((code, error.member, error.delivered), (Code::Stalled as i32, 2, 7));
        assert!(text(&error).contains("member 2"), "{}", text(&error));
    }
}
