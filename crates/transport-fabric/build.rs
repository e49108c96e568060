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
            watch_for_packages();
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

/// Makes cargo run this again once a package was installed: directories change then.
fn watch_for_packages() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let of_target = format!("/usr/lib/{arch}-linux-gnu/pkgconfig");
    let places = ["/usr/bin", "/usr/lib/pkgconfig", "/usr/lib64/pkgconfig", &of_target];
    for place in places.iter().filter(|place| std::path::Path::new(place).is_dir()) {
        println!("cargo::rerun-if-changed={place}");
    }
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
}
