//! Memory that processes share, which libfabric's shm names by their numbers.

use std::{fs, path::PathBuf};

/// The shared memory of a process, by its number.
pub fn shared_memory_of(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let start = format!("{process}:");
    let of_it = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&start));
    of_it.map(|entry| entry.path()).collect()
}

/// Removes what a killed process could not remove; or, for this process before it has any, what one of the same number
/// has left, which would be in the way.
pub fn remove_shared_memory_of(process: u32) {
    shared_memory_of(process).iter().for_each(|path| drop(fs::remove_file(path)));
}
