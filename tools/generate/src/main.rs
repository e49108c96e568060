//! Generates `in-switch/control/src/proto.rs` from `in-switch/control/proto/`.
//!
//! It is committed, so that building takes neither this program's dependencies nor `protoc`. A test
//! of that crate compares the digest in its first line with that of the files.

use std::{error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let control = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../in-switch/control");
    let proto = control.join("proto");
    let mut files: Vec<_> = fs::read_dir(&proto)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in &files {
        hasher.update(&fs::read(file)?);
    }
    let scratch = std::env::temp_dir().join(format!("rdmc-generate-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let made = make(&files, &proto, &scratch);
    let _ = fs::remove_dir_all(&scratch);
    let text = format!(
        "// Made of proto/ ({}) by `./dev generate`; not to be edited.\n\n{}",
        hasher.finalize(),
        made?
    );
    fs::write(control.join("src/proto.rs"), text)?;
    Ok(())
}

fn make(
    files: &[std::path::PathBuf],
    proto: &Path,
    scratch: &Path,
) -> Result<String, Box<dyn Error>> {
    let described = protox::compile(files, [proto])?;
    tonic_prost_build::configure()
        .out_dir(scratch)
        .message_attribute(".", "#[derive(serde::Serialize)]")
        .enum_attribute(".", "#[derive(serde::Serialize)]")
        .compile_fds(described)?;
    Ok(fs::read_to_string(scratch.join("rdmc.control.v1.rs"))?)
}
