//! Replays the corpora of fuzz targets in the tests of each crate that has decoders.

use std::{fs, path::Path};

/// Runs a target on its seeds and on each file in its corpus. Seeds are made from real encodings,
/// so the target has to accept them: it answers true for these.
///
/// With `RDMC_WRITE_SEEDS` in the environment, it writes the seeds into the corpus first.
pub fn replay(target: &str, seeds: &[(&str, Vec<u8>)], run: impl Fn(&[u8]) -> bool) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    for (name, seed) in seeds {
        assert!(run(seed), "{target} does not accept its seed {name}");
        if std::env::var_os("RDMC_WRITE_SEEDS").is_some() {
            fs::create_dir_all(&corpus).unwrap();
            fs::write(corpus.join(name), seed).unwrap();
        }
    }
    let entries =
        fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    for file in files {
        // Shown if the test fails: the last file is the cause.
        println!("{}", file.display());
        run(&fs::read(&file).unwrap());
    }
}
