//! What measurements and tests of `rdmc push` begin with: the command, and a file to push.

use std::{
    env,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use crate::{interrupt::Interrupt, outcome::Outcome, random::Random};

/// The command, where this program is. Errors: it has not been built.
pub fn rdmc_beside_this() -> Outcome<PathBuf> {
    let rdmc = env::current_exe()?.with_file_name("rdmc");
    if rdmc.is_file() {
        return Ok(rdmc);
    }
    let name = rdmc.display();
    let remedy = "build it: cargo build --release --locked -p rdmc-cli";
    Err(format!("{name} is missing; {remedy}").into())
}

/// Writes a file without holes, whose bytes are the same for the same seed. Errors: an interrupt.
pub fn write_object(path: &Path, bytes: u64, seed: u64, interrupt: &Interrupt) -> Outcome<()> {
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
