//! MPIs of Python packages, which are newer than those of the distribution, in virtual environments of one run.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{
    outcome::Outcome,
    peers::workspace::{Workspace, need},
};

/// A Python package, and which versions of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Wheel {
    pub name: &'static str,
    pub versions: &'static str,
}

/// Where a package is installed.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The directory of its programs.
    pub programs: PathBuf,
    pub version: String,
}

/// The packages that were asked for, installed or not.
#[derive(Debug, Default)]
pub struct Wheels(BTreeMap<Wheel, Result<Environment, String>>);

impl Wheels {
    /// Installs a package, unless that was tried before.
    ///
    /// Errors: Python is missing, or the package cannot be had here.
    pub fn get(&mut self, wheel: Wheel, workspace: &Workspace) -> Outcome<Environment> {
        let found = self.0.entry(wheel);
        let install = || install(wheel, workspace).map_err(|error| error.to_string());
        found.or_insert_with(install).clone().map_err(Into::into)
    }

    /// What is installed, with versions.
    pub fn versions(&self) -> Vec<String> {
        let installed =
            self.0.iter().filter_map(|(wheel, found)| Some((wheel, found.as_ref().ok()?)));
        installed.map(|(wheel, found)| format!("{} {}", wheel.name, found.version)).collect()
    }
}

fn install(wheel: Wheel, workspace: &Workspace) -> Outcome<Environment> {
    need("python3", "python3-venv")?;
    let directory = workspace.path().join(format!("python-{}", wheel.name));
    output(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
    let programs = directory.join("bin");
    let requirement = format!("{}=={}", wheel.name, wheel.versions);
    output(
        Command::new(programs.join("pip"))
            .args([
                "install",
                "--quiet",
                "--only-binary=:all:",
                "--timeout",
                "20",
                "--retries",
                "1",
            ])
            .arg(requirement),
    )?;
    let ask = format!("import importlib.metadata as m; print(m.version('{}'))", wheel.name);
    let version = output(Command::new(programs.join("python")).args(["-c", &ask]))?;
    Ok(Environment { programs, version: version.trim().to_owned() })
}

/// Runs a command to its end. Errors: the last line that it writes to its standard error.
fn output(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(format!("cannot be installed: {}", last.trim()).into())
}
