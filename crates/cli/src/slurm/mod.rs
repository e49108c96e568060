//! `--slurm`: the nodes of this process's Slurm job, and the start of receivers on them by Slurm (docs/guide/slurm.md).

mod allocation;
mod scontrol;
mod srun;
mod topology;

pub use allocation::hosts;
pub use srun::{WORDS, failed_nodes};
#[cfg(test)]
pub use topology::racks;
