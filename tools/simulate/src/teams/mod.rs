//! Whole teams in virtual time: operations of [`team::Team`] over a simulated network, with faults.
//!
//! A [`TeamScenario`] is drawn from a seed. [`run_team`] runs it. [`values`] is the plain model of what operations compute;
//! [`member`] is a team's member with its application, [`facts`] what they record and [`checks`] what is judged by that alone;
//! [`world`] advances time and injects faults.

mod agenda;
mod calls;
mod canary;
mod checks;
mod draw;
mod facts;
mod fault;
mod member;
mod outcome;
mod planted;
mod scenario;
mod shrink;
mod tally;
mod values;
mod world;

pub use calls::{CallKind, CallPlan, FoldPlan, FunctionPlan, OtherCall};
pub use canary::TeamCanary;
pub use draw::draw as draw_team;
pub use facts::{InjectedTeamFault, TeamBlame, TeamEnd};
pub use fault::{PlannedTeamFault, TeamFault};
pub use outcome::TeamOutcome;
pub use scenario::{TeamMemberPlan, TeamScenario};
pub use shrink::smaller_teams;
pub use tally::TeamTally;
pub use world::run as run_team;
