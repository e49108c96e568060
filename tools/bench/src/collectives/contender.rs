//! The programs that are compared, and how each is started.

use std::path::Path;

use clap::ValueEnum;
use rdmc::{Fabric, Secret};

use super::{
    bare_memory,
    cell::{Cell, Task, list},
    group::Way,
    mpi::{Mpi, Tuning},
    team_member::SECRET,
    wheels::Wheels,
};
use crate::{
    outcome::Outcome,
    peers::{
        site::Site,
        turn::Launch,
        workspace::{Recipe, Workspace},
    },
};

const GLOO: Recipe = Recipe {
    compiler: "g++",
    packages: "g++ libgloo-dev",
    language: "c++",
    source: include_str!("../../../compare/peers/gloo_collectives.cc"),
    libraries: &["-lgloo", "-pthread"],
    program: "gloo_collectives",
};

/// Settings of a team; `None`: the library's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeamOptions {
    pub fabric: Fabric,
    /// Over TCP, also within a machine.
    pub through_sockets: bool,
    pub degree: Option<u32>,
    pub slot_bytes: Option<u32>,
}

/// A program with its settings.
#[derive(Clone, Debug)]
pub enum Contender {
    Team(TeamOptions),
    TwoSided,
    BareMemory,
    Mpi { mpi: &'static Mpi, tuning: Tuning, over_tcp: bool },
    Gloo { algorithm: &'static str },
}

/// Where programs are built, and what was installed for them.
pub struct Tools {
    pub workspace: Workspace,
    pub wheels: Wheels,
}

impl Contender {
    /// Its name for `--only`.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Team(_) => "rdmc",
            Self::TwoSided => "two-sided",
            Self::BareMemory => "bare-memory",
            Self::Mpi { mpi, .. } => mpi.key,
            Self::Gloo { .. } => "gloo",
        }
    }

    /// Its name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Team(_) => "rdmc",
            Self::TwoSided => "send/receive",
            Self::BareMemory => "bare memory",
            Self::Mpi { mpi, .. } => mpi.name,
            Self::Gloo { .. } => "Gloo",
        }
    }

    /// Whether its members are processes of this program.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Team(_) | Self::TwoSided | Self::BareMemory)
    }

    pub fn settings(&self) -> String {
        match self {
            Self::Team(options) => {
                let degree = options.degree.map(|degree| format!("degree {degree}"));
                let slots = options.slot_bytes.map(|bytes| format!("slots of {bytes} B"));
                let all: Vec<String> = degree.into_iter().chain(slots).collect();
                if all.is_empty() { "default".to_owned() } else { all.join(", ") }
            }
            Self::TwoSided => "binomial".to_owned(),
            Self::BareMemory => "loads and stores".to_owned(),
            Self::Mpi { tuning, .. } => tuning.name.to_owned(),
            Self::Gloo { algorithm } => (*algorithm).to_owned(),
        }
    }

    /// What it communicates over.
    pub fn network(&self) -> String {
        match self {
            Self::Team(options) => {
                match (options.fabric.name().as_str(), options.through_sockets) {
                    ("tcp", false) => "shared memory".to_owned(),
                    ("shm", _) => "shared memory by libfabric".to_owned(),
                    (other, _) => other.to_owned(),
                }
            }
            Self::BareMemory | Self::Mpi { over_tcp: false, .. } => "shared memory".to_owned(),
            _ => "tcp".to_owned(),
        }
    }

    /// Whether it is tried for this length.
    pub fn takes(&self, cell: Cell) -> bool {
        match self {
            Self::Mpi { tuning, .. } => tuning.bytes.contains(&cell.bytes),
            Self::BareMemory => cell.bytes == bare_memory::BYTES,
            _ => true,
        }
    }

    /// The processes that run these cells. Errors: what to install.
    pub fn launches(
        &self,
        site: &Site,
        tools: &mut Tools,
        task: &Task<'_>,
    ) -> Outcome<Vec<Launch>> {
        match self {
            Self::Team(options) => members(Way::Team, options, site, tools, task),
            Self::TwoSided => members(Way::TwoSided, &TeamOptions::default(), site, tools, task),
            Self::BareMemory => {
                members(Way::BareMemory, &TeamOptions::default(), site, tools, task)
            }
            Self::Mpi { mpi, tuning, over_tcp } => {
                let Tools { workspace, wheels } = tools;
                mpi.launches(tuning, site, workspace, wheels, *over_tcp, task.words())
            }
            Self::Gloo { algorithm } => {
                let program = tools.workspace.build(&GLOO)?;
                let meeting = tools.workspace.meeting()?.display().to_string();
                Ok(each_member(&program, site, |rank, address| {
                    let own = [rank.to_string(), site.hosts.len().to_string(), address];
                    let last = [meeting.clone(), (*algorithm).to_owned()];
                    task.words().into_iter().chain(own).chain(last).collect()
                }))
            }
        }
    }
}

/// One process of this program for each member; they meet in a directory.
fn members(
    way: Way,
    options: &TeamOptions,
    site: &Site,
    tools: &mut Tools,
    task: &Task<'_>,
) -> Outcome<Vec<Launch>> {
    let meeting = tools.workspace.meeting()?.display().to_string();
    let way = way.to_possible_value().ok_or("no such way")?.get_name().to_owned();
    let program = std::env::current_exe()?;
    let mut launches = each_member(&program, site, |rank, address| {
        let mut pairs = vec![
            ("--way", way.clone()),
            ("--rank", rank.to_string()),
            ("--members", site.hosts.len().to_string()),
            ("--address", address),
            ("--meeting", meeting.clone()),
            ("--cells", list(task.cells)),
            ("--warm-up", task.rule.warm_up.to_string()),
            ("--budget-us", task.rule.budget_us.to_string()),
            ("--repeats-min", task.rule.repeats_min.to_string()),
            ("--repeats-max", task.rule.repeats_max.to_string()),
            ("--fabric", options.fabric.to_string()),
        ];
        pairs.extend(task.barrier.as_ref().map(|path| ("--barrier", path.display().to_string())));
        pairs.extend(options.degree.map(|degree| ("--degree", degree.to_string())));
        pairs.extend(options.slot_bytes.map(|bytes| ("--slot-bytes", bytes.to_string())));
        let words = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let through_sockets = options.through_sockets.then(|| "--through-sockets".to_owned());
        let command = ["collective-member".to_owned()].into_iter();
        command.chain(words).chain(through_sockets).collect()
    });
    let secret = Secret::random()?.to_hex();
    for launch in &mut launches {
        launch.environment.push((SECRET, secret.to_string()));
    }
    Ok(launches)
}

/// A process of a program on each host, with arguments by its rank and its address.
fn each_member(
    program: &Path,
    site: &Site,
    arguments: impl Fn(usize, String) -> Vec<String>,
) -> Vec<Launch> {
    let launch = |(rank, host): (usize, &crate::member_processes::Host)| Launch {
        enter: host.enter.clone(),
        program: program.to_owned(),
        arguments: arguments(rank, host.address.to_string()),
        environment: Vec::new(),
        has_children: false,
    };
    site.hosts.iter().enumerate().map(launch).collect()
}
