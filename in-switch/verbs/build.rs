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
