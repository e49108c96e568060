//! The peers that are compared, and their turns.

use std::time::Duration;

use plan::size;
use rdmc::{Algorithm, Fabric};

use super::{
    gloo,
    mpi::{self, Mpi, Mpich, OpenMpi},
    own,
    site::{Load, Site},
    transfer::Way,
    turn::{self, TurnSettings},
    workspace::{Workspace, need},
};
use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::{Measured, MemberProcesses},
    outcome::Outcome,
    sweep::progress,
};

/// Settings of rdmc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rdmc {
    pub algorithm: Algorithm,
    pub block_bytes: u64,
    /// Receives and sends that each member posts ahead; `None`: the library's choice.
    pub window: Option<u32>,
    pub path: Path,
}

/// What blocks move over on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The library's choice: between hosts sockets.
    Usual,
    /// TCP sockets only.
    Sockets,
    /// libfabric's shared memory.
    SharedMemory,
}

impl Rdmc {
    pub fn fabric(&self) -> Fabric {
        if self.path == Path::SharedMemory { Fabric::libfabric("shm") } else { Fabric::Tcp }
    }

    fn settings(&self) -> String {
        let mut text = format!("{}, {}", self.algorithm.name(), size::show(self.block_bytes));
        if let Some(window) = self.window {
            text += &format!(", window {window}");
        }
        text += match self.path {
            Path::Usual => "",
            Path::Sockets => ", sockets",
            Path::SharedMemory => ", libfabric's shared memory",
        };
        text
    }
}

/// A program with certain settings.
#[derive(Clone, Debug)]
pub enum Peer {
    Rdmc(Rdmc),
    Mpi { mpi: Mpi, over_tcp: bool },
    Gloo,
    Own(Way),
}

impl Peer {
    /// Its name for `--only`.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Rdmc(_) => "rdmc",
            Self::Mpi { mpi: Mpi::Open(_), .. } => "openmpi",
            Self::Mpi { mpi: Mpi::Mpich(_), .. } => "mpich",
            Self::Gloo => "gloo",
            Self::Own(Way::Copies) => "copies",
            Self::Own(Way::Chain) => "chain",
            Self::Own(Way::Udpcast) => "udpcast",
            Self::Own(Way::Uftp) => "uftp",
        }
    }

    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rdmc(_) => "rdmc",
            Self::Mpi { mpi: Mpi::Open(_), .. } => "Open MPI",
            Self::Mpi { mpi: Mpi::Mpich(_), .. } => "MPICH",
            Self::Gloo => "Gloo",
            Self::Own(Way::Copies) => "copies, parallel",
            Self::Own(Way::Chain) => "chain of sockets",
            Self::Own(Way::Udpcast) => "udpcast",
            Self::Own(Way::Uftp) => "uftp",
        }
    }

    /// Its settings, for the table.
    pub fn settings(&self) -> String {
        match self {
            Self::Rdmc(rdmc) => rdmc.settings(),
            Self::Mpi { mpi, over_tcp: true } => mpi.settings(),
            Self::Mpi { mpi, over_tcp: false } => format!("{}, shared memory", mpi.settings()),
            Self::Own(Way::Udpcast) => "4 MiB buffers".to_owned(),
            Self::Own(Way::Uftp) => "4 MiB buffers, at the links' rate".to_owned(),
            Self::Gloo | Self::Own(_) => "default".to_owned(),
        }
    }

    fn take_turn(
        &self,
        site: &Site,
        workspace: &mut Workspace,
        load: &Load,
        interrupt: &Interrupt,
    ) -> Outcome<Vec<Measured>> {
        let launches = match self {
            Self::Rdmc(settings) => return rdmc_turn(settings, site, load, interrupt),
            Self::Mpi { mpi, over_tcp } => mpi.launches(site, workspace, load, *over_tcp)?,
            Self::Gloo => gloo::launches(site, workspace, load)?,
            Self::Own(way) => {
                if let Some((program, package)) = way.needs() {
                    need(program, package)?;
                }
                own::launches(*way, site, workspace, load)?
            }
        };
        let members = u32::try_from(site.hosts.len())?;
        let settings =
            TurnSettings { members, repeats: load.repeats, timeout: timeout(site, load) };
        turn::take(&launches, settings, interrupt)
    }
}

