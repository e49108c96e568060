//! Gloo's broadcast over TCP, one process on each host.

use super::{
    site::{Load, Site},
    turn::Launch,
    workspace::{Recipe, Workspace},
};
use crate::outcome::Outcome;

const RECIPE: Recipe = Recipe {
    compiler: "g++",
    packages: "g++ libgloo-dev",
    language: "c++",
    source: include_str!("../../peers/gloo_bcast.cc"),
    libraries: &["-lgloo", "-pthread"],
    program: "gloo_bcast",
};

/// One process for each member; they meet in a directory. Errors: what to install.
pub fn launches(site: &Site, workspace: &mut Workspace, load: &Load) -> Outcome<Vec<Launch>> {
    let program = workspace.build(&RECIPE)?;
    let meeting = workspace.meeting()?.display().to_string();
    let launch = |(rank, host): (usize, &crate::member_processes::Host)| Launch {
        enter: host.enter.clone(),
        program: program.clone(),
        arguments: vec![
            rank.to_string(),
            site.hosts.len().to_string(),
            host.address.to_string(),
            meeting.clone(),
            load.bytes.to_string(),
            load.repeats.to_string(),
        ],
        environment: Vec::new(),
        has_children: false,
    };
    Ok(site.hosts.iter().enumerate().map(launch).collect())
}
