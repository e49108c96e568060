//! Where members run: on this machine, or on hosts of a lab.

use lab::{Lab, LabSettings};

use crate::{links, member_processes::Host, outcome::Outcome, peers::site::Site};

/// Calls `run` with a place for this many members; a lab is made for it and removed afterwards.
pub fn with_site<T>(
    is_lab: bool,
    members: u32,
    run: impl FnOnce(&Site) -> Outcome<T>,
) -> Outcome<T> {
    if !is_lab {
        let hosts = vec![Host::here(); members as usize];
        return run(&Site { hosts, device: "lo", is_lab });
    }
    let link = links::link(&[], 0, members, false);
    let lab = Lab::create(&LabSettings::new(members, link))?;
    run(&Site { hosts: lab.hosts(), device: "eth0", is_lab })
}