fn rdmc_turn(
    settings: &Rdmc,
    site: &Site,
    load: &Load,
    interrupt: &Interrupt,
) -> Outcome<Vec<Measured>> {
    let Rdmc { algorithm, block_bytes, window, .. } = *settings;
    let members = u32::try_from(site.hosts.len())?;
    let job = Job::one(algorithm, block_bytes, load.bytes).in_group(members, window);
    let equipment = Equipment {
        fabric: settings.fabric(),
        through_sockets: settings.path == Path::Sockets,
        ..Equipment::default()
    };
    let mut processes = MemberProcesses::start_with(&site.hosts, interrupt, &equipment)?;
    (0..load.repeats).map(|_| processes.run(&job)).collect()
}

/// Twice what the slowest way takes, copies one after another, and time to start; on one machine
/// at least 100 MB/s in total.
fn timeout(site: &Site, load: &Load) -> Duration {
    let bytes_per_second = site.link.map_or(100e6, |link| link.rate.bits_per_s() as f64 / 8.0);
    let all_bytes = load.bytes as f64 * f64::from(load.repeats) * site.hosts.len() as f64;
    Duration::from_secs_f64(60.0 + 2.0 * all_bytes / bytes_per_second)
}

/// All peers, with settings for this length; over shaped links, or on one machine.
pub fn field(rdmc: &[Rdmc], site: &Site, load: &Load) -> Vec<Peer> {
    let is_large = load.bytes >= 64 << 20;
    let tuned_bytes = if is_large { 128 << 10 } else { 32 << 10 };
    let open = |settings| (Mpi::Open(settings), true);
    let forced = |algorithm| OpenMpi::Forced { algorithm, segment_bytes: tuned_bytes };
    let mut mpis = vec![
        open(OpenMpi::Default),
        open(forced(mpi::Algorithm::Pipeline)),
        open(forced(mpi::Algorithm::Chain)),
        (Mpi::Mpich(Mpich::Default), true),
        (Mpi::Mpich(Mpich::Ring { chunk_bytes: tuned_bytes }), true),
    ];
    if !site.is_lab {
        mpis.extend([
            (Mpi::Open(OpenMpi::Default), false),
            (Mpi::Open(forced(mpi::Algorithm::ScatterAllgather)), false),
            (Mpi::Mpich(Mpich::Default), false),
        ]);
    }
    let mut all: Vec<Peer> = rdmc.iter().copied().map(Peer::Rdmc).collect();
    all.extend(mpis.into_iter().map(|(mpi, over_tcp)| Peer::Mpi { mpi, over_tcp }));
    all.extend([Peer::Gloo, Peer::Own(Way::Copies), Peer::Own(Way::Chain)]);
    if site.is_lab {
        all.extend([Peer::Own(Way::Udpcast), Peer::Own(Way::Uftp)]);
    }
    all
}

#[derive(Debug, Default)]
pub struct PeerResult {
    pub measured: Vec<Measured>,
    /// The error of its last turn, after which it has no more.
    pub trouble: Option<String>,
}

/// Rounds in which each peer has one turn; every second round in the opposite order, so that drift affects all of them
/// equally. A peer that fails is not tried again.
///
/// Errors: an interrupt.
pub fn rounds(
    peers: &[Peer],
    site: &Site,
    workspace: &mut Workspace,
    load: &Load,
    rounds: u32,
    interrupt: &Interrupt,
) -> Outcome<Vec<PeerResult>> {
    let mut results: Vec<PeerResult> = peers.iter().map(|_| PeerResult::default()).collect();
    let total = peers.len() * rounds as usize;
    let name = format!("{} members, {}", site.hosts.len(), size::show(load.bytes));
    for round in 0..rounds as usize {
        for position in 0..peers.len() {
            let last = peers.len() - 1;
            let index = if round % 2 == 0 { position } else { last - position };
            progress(&name, round * peers.len() + position + 1, total);
            let result = &mut results[index];
            if result.trouble.is_some() {
                continue;
            }
            match peers[index].take_turn(site, workspace, load, interrupt) {
                Ok(measured) => result.measured.extend(measured),
                Err(error) => {
                    interrupt.check()?;
                    result.trouble = Some(error.to_string());
                }
            }
        }
    }
    Ok(results)
}
