//! `rdmc plan --in-switch`: where switches copy a group's packets, and the load of links.

#[cfg(feature = "switch")]
mod file;
#[cfg(feature = "switch")]
mod json;
mod options;
#[cfg(feature = "switch")]
mod report;
#[cfg(feature = "switch")]
mod show;
mod source;
#[cfg(feature = "switch")]
mod text;
#[cfg(feature = "switch")]
mod topology;

pub use options::{EXAMPLES, Options};
#[cfg(feature = "switch")]
pub use show::run;
