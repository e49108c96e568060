//! The failure of a group.

use std::fmt;

use transport::Cause;

/// Why a group failed: the first cause that this member learned of, which never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The group's number.
    pub group: u64,
    /// The member that caused it, if known.
    pub member: Option<u32>,
    /// The member that detected it.
    pub reporter: u32,
    /// The kind of failure.
    pub kind: FailureKind,
    /// What the reporter was doing and what happened, in words. Cut to about 50 bytes at members
    /// that received it from others; a cut text ends in "…".
    pub detail: String,
    /// How many messages, counted from the first, are in place at every member. Valid in
    /// [`crate::Event::Failed`], and a lower bound in errors of earlier calls. Exact if every
    /// member replied after the failure; otherwise a lower bound, which may differ between members
    /// (docs/decisions/closing.md).
    pub delivered: u64,
}

/// The kinds of failures, which differ in their remedy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FailureKind {
    /// The member's process or its connection died.
    Lost,
    /// Nothing was received from the member in time.
    Silent,
    /// The member broke the protocol.
    Protocol,
    /// The member's memory, or the file that has the message there, could not be read or written.
    Memory,
    /// The member's application refused a message, panicked or aborted.
    Application,
    /// Nothing was transferred for too long; the member is the one that was waited for.
    Stalled,
    /// Data between the member and the reporter was changed in transit. The cause is the network
    /// between them, one of the two machines, or an attacker.
    Corrupt,
    /// The network no longer carries the group's blocks, though its members live: switches that
    /// copy them have lost the group's configuration, or failed. No member is the cause; a group
    /// whose members relay may work.
    Network,
    /// The member's copy of a message is not the one that the root sent; with
    /// [`crate::GroupSettings::verify`]. Copies behind it may differ as well.
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

    /// Returns the kind of failure for the end of a connection that was not closed from here.
    pub fn of(cause: &Cause) -> Self {
        match cause {
            Cause::Silent(_) => Self::Silent,
            Cause::Protocol(_) => Self::Protocol,
            Cause::Corrupt(_) => Self::Corrupt,
            Cause::Memory { .. } => Self::Memory,
            _ => Self::Lost,
        }
    }

    /// Returns the code by which it is transmitted.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this code.
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
            Self::Application => "gave up",
            Self::Stalled => "was waited for too long",
            Self::Corrupt => "is behind a link that damages what it carries",
            Self::Differs => "has a copy that differs from the root's",
            Self::Network => "got no more blocks from the network",
        })
    }
}

impl FailureKind {
    /// Writes a failure in words, from after what has failed: the member, the detail, and who noticed it.
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
