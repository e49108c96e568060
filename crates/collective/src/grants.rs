//! The order of long operations on one link, and what the other member has granted ahead of this one.

use std::collections::VecDeque;

use crate::Call;

/// How many operations ahead of this member another may grant blocks.
const AHEAD_MAX: usize = 1 << 12;

/// A member's right to send blocks of an operation, with the call of the member that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) operation: u64,
    pub(crate) call: Call,
    /// How many blocks of the operation in all.
    pub(crate) blocks: u32,
}

/// One link. Its blocks go in the order of operations, so that both ends agree on the order of posts.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// Operations that have receives left to post on this link, in order.
    pub(crate) receiving: VecDeque<u64>,
    /// Operations that have sends left to post on this link, in order.
    pub(crate) sending: VecDeque<u64>,
    /// Grants of operations that this member has not called, in order.
    ahead: VecDeque<Grant>,
}

impl Grants {
    /// Keeps a grant of an operation that this member has not called. Returns whether that is possible.
    pub(crate) fn keep(&mut self, grant: Grant) -> bool {
        match self.ahead.back_mut() {
            Some(last) if last.operation > grant.operation => false,
            Some(last) if last.operation == grant.operation => {
                let is_possible = last.call == grant.call && last.blocks <= grant.blocks;
                *last = grant;
                is_possible
            }
            _ => {
                self.ahead.push_back(grant);
                self.ahead.len() <= AHEAD_MAX
            }
        }
    }

    /// Takes the grant of an operation, if there is one.
    pub(crate) fn take(&mut self, operation: u64) -> Option<Grant> {
        let is_known = self.ahead.front()?.operation == operation;
        if is_known { self.ahead.pop_front() } else { None }
    }
}
