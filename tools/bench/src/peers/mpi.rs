//! How programs of Open MPI and MPICH are started, one process on each host.

use std::path::{Path, PathBuf};

use super::{site::Site, turn::Launch, workspace::Workspace};
use crate::{member_processes::Host, outcome::Outcome};

/// The process that starts all members by this command line.
pub fn launch(site: &Site, line: Vec<String>, environment: Vec<(&'static str, String)>) -> Launch {
    // Namespaces of a network share their host's name, by which both MPIs distinguish hosts.
    let (enter, name) = match site.hosts.first() {
        Some(root) if site.is_lab => (root.enter.clone(), "hostname host0; "),
        _ => (Vec::new(), ""),
    };
    let mut arguments = vec!["-c".to_owned(), format!("{name}exec \"$@\""), "sh".to_owned()];
    arguments.extend(line);
    Launch { enter, program: "sh".into(), arguments, environment, has_children: true }
}

/// Options of any program of Open MPI's: where members run, and over what.
pub fn open_mpi_start(
    site: &Site,
    agent: Option<&Path>,
    workspace: &Workspace,
    over_tcp: bool,
) -> Outcome<Vec<String>> {
    let mut options = words("--oversubscribe --bind-to none");
    if rustix::process::geteuid().is_root() {
        options.extend(words("--allow-run-as-root"));
    }
    if over_tcp {
        let device = site.device;
        options.extend(words(&format!("--mca btl tcp,self --mca btl_tcp_if_include {device}")));
    }
    if let Some(agent) = agent {
        let list: String =
            site.hosts.iter().map(|host| format!("{} slots=1\n", host.address)).collect();
        let hosts = workspace.script("openmpi-hosts", &list)?;
        options.extend(words("--mca oob_tcp_if_include eth0 --mca plm_rsh_agent"));
        options.push(agent.display().to_string());
        options.extend(["--hostfile".to_owned(), hosts.display().to_string()]);
    }
    options.extend(["-np".to_owned(), site.hosts.len().to_string()]);
    Ok(options)
}

/// Options of MPICH's starter: where members run.
pub fn hydra_options(site: &Site, agent: Option<&Path>) -> Vec<String> {
    let mut options = Vec::new();
    if let Some(agent) = agent {
        let list: Vec<String> = site.hosts.iter().map(|host| host.address.to_string()).collect();
        options.extend(words("-launcher ssh -iface eth0 -ppn 1 -launcher-exec"));
        options.push(agent.display().to_string());
        options.extend(["-hosts".to_owned(), list.join(",")]);
    } else {
        options.extend(words("-launcher fork"));
    }
    options.extend(["-n".to_owned(), site.hosts.len().to_string()]);
    options
}

/// By default MPICH detects that all hosts are one machine, and uses shared memory.
pub fn mpich_over_tcp(site: &Site) -> [(&'static str, String); 3] {
    [
        ("UCX_TLS", "tcp".to_owned()),
        ("UCX_NET_DEVICES", site.device.to_owned()),
        ("MPIR_CVAR_NOLOCAL", "1".to_owned()),
    ]
}

/// A script that starts a command on a host of the lab, as ssh would; `None` on one machine.
pub fn agent(site: &Site, workspace: &Workspace) -> Outcome<Option<PathBuf>> {
    site.is_lab.then(|| lab_agent(workspace, &site.hosts)).transpose()
}

fn lab_agent(workspace: &Workspace, hosts: &[Host]) -> Outcome<PathBuf> {
    let mut text = String::from(
        "#!/bin/sh\n# AGENT [OPTIONS] ADDRESS COMMAND...\n\
         while [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
         address=$1; shift\ncase $address in\n",
    );
    for (index, host) in hosts.iter().enumerate() {
        text += &format!(
            "{}) exec {} unshare --uts sh -c \"hostname host{index}; $*\" ;;\n",
            host.address,
            host.enter.join(" ")
        );
    }
    text += "*) echo \"no host has the address $address\" >&2; exit 1 ;;\nesac\n";
    workspace.script("agent", &text)
}

pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_enters_the_host_of_the_address() {
        let workspace = Workspace::open().unwrap();
        // `env` stands for a network namespace.
        let host = |last: u8, enter: &[&str]| Host {
            enter: enter.iter().map(ToString::to_string).collect(),
            address: [10, 77, 0, last].into(),
        };
        let hosts = [host(1, &["env", "HERE=first"]), host(2, &["env", "HERE=second"])];
        let agent = lab_agent(&workspace, &hosts).unwrap();
        let text = std::fs::read_to_string(&agent).unwrap();
        // Other names of hosts need root, which this test does not.
        let text = text.replace("unshare --uts ", "").replace("hostname host", "true ");
        let agent = workspace.script("agent-without-names", &text).unwrap();
        let run = |arguments: &[&str]| {
            let output = std::process::Command::new(&agent).args(arguments).output().unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        let answer = run(&["-x", "10.77.0.2", "echo", "\"$HERE\"", "--flag"]);
        assert_eq!(answer, (true, "second --flag\n".to_owned()));
        assert_eq!(run(&["10.77.0.3", "true"]), (false, String::new()));
    }
}
