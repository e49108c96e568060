//! Files by MPI, from each host to the next (`tools/bench/peers/mpi_files.c`).

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lab::{Host, Link};

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    peers::{
        mpi::{OPEN_MPI, agent, launch, open_mpi_start, words},
        site::Site,
        turn,
        workspace::{Recipe, Workspace},
    },
};

const RECIPE: Recipe = Recipe {
    source: include_str!("../../peers/mpi_files.c"),
    program: "openmpi_files",
    ..OPEN_MPI
};
/// With which each line that the program prints begins.
const PREFIX: &str = "mpi_files ";

/// The compiled program, and the hosts that it runs on.
pub struct MpiFiles {
    workspace: Workspace,
    site: Site,
    program: PathBuf,
}

impl MpiFiles {
    /// Compiles the program. Errors: what to install.
    pub fn prepare(hosts: Vec<Host>, link: Link) -> Outcome<Self> {
        let workspace = Workspace::open()?;
        let program = workspace.build(&RECIPE)?;
        let site = Site { hosts, device: "eth0", is_lab: true, link: Some(link) };
        Ok(Self { workspace, site, program })
    }

    /// Copies from the first host to directories `prefix` followed by the host's number. Seconds that MPI took to start,
    /// from now.
    ///
    /// Errors: the program fails, hangs or ends early; an interrupt.
    pub fn copy(
        &self,
        source: &Path,
        prefix: &Path,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Outcome<f64> {
        let (site, workspace) = (&self.site, &self.workspace);
        let agent = agent(site, workspace)?;
        let mut line = vec!["mpirun.openmpi".to_owned()];
        line.extend(open_mpi_start(site, agent.as_deref(), workspace, true)?);
        // Members share processors: one that waits yields.
        line.extend(words("--mca mpi_yield_when_idle 1"));
        line.extend(
            [self.program.as_path(), source, prefix].map(|path| path.display().to_string()),
        );
        let environment = vec![("TMPDIR", workspace.path().display().to_string())];
        let launches = [launch(site, line, environment)];
        let (start, mut start_seconds) = (Instant::now(), f64::NAN);
        turn::run(&launches, timeout, interrupt, PREFIX, |line| {
            if line == "mpi_files started" {
                start_seconds = start.elapsed().as_secs_f64();
            }
            Ok(line == "mpi_files copied")
        })?;
        Ok(start_seconds)
    }
}
