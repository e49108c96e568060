//! Why a group failed.

use std::fmt;

use transport::Cause;

/// Why a group failed: the first cause that this member learned of, which never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The group's number.
    pub group: u64,
    /// The member to blame, where one is known.
    pub member: Option<u32>,
    /// The member that noticed.
    pub reporter: u32,
    /// What kind of failure.
    pub kind: FailureKind,
    /// What was going on and what happened, in words. Shortened to some 50 bytes at members that
    /// learned of it from others, and ends in "…" then.
    pub detail: String,
    /// How many messages, counted from the first, are in place at every member: known in
    /// [`crate::Event::Failed`], and a lower bound in errors of calls before. Exact where every
    /// member answered after the failure, else a lower bound, which may differ between members
    /// (docs/decisions/closing.md).
    pub delivered: u64,
}

/// Kinds of failures, by what to do about them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FailureKind {
    /// The member's process or its connection died.
    Lost,
    /// The member did not answer in time.
    Silent,
    /// The member broke the protocol.
    Protocol,
    /// The member's memory could not be read or written.
    Memory,
    /// The member's application refused, panicked or gave up.
    Application,
    /// Nothing moved for too long; the member is the one that was waited for.
    Stalled,
    /// Something did not arrive as it was sent between the member and the reporter: the network
    /// between them is to blame, one of the two machines, or an attacker.
    Corrupt,
    /// The network carries the group's blocks no more, though its members live: switches that copy
    /// them have forgotten the group, or failed. Nobody is to blame; a group that relays may work.
    Network,
}

impl FailureKind {
    const ALL: [Self; 8] = [
        Self::Lost,
        Self::Silent,
        Self::Protocol,
        Self::Memory,
        Self::Application,
        Self::Stalled,
        Self::Corrupt,
        Self::Network,
    ];

    /// How a connection ended that was not closed from here.
    pub(crate) fn of(cause: &Cause) -> Self {
        match cause {
            Cause::Silent(_) => Self::Silent,
            Cause::Protocol(_) => Self::Protocol,
            Cause::Corrupt(_) => Self::Corrupt,
            Cause::Memory { .. } => Self::Memory,
            _ => Self::Lost,
        }
    }

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "was lost",
            Self::Silent => "fell silent",
            Self::Protocol => "broke the protocol",
            Self::Memory => "could not use its memory",
            Self::Application => "gave up",
            Self::Stalled => "was waited for too long",
            Self::Corrupt => "is behind a link that damages what it carries",
            Self::Network => "got no more blocks from the network",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {} failed: ", self.group)?;
        match self.member {
            Some(member) => write!(f, "member {member} {}", self.kind)?,
            None => write!(f, "a member {}", self.kind)?,
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        if Some(self.reporter) != self.member {
            write!(f, " (noticed by member {})", self.reporter)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
