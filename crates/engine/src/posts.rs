//! Posts that have not completed, and those that a transport does not take.

use transport::PostError;

/// Posts of one group.
#[derive(Default)]
pub(crate) struct Posts {
    /// While there are any, the transport may touch memory.
    open: usize,
    /// The first that the transport has refused, and why.
    refused: Option<String>,
}

impl Posts {
    /// Counts a post for `rank` if the transport has taken it, and returns whether it has. If not,
    /// no completion of that block will follow: the group fails once all completions until then are
    /// taken in, since the cause may be the end of a connection that is not reported yet. `occupation`: what this member is doing.
    pub(crate) fn record(
        &mut self,
        rank: u32,
        outcome: Result<(), PostError>,
        occupation: impl FnOnce() -> String,
    ) -> bool {
        match outcome {
            Ok(()) => {
                self.open += 1;
                return true;
            }
            // A completion reports the end of that endpoint.
            Err(PostError::EndpointGone(_)) => {}
            Err(error) if self.refused.is_none() => {
                self.refused = Some(format!("while {}, with member {rank}: {error}", occupation()));
            }
            Err(_) => {}
        }
        false
    }

    /// One has completed.
    pub(crate) fn completed(&mut self) {
        self.open -= 1;
    }

    /// Whether none is open.
    pub(crate) fn are_done(&self) -> bool {
        self.open == 0
    }

    /// Whether one was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Why the first was refused, once.
    pub(crate) fn take_refused(&mut self) -> Option<String> {
        self.refused.take()
    }
}
