//! The programs that are measured, and how their members are started.

use std::path::Path;

use clap::ValueEnum;
use rdmc::Secret;

use super::work::Work;
use crate::{
    collectives::SECRET,
    outcome::Outcome,
    peers::{
        mpi::{agent, launch, open_mpi_start, words},
        site::Site,
        turn::Launch,
        workspace::{Workspace, need},
    },
};

/// What members in Python, or in Rust, use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Way {
    /// `rdmc.Group` over TCP
    Rdmc,
    /// The same with the protection that it has if nothing is said
    RdmcDefault,
    /// `rdmc.Group` over shared memory, which takes libfabric
    RdmcShared,
    /// A team of the library, in Rust
    Rust,
    /// torch.distributed
    Gloo,
    /// mpi4py over TCP
    Mpi,
    /// mpi4py over shared memory
    MpiShared,
}

impl Way {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdmc | Self::RdmcShared => "rdmc",
            Self::RdmcDefault => "rdmc, default protection",
            Self::Rust => "rdmc in Rust",
            Self::Gloo => "torch.distributed, gloo",
            Self::Mpi | Self::MpiShared => "mpi4py, Open MPI",
        }
    }

    /// What it communicates over.
    pub fn network(self) -> &'static str {
        match self {
            Self::RdmcShared | Self::MpiShared => "shared memory",
            Self::Rdmc | Self::RdmcDefault | Self::Rust | Self::Gloo | Self::Mpi => "tcp",
        }
    }

    /// The modules that Python needs for it, and their Debian packages.
    pub fn needs(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Rust => None,
            Self::Rdmc | Self::RdmcDefault | Self::RdmcShared => {
                Some(("rdmc, numpy", "python3-numpy, and a wheel of rdmc"))
            }
            Self::Gloo => Some(("torch.distributed, numpy", "python3-torch python3-numpy")),
            Self::Mpi | Self::MpiShared => {
                Some(("mpi4py.MPI, numpy", "python3-mpi4py python3-numpy openmpi-bin"))
            }
        }
    }

    /// The processes of a turn. Errors: what to install.
    pub fn launches(
        self,
        python: &Path,
        site: &Site,
        workspace: &mut Workspace,
        works: &[Work],
    ) -> Outcome<Vec<Launch>> {
        let meeting = workspace.meeting()?.display().to_string();
        let texts: Vec<String> = works.iter().map(ToString::to_string).collect();
        let script = workspace.script("python_member.py", SCRIPT)?.display().to_string();
        let words_of = |rank: usize| {
            let address = site.hosts[rank].address.to_string();
            let members = site.hosts.len().to_string();
            let own = [rank.to_string(), members, address, meeting.clone()];
            own.into_iter().chain(texts.clone()).collect::<Vec<_>>()
        };
        if matches!(self, Self::Mpi | Self::MpiShared) {
            return self.by_mpi(python, site, workspace, (script, words_of(0)));
        }
        let secret = Secret::random()?.to_hex().to_string();
        let launch = |rank: usize| {
            let (program, first) = match self {
                Self::Rust => (std::env::current_exe()?, vec!["python-member".to_owned()]),
                of_python => {
                    (python.to_owned(), vec![script.clone(), of_python.program().to_owned()])
                }
            };
            let arguments = first.into_iter().chain(words_of(rank)).collect();
            let environment =
                vec![(SECRET, secret.clone()), ("GLOO_SOCKET_IFNAME", site.device.to_owned())];
            let enter = site.hosts[rank].enter.clone();
            Ok(Launch { enter, program, arguments, environment, has_children: false })
        };
        (0..site.hosts.len()).map(launch).collect()
    }

    /// What the script calls it.
    fn program(self) -> &'static str {
        match self {
            Self::Rdmc | Self::Rust => "rdmc",
            Self::RdmcDefault => "rdmc-default",
            Self::RdmcShared => "rdmc-shared",
            Self::Gloo => "gloo",
            Self::Mpi | Self::MpiShared => "mpi",
        }
    }

    /// One process, which starts all members.
    fn by_mpi(
        self,
        python: &Path,
        site: &Site,
        workspace: &mut Workspace,
        (script, arguments): (String, Vec<String>),
    ) -> Outcome<Vec<Launch>> {
        need("mpirun.openmpi", "openmpi-bin")?;
        let environment = vec![("TMPDIR", workspace.meeting()?.display().to_string())];
        let agent = agent(site, workspace)?;
        let mut line = vec!["mpirun.openmpi".to_owned()];
        line.extend(open_mpi_start(site, agent.as_deref(), workspace, self == Self::Mpi)?);
        // Members share processors: one that waits yields.
        line.extend(words("--mca mpi_yield_when_idle 1"));
        line.extend([python.display().to_string(), script, self.program().to_owned()]);
        line.extend(arguments);
        Ok(vec![launch(site, line, environment)])
    }
}

const SCRIPT: &str = include_str!("../../peers/python_member.py");
