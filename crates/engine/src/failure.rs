//! The failure of a group.

use std::fmt;

use transport::Cause;

/// Why a group failed: the first cause that this member learned of. It never changes afterwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The group's number.
    pub group: u64,
    /// The member that caused the failure, if known.
    pub member: Option<u32>,
    /// The member that detected the failure.
    pub reporter: u32,
    /// The kind of failure.
    pub kind: FailureKind,
    /// What the reporter was doing and what happened. Truncated to about 50 bytes at members that
    /// received the text from another member; a truncated text ends in "…".
    pub detail: String,
    /// How many messages, counted from the first, are in place at every member. Valid in
    /// [`crate::Event::Failed`], and a lower bound in errors of earlier calls. Exact if every
    /// member replied after the failure; otherwise a lower bound, which may differ between members
    /// (docs/decisions/closing.md).
    pub delivered: u64,
}

/// The kinds of failures. Each has a different remedy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FailureKind {
    /// The member's process ended or its connection was lost.
    Lost,
    /// Nothing was received from the member in time.
    Silent,
    /// The member violated the protocol.
    Protocol,
    /// The member's memory, or its file for the message, could not be read or written.
    Memory,
    /// The member's application refused a message, panicked or aborted.
    Application,
    /// Nothing was transferred within the timeout; the member is the one that others waited for.
    Stalled,
    /// Data between the member and the reporter was changed in transit. The cause is the network
    /// between them, one of the two machines, or an attacker.
    Corrupt,
    /// The network no longer carries the group's blocks, although the members are alive: switches that
    /// copy blocks have failed or lost the group's configuration. No member is the cause; a group
    /// whose members relay may work.
    Network,
    /// The member's copy of a message differs from the root's; with
    /// [`crate::GroupSettings::verify`]. Copies at members to which it relayed may also differ.
    Differs,
}

impl FailureKind {
    const ALL: [Self; 9] = [
        Self::Lost,
        Self::Silent,
        Self::Protocol,
        Self::Memory,
        Self::Application,
        Self::Stalled,
        Self::Corrupt,
        Self::Network,
        Self::Differs,
    ];

    /// Returns the kind of failure for a connection that ended without being closed by this member.
    pub fn of(cause: &Cause) -> Self {
        match cause {
            Cause::Silent(_) => Self::Silent,
            Cause::Protocol(_) => Self::Protocol,
            Cause::Corrupt(_) => Self::Corrupt,
            Cause::Memory { .. } => Self::Memory,
            _ => Self::Lost,
        }
    }

    /// Returns the code that identifies this kind in the protocol.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this code, or `None` if no kind has this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "was lost",
            Self::Silent => "fell silent",
            Self::Protocol => "broke the protocol",
            Self::Memory => "could not read or write the message",
            Self::Application => "aborted",
            Self::Stalled => "stalled",
            Self::Corrupt => "is behind a link that corrupts data",
            Self::Differs => "has a copy that differs from the root's",
            Self::Network => "received no more blocks from the network",
        })
    }
}

impl FailureKind {
    /// Writes a failure as text, without the name of what failed: the member, the detail, and the reporter.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn describe(
        self,
        f: &mut fmt::Formatter<'_>,
        member: Option<u32>,
        reporter: u32,
        detail: &str,
    ) -> fmt::Result {
        match member {
            Some(member) => write!(f, "member {member} {self}")?,
            None => write!(f, "a member {self}")?,
        }
        if !detail.is_empty() {
            write!(f, ": {detail}")?;
        }
        if Some(reporter) != member {
            write!(f, " (noticed by member {reporter})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {} failed: ", self.group)?;
        self.kind.describe(f, self.member, self.reporter, &self.detail)
    }
}

impl std::error::Error for Failure {}
