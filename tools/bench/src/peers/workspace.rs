//! Directories of one run, in which the peers' programs are compiled; removed when the run ends. Their names have the
//! process's number, so that the next run removes those of a killed one.

use std::{
    env, fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use tempfile::TempDir;

use crate::outcome::Outcome;

const PREFIX: &str = "rdmc-peers-";
/// The clocks, contents and lines that all programs of peers share.
const MEASURE: &str = include_str!("../../../compare/peers/measure.h");
/// What programs of collective operations share.
const COLLECTIVES: &str = include_str!("../../../compare/peers/collectives.h");

#[derive(Debug)]
pub struct Workspace {
    directory: TempDir,
    meetings: u32,
}

/// How to compile a peer's program.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub compiler: &'static str,
    /// What has to be installed where something is missing.
    pub packages: &'static str,
    /// `c` or `c++`.
    pub language: &'static str,
    pub source: &'static str,
    pub libraries: &'static [&'static str],
    /// The program's name in the workspace.
    pub program: &'static str,
}

impl Workspace {
    /// An empty one in the system's directory for temporary files.
    pub fn open() -> Outcome<Self> {
        remove_leftovers(&env::temp_dir());
        let directory = fresh_directory(&env::temp_dir())?;
        fs::write(directory.path().join("measure.h"), MEASURE)?;
        fs::write(directory.path().join("collectives.h"), COLLECTIVES)?;
        Ok(Self { directory, meetings: 0 })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A fresh directory in which the members of one turn find each other.
    pub fn meeting(&mut self) -> Outcome<PathBuf> {
        self.meetings += 1;
        let path = self.path().join(format!("meeting-{}", self.meetings));
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// Writes a script that can be run.
    pub fn script(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        let path = self.path().join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Compiles a program, unless that was done before. Errors: what to install.
    pub fn build(&self, recipe: &Recipe) -> Outcome<PathBuf> {
        need(recipe.compiler, recipe.packages)?;
        self.build_by(Path::new(recipe.compiler), recipe)
    }

    /// [`Workspace::build`] by a compiler that is not in the path.
    pub fn build_by(&self, compiler: &Path, recipe: &Recipe) -> Outcome<PathBuf> {
        let program = self.path().join(recipe.program);
        if program.exists() {
            return Ok(program);
        }
        let mut compiler = Command::new(compiler)
            .arg("-I")
            .arg(self.path())
            .args(["-O2", "-x", recipe.language, "-", "-o"])
            .arg(&program)
            .args(recipe.libraries)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = compiler.stdin.take() {
            input.write_all(recipe.source.as_bytes())?;
        }
        let output = compiler.wait_with_output()?;
        if output.status.success() {
            return Ok(program);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
        let (name, packages) = (recipe.program, recipe.packages);
        Err(format!("{name} does not compile ({first}); Debian packages: {packages}").into())
    }
}

/// Removes directories of runs whose process is gone.
fn remove_leftovers(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let owner = rest.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            // Those of other users cannot be removed.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn fresh_directory(place: &Path) -> Outcome<TempDir> {
    let prefix = format!("{PREFIX}{}-", process::id());
    Ok(tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?)
}

/// Errors: this command is missing; which package to install.
pub fn need(command: &str, packages: &str) -> Outcome<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|directory| directory.join(command).is_file()) {
        return Ok(());
    }
    Err(format!("{command} is not installed; Debian packages: {packages}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: Recipe = Recipe {
        compiler: "cc",
        packages: "gcc",
        language: "c",
        source: "#include \"measure.h\"\nint main(void) { report(1, 2, 3, 4, 5); }",
        libraries: &[],
        program: "example",
    };

    #[test]
    fn programs_are_compiled_and_removed_with_the_workspace() {
        let workspace = Workspace::open().unwrap();
        let program = workspace.build(&RECIPE).unwrap();
        let output = Command::new(&program).output().unwrap();
        assert_eq!(output.stdout, b"times 1 2 3 4 5\n");
        drop(workspace);
        assert!(!program.exists());
    }

    #[test]
    fn what_is_missing_is_named() {
        let workspace = Workspace::open().unwrap();
        let missing = Recipe { compiler: "no-such-compiler", ..RECIPE };
        let error = workspace.build(&missing).unwrap_err().to_string();
        assert_eq!(error, "no-such-compiler is not installed; Debian packages: gcc");
        let wrong = Recipe { source: "int main(void) { return nothing; }", ..RECIPE };
        let error = workspace.build(&wrong).unwrap_err().to_string();
        assert!(error.starts_with("example does not compile ("), "{error}");
    }
}
