//! Which errors a creation may end with.

use rdmc::Error;

use super::{counts::CreationCounts, scenario::CreationScenario};

/// The pause before a context tries again to connect where nobody listens.
pub(super) const RETRY_NS: u64 = 50_000_000;

/// What a dead context looks like to one that waits for its answer.
pub(super) const LOST: &str = "the connection was lost";

/// What it looks like where nobody listens.
pub(super) const REFUSED: &str = "cannot connect";

/// Counts an error with which a creation of a group (by its index) has ended. Returns what is wrong with it.
pub(super) fn judge(
    scenario: &CreationScenario,
    counts: &mut CreationCounts,
    group: usize,
    left_ns: u64,
    error: &Error,
) -> Option<&'static str> {
    match error {
        Error::Timeout { .. } => {
            counts.timeouts += 1;
            (left_ns > 0).then_some("it was too early")
        }
        Error::Member { cause, .. } if cause == REFUSED => {
            counts.timeouts += 1;
            (left_ns > RETRY_NS).then_some("it was too early")
        }
        Error::Member { cause, .. } if cause.contains("different settings") => {
            counts.refused += 1;
            let seats = &scenario.groups[group].seats;
            seats.iter().all(|seat| seat.differs == 0).then_some("they are equal")
        }
        Error::Member { cause, .. } if cause == LOST => {
            counts.refused += 1;
            (counts.faults == 0).then_some("nothing was lost")
        }
        Error::Transport(text) if text.starts_with("link to member") => {
            counts.refused += 1;
            scenario.unusable.is_empty().then_some("all can be used")
        }
        _ => Some("there is no reason"),
    }
}
