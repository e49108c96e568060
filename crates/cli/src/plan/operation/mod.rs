//! `rdmc plan --collective`: who writes to whom in an operation of a team, and what it costs by its model.

mod explain;
mod json;
mod options;
mod picture;
mod plan;
mod show;
mod text;

pub use options::Options;
pub use show::{Request, run};
