//! Posts that a transport does not take.

use transport::{PostError, Transport};

use crate::{failure::FailureKind, group::Group};

impl Group {
    /// Counts a post for `rank` if the transport has taken it, and answers whether it has. If not,
    /// nothing will ever tell of that block: the group fails by [`Group::fail_refused`].
    pub(crate) fn is_posted(&mut self, rank: u32, outcome: Result<(), PostError>) -> bool {
        match outcome {
            Ok(()) => {
                self.posts_open += 1;
                return true;
            }
            // Of an endpoint that is gone a completion tells.
            Err(PostError::EndpointGone(_)) => {}
            Err(error) => {
                let detail = format!("while {}, with member {rank}: {error}", self.occupation());
                self.refused.get_or_insert(detail);
            }
        }
        false
    }

    /// Whether the transport has refused a post of a group that is running.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_running() && self.refused.is_some()
    }

    /// Fails the group if a post was refused. To be called when all that had completed by then is taken
    /// in: a post is also refused because of an end that is not reported yet, which says more.
    pub(crate) fn fail_refused<T: Transport>(&mut self, transport: &mut T) {
        if let Some(detail) = self.refused.take() {
            self.fail(transport, None, FailureKind::Network, detail);
        }
    }
}
