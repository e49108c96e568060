//! What measurements and tests of `rdmc push` share: the command, and a file to push.

use std::{
    env,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{interrupt::Interrupt, outcome::Outcome, random::Random};

/// The command, and a directory with a file to push, removed when dropped.
pub struct PushFiles {
    pub rdmc: PathBuf,
    pub object: PathBuf,
    directory: TempDir,
}

impl PushFiles {
    /// Makes the directory in `parent`, and a file without holes, whose contents depend on the seed alone.
    ///
    /// Errors: the command has not been built; an interrupt.
    pub fn create(parent: &Path, bytes: u64, seed: u64, interrupt: &Interrupt) -> Outcome<Self> {
        let rdmc = rdmc_beside(&env::current_exe()?)?;
        fs::create_dir_all(parent)?;
        let directory = tempfile::Builder::new().prefix("rdmc-bench-").tempdir_in(parent)?;
        let object = directory.path().join("object");
        write_object(&object, bytes, seed, interrupt)?;
        Ok(Self { rdmc, object, directory })
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

fn rdmc_beside(program: &Path) -> Outcome<PathBuf> {
    let rdmc = program.with_file_name("rdmc");
    if rdmc.is_file() {
        return Ok(rdmc);
    }
    let name = rdmc.display();
    let remedy = "build it: cargo build --release --locked -p rdmc-cli";
    Err(format!("{name} is missing; {remedy}").into())
}

fn write_object(path: &Path, bytes: u64, seed: u64, interrupt: &Interrupt) -> Outcome<()> {
    let mut file = File::create(path)?;
    let mut random = Random::new(seed);
    let mut chunk = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        interrupt.check()?;
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&random.bits().to_le_bytes());
        }
        let part = left.min(chunk.len() as u64);
        file.write_all(&chunk[..part as usize])?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_is_an_error_with_the_remedy() {
        let error = rdmc_beside(Path::new("/nonexistent/rdmc-bench")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/rdmc is missing") && error.contains("cargo build"));
    }
}
