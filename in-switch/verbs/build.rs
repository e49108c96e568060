//! Compiles the shim against libibverbs' headers, where they are installed. The library itself is
//! opened when a device is, so that one program runs with and without it.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libibverbs)");
    println!("cargo::rerun-if-changed=shim/shim.c");
    println!("cargo::rerun-if-changed=shim/shim.h");
    println!("cargo::rerun-if-env-changed=RDMC_NO_LIBIBVERBS");
    if std::env::var_os("RDMC_NO_LIBIBVERBS").is_some() {
        return;
    }
    let found = pkg_config::Config::new().cargo_metadata(false).probe("libibverbs");
    let Ok(library) = found else {
        println!(
            "cargo::warning=libibverbs was not found (Debian: libibverbs-dev, pkg-config): this build \
             cannot use RDMA devices for groups in switches"
        );
        watch_for_packages();
        return;
    };
    cc::Build::new()
        .file("shim/shim.c")
        .includes(library.include_paths)
        .warnings(true)
        .extra_warnings(true)
        .compile("rdmc_verbs_shim");
    println!("cargo::rustc-cfg=libibverbs");
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
