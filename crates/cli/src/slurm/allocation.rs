//! The nodes of a Slurm job.

use std::env;

use super::{scontrol, topology};
use crate::{
    failure::Failure,
    hosts::{HOSTS_MAX, Host, checked, expand, split},
};

/// The variable with the nodes of a job, as a list with ranges.
const NODES: &str = "SLURM_JOB_NODELIST";

/// The nodes of this process's job, in racks if Slurm knows the leaf switches.
///
/// Blocks until `scontrol` has answered, some seconds at most. Errors: not in a job; not a list of nodes.
pub fn hosts() -> Result<Vec<Host>, Failure> {
    let list = env::var(NODES).map_err(|_| {
        Failure::Usage(format!(
            "--slurm works only in a Slurm job (sbatch, salloc), where {NODES} lists the nodes; it is not set here"
        ))
    })?;
    let mut hosts = parse(&list).map_err(|error| Failure::Usage(format!("{NODES}: {error}")))?;
    if let Some(text) = scontrol::topology() {
        let racks = topology::racks(&text);
        hosts.iter_mut().for_each(|host| host.rack = racks.get(&host.name).copied());
    }
    Ok(hosts)
}

fn parse(list: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for entry in split(list)? {
        let names = expand(entry, HOSTS_MAX - hosts.len())?;
        hosts.extend(names.into_iter().map(|name| Host { name, listens: false, rack: None }));
    }
    checked(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists as `scontrol show hostlistsorted` of Slurm 22.05 prints them.
    #[test]
    fn lists_of_nodes_are_expanded() {
        let names = |list: &str| -> Vec<String> {
            parse(list).unwrap().into_iter().map(|host| host.name).collect()
        };
        assert_eq!(names("n1"), ["n1"]);
        assert_eq!(names("n[1-3]"), ["n1", "n2", "n3"]);
        assert_eq!(
            names("gpu-a[001-002,010],login"),
            ["gpu-a001", "gpu-a002", "gpu-a010", "login"]
        );
        assert_eq!(names("r[1-2]n[08-09]"), ["r1n08", "r1n09", "r2n08", "r2n09"]);
        assert!(parse("n[1-").is_err() && parse("").is_err() && parse("--x").is_err());
    }
}
