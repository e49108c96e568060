//! Reductions of a scenario, which may still fail.

use super::scenario::CreationScenario;
use crate::subject::Smaller;

/// Adds smaller scenarios, the most effective reduction first.
pub(super) fn reduce(from: &CreationScenario, to: &mut Smaller<'_, CreationScenario>) {
    for group in (0..from.groups.len()).rev() {
        to.with(|it| drop(it.groups.remove(group)));
    }
    for (index, group) in from.groups.iter().enumerate() {
        for rank in (0..group.members.len()).rev() {
            to.with(|it| {
                it.groups[index].members.remove(rank);
                it.groups[index].seats.remove(rank);
            });
        }
    }
    to.with(|it| it.losses_ns.clear());
    to.without_each(|it| &mut it.losses_ns);
    to.without_each(|it| &mut it.unusable);
    for context in 0..from.contexts.len() {
        to.with(|it| it.contexts[context].death = None);
        to.with(|it| it.contexts[context].start_ns = 0);
    }
    for (index, group) in from.groups.iter().enumerate() {
        for rank in 0..group.seats.len() {
            to.with(|it| it.groups[index].seats[rank].start_ns = 0);
            to.with(|it| it.groups[index].seats[rank].differs = 0);
            to.with(|it| it.groups[index].seats[rank].is_open = false);
            to.without_each(|it| &mut it.groups[index].seats[rank].patience_ns);
        }
    }
    to.with(|it| it.jitter_ns = 0);
}
