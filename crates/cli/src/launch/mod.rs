//! Receiver processes: starting them on their hosts, and watching them.
//!
//! Each running process costs one descriptor here, for its standard error (two with a trace). With many hosts some of the
//! processes are `rdmc launch`, which starts a receiver on its host and on further hosts; each of these costs three.

mod feed;
mod launched;
mod launcher;
mod line_reader;
mod logins;
mod order;
mod program;
mod receivers;
mod relay;
mod remedy;
mod repetition;
mod said;
mod tree;

pub use launcher::{FANOUT, Launcher, SSH};
pub use order::{Callback, Recipient};
#[cfg(test)]
pub use order::{Order, Report};
pub use program::Program;
pub use receivers::{Receivers, Superior};
pub use relay::{Args, run};
pub use repetition::is_in;
pub use tree::DEPTH_MAX;
