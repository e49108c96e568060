//! `rdmc plan`: the schedule of one message as a table, JSON or SVG; or where switches copy it.
//!
//! Nothing is sent. The table and the JSON are streamed: memory grows with the members, not with the transfers.

mod args;
mod explain;
mod in_switch;
mod json;
mod message;
mod run;
mod svg;
mod table;
mod transfers;

pub use args::Args;
pub use run::run;
