//! The command by which Slurm starts a process on each of some nodes.

use crate::hosts::{HOSTS_MAX, expand, split};

/// The words of the command; `{host}` stands for the nodes and `{count}` for their number. Standard input goes to all tasks, over
/// connections that Slurm authenticates. Tasks share the job's resources with other steps, and a failing task ends no other.
pub const WORDS: [&str; 13] = [
    "srun",
    "--nodes={count}",
    "--ntasks={count}",
    "--ntasks-per-node=1",
    "--nodelist={host}",
    "--input=all",
    "--overlap",
    "--gres=none",
    "--cpu-bind=none",
    "--mpi=none",
    "--kill-on-bad-exit=0",
    "--no-kill",
    "--wait=0",
];

/// The nodes whose tasks have failed, from a line such as `srun: error: n[2-3]: tasks 1-2: Exited with exit code 7`.
pub fn failed_nodes(line: &str) -> Vec<String> {
    let words = line.strip_prefix("srun: error: ").and_then(|rest| rest.split_once(": task"));
    let entries = words.and_then(|(list, _)| split(list).ok()).unwrap_or_default();
    let names = entries.iter().filter_map(|entry| expand(entry, HOSTS_MAX).ok());
    names.flatten().take(HOSTS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as Slurm 22.05 prints them.
    #[test]
    fn nodes_that_fail_are_known() {
        for (line, nodes) in [
            ("srun: error: n3: task 2: Exited with exit code 1", &["n3"][..]),
            ("srun: error: n[1-2],x: tasks 0-2: Exited with exit code 7", &["n1", "n2", "x"]),
            ("srun: error: n3: task 2: Killed", &["n3"]),
            ("srun: error: Unable to create step for job 7: Invalid job id", &[]),
            ("rdmc: n3: task 2", &[]),
            ("srun: error: n[1-: task 2", &[]),
        ] {
            assert_eq!(failed_nodes(line), nodes, "{line}");
        }
    }
}
