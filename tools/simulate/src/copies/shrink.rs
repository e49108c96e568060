//! Reductions of copies, which may still fail.

use super::scenario::CopyScenario;

/// Returns smaller valid scenarios, the most effective reduction first.
pub fn smaller_copies(from: &CopyScenario) -> Vec<CopyScenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut CopyScenario)| {
        let mut candidate = from.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    for session in 0..from.sessions.len() {
        with(&|it| drop(it.sessions.remove(session)));
        for fault in 0..from.sessions[session].faults.len() {
            with(&|it| drop(it.sessions[session].faults.remove(fault)));
        }
        with(&|it| it.sessions[session].version = 0);
    }
    for thing in (0..from.before.len()).rev() {
        with(&|it| drop(it.before.remove(thing)));
    }
    for version in 0..from.versions.len() {
        for thing in (0..from.versions[version].len()).rev() {
            with(&|it| drop(it.versions[version].remove(thing)));
        }
    }
    with(&|it| it.folds_case = false);
    with(&|it| it.deletes = false);
    with(&|it| it.atomic = false);
    with(&|it| it.by_contents = false);
    with(&|it| it.top = None);
    all.retain(|candidate| candidate.check().is_ok());
    all
}
