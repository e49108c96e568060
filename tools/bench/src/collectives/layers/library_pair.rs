//! An allreduce of the library.

use rdmc::{Context, Op, Team, TeamSettings};

use super::{super::contest::TURN_TIMEOUT, pair::Pair};
use crate::outcome::Outcome;

/// The context lives as long as the team.
pub struct LibraryPair {
    team: Team,
    _context: Context,
}

impl LibraryPair {
    pub fn new(context: Context, settings: TeamSettings) -> Outcome<Self> {
        Ok(Self { team: context.create_team(settings)?, _context: context })
    }
}

impl Pair for LibraryPair {
    fn operate(&mut self) -> Outcome<()> {
        Ok(self.team.all_reduce(&mut [0.0_f32], Op::Sum, TURN_TIMEOUT)?)
    }
}
