//! The members of all groups.

use super::{
    scenario::CreationScenario,
    seat::{Seat, SeatState},
};

/// The members of all groups, by group and rank.
pub(super) struct Seats<'a> {
    scenario: &'a CreationScenario,
    pub(super) all: Vec<Vec<Seat>>,
}

impl<'a> Seats<'a> {
    pub(super) fn new(scenario: &'a CreationScenario) -> Self {
        let groups = scenario.groups.iter();
        let all = groups.map(|group| group.seats.iter().cloned().map(Seat::new).collect());
        Self { scenario, all: all.collect() }
    }

    /// Returns the groups that do not stand, by index.
    pub(super) fn unfinished(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|&group| !self.stands(group)).collect()
    }

    /// Returns the members whose contexts are this one, by group and rank.
    pub(super) fn of(&self, context: usize) -> Vec<(usize, usize)> {
        let groups = self.scenario.groups.iter().enumerate();
        let of = groups.filter_map(|(group, plan)| {
            Some((group, plan.members.iter().position(|&it| it == context)?))
        });
        of.collect()
    }

    /// Returns the rank of a context in a group that it is creating, and until when.
    ///
    /// Errors: it is not.
    pub(super) fn creating(&self, group: usize, context: usize) -> Result<(usize, u64), String> {
        let members = &self.scenario.groups[group].members;
        let rank = members.iter().position(|&it| it == context);
        match rank.map(|rank| (rank, &self.all[group][rank].state)) {
            Some((rank, SeatState::Creating { until_ns })) => Ok((rank, *until_ns)),
            _ => Err(format!("context {context} does not create group {}", group + 1)),
        }
    }

    /// Returns a group, by index, of which a member should have ended its creation by now.
    pub(super) fn late(&self, now_ns: u64) -> Option<usize> {
        let is_late = |seat: &Seat| matches!(seat.state, SeatState::Creating { until_ns } if until_ns < now_ns);
        self.all.iter().position(|seats| seats.iter().any(is_late))
    }

    /// Returns whether a group stands at all members, and all of its links lead to each other.
    pub(super) fn stands(&self, group: usize) -> bool {
        let (plan, seats) = (&self.scenario.groups[group], &self.all[group]);
        (0..seats.len() as u32).all(|rank| {
            let is_standing = matches!(seats[rank as usize].state, SeatState::Standing(_));
            is_standing
                && plan.neighbours(rank).into_iter().all(|other| {
                    let near = seats[rank as usize].link_to(other);
                    let far = seats[other as usize].link_to(rank);
                    near.zip(far).is_some_and(|(near, far)| near.end.other() == far.end)
                })
        })
    }
}
