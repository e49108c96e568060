//! `rdmc plan`: the schedule of one message as a table or JSON; an operation of a team; or where switches copy.
//!
//! Nothing is sent. The table and the JSON are streamed: memory grows with the members, not with the transfers.

mod args;
mod arrivals;
mod explain;
mod fetch;
mod in_switch;
mod json;
mod message;
mod operation;
mod run;
mod table;
mod transfers;

pub use args::Args;
pub use run::run;
