//! Generates the messages and stubs of `proto/`, without protoc.

use std::{error::Error, path::PathBuf};

const FILES: [&str; 2] = ["host.proto", "switch.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure()
        .out_dir(out)
        .message_attribute(".", "#[derive(serde::Serialize)]")
        .enum_attribute(".", "#[derive(serde::Serialize)]")
        .compile_fds(descriptors)?;
    Ok(())
}
