//! Why a team cannot go on.

use crate::{Call, Difference};

/// What a member has found out about another. The texts begin with what differs, since members that learn of it from others get
/// some 50 bytes, and leave out the member, which is reported beside them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Two members have called different things as the same operation.
    #[error(
        "it called {}, as operation {operation}: all members make the same calls",
        contrast(theirs, ours)
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
    #[error("it skipped operation {operation} and is at {at}: it called something else")]
    Skipped {
        /// Number of the operation.
        operation: u64,
        /// The other member.
        member: u32,
        /// The number of its operation.
        at: u64,
    },
    /// A member has left the team after another number of operations.
    #[error("it left after {theirs} operations, not {ours}: all members make the same calls")]
    Left {
        /// The other member.
        member: u32,
        /// How many operations it had called.
        theirs: u64,
        /// How many this member has called.
        ours: u64,
    },
    /// A member has written what no member writes.
    #[error("it violates the protocol: {what}")]
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

/// Describes a call by what is different about another one.
fn contrast(theirs: &Call, ours: &Call) -> String {
    let kind = theirs.kind;
    // An operator by its name; a function, of which only a number is known, without one.
    let by = |call: &Call| {
        call.folding.map(|folding| match (folding.element, folding.operator) {
            (Some(element), Some(op)) => format!("{op} of {element}"),
            _ => "a function".to_owned(),
        })
    };
    match theirs.difference(ours) {
        Some(Difference::Kind) | None => format!("{kind}, not {}", ours.kind),
        Some(Difference::Root) => format!("{kind} with root {}, not {}", theirs.root, ours.root),
        Some(Difference::Bytes) => format!("{kind} of {} bytes, not {}", theirs.bytes, ours.bytes),
        Some(difference) => match (by(theirs), by(ours)) {
            (Some(theirs), Some(ours)) if theirs != ours => {
                format!("{kind} by {theirs}, not {ours}")
            }
            _ => format!("{kind} by another {difference}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Function, Kind, Op, Reduction, Type};

    /// What other members receive of a text at least, in bytes.
    const TOLD_MIN: usize = 50;

    fn said(theirs: Call, ours: Call) -> String {
        let difference = theirs.difference(&ours).unwrap();
        Fault::Disagreement { operation: 123, member: 7, difference, ours, theirs }.to_string()
    }

    #[test]
    fn what_differs_comes_first() {
        let call = |root, bytes| Call::new(Kind::Broadcast, root, bytes);
        let by = |kind, op| Call::folding(kind, 0, 8, &Reduction::new(Type::F32, op).unwrap());
        let mean = Function::new("mean", 4, |_, _| ()).unwrap();
        let other = Function::new("other", 4, |_, _| ()).unwrap();
        let mean = || Call::folding(Kind::Reduce, 0, 8, &mean.clone().into());
        for (text, expected) in [
            (said(mean(), by(Kind::Reduce, Op::Sum)), "reduce by a function, not sum of f32"),
            (said(by(Kind::Reduce, Op::Sum), mean()), "reduce by sum of f32, not a function"),
            (
                said(mean(), Call::folding(Kind::Reduce, 0, 8, &other.into())),
                "reduce by another function",
            ),
            (
                said(Call::new(Kind::Close, 0, 0), Call::new(Kind::Barrier, 0, 0)),
                "close, not barrier",
            ),
            (said(call(1, 4), call(0, 4)), "broadcast with root 1, not 0"),
            (said(call(0, 4), call(0, 80)), "broadcast of 4 bytes, not 80"),
            (
                said(by(Kind::Reduce, Op::Sum), by(Kind::Reduce, Op::Max)),
                "reduce by sum of f32, not max of f32",
            ),
            (
                said(call(0, 8), Call { kind: Kind::Broadcast, ..by(Kind::Reduce, Op::Max) }),
                "broadcast by another type",
            ),
        ] {
            let begins = format!("it called {expected}, as operation 123");
            assert!(text.starts_with(&begins), "{text}");
            assert!(begins.len() - " as operation 123".len() <= TOLD_MIN, "{begins}");
        }
    }
}
