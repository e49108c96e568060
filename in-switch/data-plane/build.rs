//! Compiles the program for the kernel if there is a clang that can. Otherwise the build has the switch in
//! userspace alone.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(ebpf)");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=RDMC_NO_EBPF");
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("RDMC_NO_EBPF").is_some() {
        return;
    }
    let Some(directory) = env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut command = Command::new(clang);
    command.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // Debian keeps the headers that depend on the machine apart.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command.arg(format!("-I/usr/include/{machine}-linux-gnu"));
    command.args(["-c", "bpf/mcrdma.bpf.c", "-o"]).arg(directory.join("mcrdma.bpf.o"));
    match command.output() {
        Ok(output) if output.status.success() => println!("cargo::rustc-cfg=ebpf"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or_default();
            missing(&format!("clang could not compile the program for the kernel ({first})"));
        }
        Err(error) => missing(&format!("clang could not be started ({error})")),
    }
}

fn missing(why: &str) {
    // Directories change when a package is installed: cargo then runs this again.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let of_target = format!("/usr/lib/{machine}-linux-gnu/pkgconfig");
    for place in ["/usr/bin", &of_target].iter().filter(|place| Path::new(place).is_dir()) {
        println!("cargo::rerun-if-changed={place}");
    }
    println!(
        "cargo::warning={why}: this build has no switch in the kernel, only the one in userspace \
         (Debian: clang, libbpf-dev)"
    );
}
