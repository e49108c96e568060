//! Why a team cannot go on.

use crate::{Call, Difference};

/// What a member has found out about another.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Two members have called different things as the same operation.
    #[error(
        "member {member} called {} as operation {operation}, and this member {}: another {difference}",
        describe(theirs),
        describe(ours)
    )]
    Disagreement {
        /// Number of the operation.
        operation: u64,
        /// The other member.
        member: u32,
        /// The first respect in which the calls differ.
        difference: Difference,
        /// This member's call.
        ours: Call,
        /// The other member's call.
        theirs: Call,
    },
    /// A member has left out its part of an operation, because it called something else.
    #[error(
        "member {member} took no part in operation {operation} and is at operation {at}: it called something else"
    )]
    Skipped {
        /// Number of the operation.
        operation: u64,
        /// The other member.
        member: u32,
        /// The number of its operation.
        at: u64,
    },
    /// A member has left the team after another number of operations.
    #[error(
        "member {member} left the team after {theirs} operations, and this member called {ours}: all members make the same calls"
    )]
    Left {
        /// The other member.
        member: u32,
        /// How many operations it had called.
        theirs: u64,
        /// How many this member has called.
        ours: u64,
    },
    /// A member has written what no member writes.
    #[error("member {member} violates the protocol: {what}")]
    Protocol {
        /// The other member.
        member: u32,
        /// What it did.
        what: &'static str,
    },
}

impl Fault {
    /// Returns the other member, of which this was found out.
    pub fn member(&self) -> u32 {
        match self {
            Self::Disagreement { member, .. }
            | Self::Skipped { member, .. }
            | Self::Left { member, .. }
            | Self::Protocol { member, .. } => *member,
        }
    }
}

fn describe(call: &Call) -> String {
    use crate::Kind::{AllGather, AllReduce, Barrier, Broadcast, Reduce};
    let Call { kind, root, bytes, .. } = call;
    match kind {
        Barrier => kind.to_string(),
        Broadcast | Reduce => format!("{kind} (root {root}, {bytes} bytes)"),
        AllReduce | AllGather => format!("{kind} ({bytes} bytes)"),
    }
}
