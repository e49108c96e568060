//! SimGrid as programs that are compiled when they are needed and run one at a time.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{plan::Plan, platform::Platform};
use crate::outcome::Outcome;

const REPLAY: &str = include_str!("simgrid/replay.cpp");
const BCAST: &str = include_str!("simgrid/bcast.c");
const HEADER: &str = "/usr/include/simgrid/s4u.hpp";
/// Plain flow model: max-min fairness, no protocol overhead, and directions of a link are independent.
const MODEL: [&str; 4] = [
    "--cfg=network/model:CM02",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/weight-S:0",
    "--log=root.thres:error",
];

/// The compiled programs, and a directory for what they read and write. Dropping it removes both.
#[derive(Debug)]
pub struct SimGrid {
    directory: TempDir,
}

/// Errors: SimGrid's headers or compilers are not installed, and what to install.
pub fn installed() -> Outcome<()> {
    let runs = |program: &str| {
        Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let missing: Vec<&str> =
        ["c++", "smpicc", "smpirun"].into_iter().filter(|program| !runs(program)).collect();
    if missing.is_empty() && Path::new(HEADER).exists() {
        return Ok(());
    }
    Err(format!(
        "SimGrid is not installed ({} not found); on Debian or Ubuntu: \
         sudo apt-get install libsimgrid-dev g++",
        if missing.is_empty() { HEADER.to_owned() } else { missing.join(", ") }
    )
    .into())
}

impl SimGrid {
    /// Compiles.
    ///
    /// Errors: SimGrid is not installed, or its compilers fail.
    pub fn new() -> Outcome<Self> {
        installed()?;
        let directory = TempDir::with_prefix("rdmc-scale-")?;
        let simgrid = Self { directory };
        simgrid.compile("c++", "replay.cpp", REPLAY, &["-std=c++17", "-lsimgrid"])?;
        simgrid.compile("smpicc", "bcast.c", BCAST, &[])?;
        Ok(simgrid)
    }

    /// When each member has all blocks, in seconds by rank; `None` if simulating takes longer
    /// than `limit`, which ends it.
    ///
    /// `receives` blocks may be in transit to one member at once. Errors: the program fails.
    pub fn replay(
        &self,
        platform: Platform,
        plan: &Plan,
        receives: u32,
        limit: Duration,
    ) -> Outcome<Option<Vec<f64>>> {
        let plan_path = self.directory.path().join("plan");
        let mut file = BufWriter::new(File::create(&plan_path)?);
        plan.write(&mut file)?;
        file.flush()?;
        let mut command = Command::new(self.directory.path().join("replay"));
        command.arg(self.write("platform.xml", &platform.to_xml())?).arg(receives.to_string());
        command
            .args(MODEL)
            .args(["--cfg=network/latency-factor:0", "--cfg=contexts/stack-size:64"]);
        command.stdin(File::open(plan_path)?);
        self.run(command, limit)
    }

    /// The time of `MPI_Bcast` from rank 0 in seconds, as the only element, with the choices of the
    /// MPI library of this name; `None` if simulating takes longer than `limit`. Errors: the program fails.
    pub fn bcast(
        &self,
        platform: Platform,
        bytes: u64,
        selector: &str,
        limit: Duration,
    ) -> Outcome<Option<Vec<f64>>> {
        let hosts: String = (0..platform.members).map(|rank| format!("h{rank}\n")).collect();
        let mut command = Command::new("smpirun");
        command.arg("-np").arg(platform.members.to_string());
        command.arg("-platform").arg(self.write("platform.xml", &platform.to_xml())?);
        command.arg("-hostfile").arg(self.write("hosts", &hosts)?);
        command.args(MODEL);
        command.args([
            "-no-privatize",
            "--cfg=smpi/simulate-computation:no",
            "--cfg=contexts/stack-size:256",
        ]);
        // The members' copies share memory: they are not read.
        command.arg(format!("--cfg=smpi/shared-malloc-blocksize:{bytes}"));
        command.arg(format!("--cfg=smpi/coll-selector:{selector}"));
        command.arg(self.directory.path().join("bcast")).arg(bytes.to_string());
        command.stdin(Stdio::null());
        self.run(command, limit)
    }

    fn compile(&self, compiler: &str, name: &str, source: &str, options: &[&str]) -> Outcome<()> {
        let path = self.write(name, source)?;
        let output = Command::new(compiler)
            .arg("-O2")
            .arg("-o")
            .arg(path.with_extension(""))
            .arg(path)
            .args(options)
            .output()
            .map_err(|error| format!("{compiler}: {error}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{compiler} does not compile {name}: {errors}").into());
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Outcome<std::path::PathBuf> {
        let path = self.directory.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    fn run(&self, mut command: Command, limit: Duration) -> Outcome<Option<Vec<f64>>> {
        let path = |name| self.directory.path().join(name);
        command.current_dir(self.directory.path());
        command.stdout(File::create(path("out"))?).stderr(File::create(path("errors"))?);
        let mut child = command.spawn()?;
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                // Not SIGKILL: smpirun passes a signal on to what it runs, if it can.
                kill_process(Pid::from_child(&child), Signal::TERM)?;
                child.wait()?;
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(5));
        };
        let errors = fs::read_to_string(path("errors"))?;
        if !status.success() {
            return Err(format!("{command:?}: {status}\n{errors}").into());
        }
        times(&fs::read_to_string(path("out"))?)
            .map(Some)
            .map_err(|error| format!("{command:?}: {error}\n{errors}").into())
    }
}

/// The seconds in lines of `rank seconds`, which are in the order of ranks.
fn times(text: &str) -> Outcome<Vec<f64>> {
    let line = |(rank, line): (usize, &str)| {
        let (number, seconds) = line.split_once(' ')?;
        let seconds: f64 = seconds.parse().ok()?;
        (number.parse() == Ok(rank) && seconds >= 0.0 && seconds.is_finite()).then_some(seconds)
    };
    let times: Option<Vec<f64>> = text.lines().enumerate().map(line).collect();
    times
        .filter(|times| !times.is_empty())
        .ok_or_else(|| format!("expected lines of a rank and seconds, not: {text:.200}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_one_for_each_rank() {
        assert_eq!(times("0 0.5\n1 1.25\n").unwrap(), [0.5, 1.25]);
        for wrong in ["", "0", "1 0.5\n", "0 0.5\n0 0.5\n", "0 x\n", "0 -1\n", "0 inf\n"] {
            assert!(times(wrong).is_err(), "{wrong}");
        }
    }
}
