//! Reductions of copies, which may still fail.

use super::scenario::CopyScenario;
use crate::subject::Smaller;

/// Adds smaller scenarios, the most effective reduction first.
pub(super) fn reduce(from: &CopyScenario, to: &mut Smaller<'_, CopyScenario>) {
    for session in 0..from.sessions.len() {
        to.with(|it| drop(it.sessions.remove(session)));
        to.without_each(|it| &mut it.sessions[session].faults);
        to.with(|it| it.sessions[session].version = 0);
    }
    for thing in (0..from.before.len()).rev() {
        to.with(|it| drop(it.before.remove(thing)));
    }
    for version in 0..from.versions.len() {
        for thing in (0..from.versions[version].len()).rev() {
            to.with(|it| drop(it.versions[version].remove(thing)));
        }
    }
    to.with(|it| it.folds_case = false);
    to.with(|it| it.deletes = false);
    to.with(|it| it.atomic = false);
    to.with(|it| it.stores = false);
    to.with(|it| it.by_contents = false);
    to.with(|it| it.top = None);
}
