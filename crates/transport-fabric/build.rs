//! Compiles the shim against libfabric's headers, where they are installed. The library itself is
//! not linked but opened when a fabric is started, so that one program runs with and without it.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libfabric)");
    println!("cargo::rerun-if-changed=shim/shim.c");
    println!("cargo::rerun-if-changed=shim/offload.c");
    println!("cargo::rerun-if-changed=shim/shim.h");
    println!("cargo::rerun-if-env-changed=RDMC_NO_LIBFABRIC");
    if std::env::var_os("RDMC_NO_LIBFABRIC").is_some() {
        return;
    }
    let found =
        pkg_config::Config::new().atleast_version("1.17").cargo_metadata(false).probe("libfabric");
    let library = match found {
        Ok(library) => library,
        Err(_) => {
            println!(
                "cargo::warning=libfabric 1.17 or later was not found (Debian: libfabric-dev, \
                 pkg-config): this build runs over TCP alone"
            );
            return;
        }
    };
    cc::Build::new()
        .file("shim/shim.c")
        .file("shim/offload.c")
        .includes(library.include_paths)
        .warnings(true)
        .extra_warnings(true)
        .compile("rdmc_fabric_shim");
    println!("cargo::rustc-cfg=libfabric");
}
