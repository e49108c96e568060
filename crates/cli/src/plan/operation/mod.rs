//! `rdmc plan --collective`: the writes of a collective operation of a team, by the way that the library takes, and their
//! cost by a model.

mod explain;
mod json;
mod options;
mod plan;
mod show;
mod text;
mod write;

pub use options::Options;
pub use show::{Request, run};
