//! Open posts, and posts that the transport has refused.

use transport::PostError;

/// The posts of one group.
#[derive(Default)]
pub(crate) struct Posts {
    /// The number of open posts. While there are any, the transport may access memory.
    open: usize,
    /// The reason of the first post that the transport has refused.
    refused: Option<String>,
}

impl Posts {
    /// Counts a post for `rank` if the transport has accepted it, and returns whether it has. If
    /// not, no completion of that block will follow: the group fails once all completions until
    /// then are processed, since the cause may be the end of a connection that is not reported yet.
    /// `occupation`: what this member is doing.
    pub(crate) fn record(
        &mut self,
        rank: u32,
        outcome: Result<(), PostError>,
        occupation: &str,
    ) -> bool {
        match outcome {
            Ok(()) => {
                self.open += 1;
                return true;
            }
            // A completion reports the end of that endpoint.
            Err(PostError::EndpointGone(_)) => {}
            Err(error) if self.refused.is_none() => {
                self.refused = Some(format!("while {occupation}, with member {rank}: {error}"));
            }
            Err(_) => {}
        }
        false
    }

    /// Notes that a post has completed.
    pub(crate) fn completed(&mut self) {
        self.open -= 1;
    }

    /// Returns whether no post is open.
    pub(crate) fn are_done(&self) -> bool {
        self.open == 0
    }

    /// Returns whether a post was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Takes the reason why the first post was refused.
    pub(crate) fn take_refused(&mut self) -> Option<String> {
        self.refused.take()
    }
}
