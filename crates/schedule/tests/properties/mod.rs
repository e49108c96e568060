//! The properties of every schedule: the generators (`cases`) know nothing of what is right, and the checks
//! (`oracle`) nothing of how the schedules were chosen.

mod cases;
mod exhaustive;
mod oracle;
mod random;
