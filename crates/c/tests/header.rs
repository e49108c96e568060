//! The committed header is what the sources say.

use std::{fs, path::Path};

#[test]
fn the_header_is_made_of_the_sources() {
    let crate_path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_path.join("cbindgen.toml"))
        .expect("the configuration is valid");
    let made = cbindgen::Builder::new().with_crate(crate_path).with_config(config).generate();
    let mut text = Vec::new();
    made.expect("cbindgen reads the sources").write(&mut text);
    // What Rust calls safety is what a function expects of its arguments.
    let made =
        String::from_utf8(text).expect("UTF-8").replace("// # Safety\n// ", "// Arguments: ");
    // Codes and answers are so many that their own prefix would only be noise.
    let made = made.replace("RDMC_CODE_", "RDMC_").replace("RDMC_ANSWER_", "RDMC_");
    let path = crate_path.join("include/rdmc.h");
    if std::env::var_os("RDMC_WRITE_HEADER").is_some() {
        fs::write(&path, &made).expect("the header is written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/rdmc.h is old: RDMC_WRITE_HEADER=1 cargo test -p rdmc-c header"
    );
}
