//! `--slurm`: the nodes of the job that this process runs in, and how Slurm starts receivers on them (docs/slurm.md).

mod allocation;
mod scontrol;
mod srun;
mod topology;

pub use allocation::hosts;
pub use srun::{WORDS, failed_nodes};
#[cfg(test)]
pub use topology::racks;
