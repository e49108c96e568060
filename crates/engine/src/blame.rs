//! Why a group fails, as this member has found out: the member to name, the kind and the text.

use std::{io, time::Duration};

use transport::Cause;

use crate::{
    failure::{Failure, FailureKind},
    jobs::What,
    local_error::LocalError,
};

/// Why a group fails. In texts what is being done comes first, or what names the remedy: other members
/// receive the beginning alone.
pub(crate) struct Blame {
    member: Option<u32>,
    kind: FailureKind,
    detail: String,
}

impl Blame {
    /// `member` has broken the protocol.
    pub(crate) fn protocol(member: u32, detail: String) -> Self {
        Self { member: Some(member), kind: FailureKind::Protocol, detail }
    }

    /// The application of member `own`, this one, has aborted the group.
    pub(crate) fn application(own: u32, detail: &str) -> Self {
        Self { member: Some(own), kind: FailureKind::Application, detail: detail.to_owned() }
    }

    /// The connection to `rank` has ended.
    pub(crate) fn lost(own: u32, rank: u32, cause: &Cause, doing: &str) -> Self {
        let kind = FailureKind::of(cause);
        let member = if kind == FailureKind::Memory { own } else { rank };
        Self { member: Some(member), kind, detail: format!("while {doing}, {cause}") }
    }

    /// Blocks can no longer be transferred, though all members may be alive.
    pub(crate) fn halted(own: u32, cause: Cause, doing: &str) -> Self {
        let (member, kind) = match cause {
            Cause::Memory { .. } => (Some(own), FailureKind::Memory),
            _ => (None, FailureKind::Network),
        };
        let why = match cause {
            Cause::Lost(why) => why,
            other => other.to_string(),
        };
        Self { member, kind, detail: format!("while {doing}, {why}") }
    }

    /// The transport has refused a post, for this reason.
    pub(crate) fn refused(detail: String) -> Self {
        Self { member: None, kind: FailureKind::Network, detail }
    }

    /// A job could not be done.
    pub(crate) fn job(own: u32, error: &io::Error, what: &What, doing: &str) -> Self {
        let detail = format!("{error}: {what}, while {doing}");
        Self { member: Some(own), kind: FailureKind::Memory, detail }
    }

    /// An error at this member.
    pub(crate) fn local(own: u32, error: &LocalError, doing: &str) -> Self {
        let (member, kind) = match *error {
            LocalError::Memory(_) => (own, FailureKind::Memory),
            LocalError::Differs { .. } => (own, FailureKind::Differs),
            LocalError::ControlRefused { rank, .. } => (rank, FailureKind::Silent),
        };
        let detail = match error {
            // What was being done meanwhile has nothing to do with it.
            LocalError::Differs { .. } => error.to_string(),
            _ => format!("while {doing}, {error}"),
        };
        Self { member: Some(member), kind, detail }
    }

    /// This member's storage has completed nothing for this long.
    pub(crate) fn stuck(own: u32, what: Option<String>, waited: Duration, doing: &str) -> Self {
        let (what, waited_ms) = (what.unwrap_or_default(), waited.as_millis());
        let detail =
            format!("it waits for its storage: {what} since {waited_ms} ms, while {doing}");
        Self { member: Some(own), kind: FailureKind::Stalled, detail }
    }

    /// Nothing has moved for the stall timeout.
    pub(crate) fn stalled(member: Option<u32>, timeout: Duration, doing: &str) -> Self {
        let detail = format!("while {doing}, nothing has moved for {timeout:?}");
        Self { member, kind: FailureKind::Stalled, detail }
    }

    pub(crate) fn into_failure(self, group: u64, reporter: u32) -> Failure {
        let Self { member, kind, detail } = self;
        Failure { group, member, reporter, kind, detail, delivered: 0 }
    }
}
