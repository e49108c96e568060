//! `rdmc plan --in-switch`: where switches copy a group's packets, and what that saves.

mod file;
mod json;
mod options;
mod report;
mod show;
mod source;
mod text;
mod topology;

pub use options::{EXAMPLES, Options};
pub use show::run;
