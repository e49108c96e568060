//! The failure of a team.

use std::fmt;

use engine::{FailureKind, Notice};

/// Why a team failed: the first cause that this member learned of, which never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The team's number.
    pub team: u64,
    /// The member that caused it, if known.
    pub member: Option<u32>,
    /// The member that detected it.
    pub reporter: u32,
    /// The kind of failure.
    pub kind: FailureKind,
    /// What happened, in words. Cut to about 50 bytes at members that received it from others; a cut text
    /// ends in "…".
    pub detail: String,
}

impl Failure {
    pub(crate) fn of(team: u64, notice: Notice) -> Self {
        let Notice { member, reporter, kind, detail } = notice;
        Self { team, member, reporter, kind, detail }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "team {} failed: ", self.team)?;
        self.kind.describe(f, self.member, self.reporter, &self.detail)
    }
}

impl std::error::Error for Failure {}
