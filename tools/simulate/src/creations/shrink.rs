//! Reductions of a scenario, which may still fail.

use super::scenario::CreationScenario;

/// Returns smaller valid scenarios, the most effective reduction first.
pub fn smaller_creations(from: &CreationScenario) -> Vec<CreationScenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut CreationScenario)| {
        let mut candidate = from.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    for group in (0..from.groups.len()).rev() {
        with(&|it| drop(it.groups.remove(group)));
    }
    for (index, group) in from.groups.iter().enumerate() {
        for rank in (0..group.members.len()).rev() {
            with(&|it| {
                it.groups[index].members.remove(rank);
                it.groups[index].seats.remove(rank);
            });
        }
    }
    with(&|it| it.losses_ns.clear());
    for loss in 0..from.losses_ns.len() {
        with(&|it| {
            it.losses_ns.remove(loss);
        });
    }
    for index in 0..from.unusable.len() {
        with(&|it| {
            it.unusable.remove(index);
        });
    }
    for context in 0..from.contexts.len() {
        with(&|it| it.contexts[context].death = None);
        with(&|it| it.contexts[context].start_ns = 0);
    }
    for (index, group) in from.groups.iter().enumerate() {
        for (rank, seat) in group.seats.iter().enumerate() {
            with(&|it| it.groups[index].seats[rank].start_ns = 0);
            with(&|it| it.groups[index].seats[rank].differs = 0);
            with(&|it| it.groups[index].seats[rank].is_open = false);
            for attempt in 0..seat.patience_ns.len() {
                with(&|it| {
                    it.groups[index].seats[rank].patience_ns.remove(attempt);
                });
            }
        }
    }
    with(&|it| it.jitter_ns = 0);
    all.retain(|candidate| candidate.check().is_ok());
    all
}
