//! The properties of every schedule: the generators (`cases`) and the checks (`oracle`) are
//! independent of each other.

pub mod cases;
mod exhaustive;
mod oracle;
mod random;
