//! Groups of one member that come and go beside the others, as in a process that has many.

use std::time::Duration;

use engine::{Event, GroupSettings};
use rdmc::{Algorithm, Schedule};

use crate::node::MemberEngine;

/// The first number; all others of a scenario are below.
const FIRST: u64 = 1 << 40;

/// The groups of one member, of which the last one exists.
#[derive(Debug, Default)]
pub struct Beside {
    created: u64,
}

impl Beside {
    /// Returns whether the event is the end of such a group.
    pub fn has(event: &Event) -> bool {
        event.group() >= FIRST && matches!(event, Event::Closed { .. })
    }

    /// Closes the last one, and creates the next.
    ///
    /// Errors: what the engine has refused.
    pub fn create_next(
        &mut self,
        engine: &mut MemberEngine,
        stall_timeout: Option<Duration>,
    ) -> Result<(), String> {
        let number = FIRST + self.created;
        if self.created > 0 {
            engine.close(number - 1).map_err(|error| error.to_string())?;
        }
        self.created += 1;
        let schedule = Schedule::new(Algorithm::Chain, 1, 0).map_err(|error| error.to_string())?;
        let settings = GroupSettings { stall_timeout, ..GroupSettings::new(number, 0, schedule) };
        engine.create(settings, Vec::new()).map_err(|error| error.to_string())
    }
}
