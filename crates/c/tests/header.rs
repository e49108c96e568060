//! The committed header is what the sources say, and the header for C++ has all of it.

use std::{collections::BTreeSet, fs, path::Path};

/// The names in a header that begin with `rdmc_` and are declared as functions.
pub(crate) fn functions_of(header: &str) -> BTreeSet<String> {
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let of_line = |line: &str| {
        let name = line.split('(').next()?.rsplit([' ', '*']).next()?;
        (line.contains('(') && name.starts_with("rdmc_")).then(|| name.to_owned())
    };
    code.filter_map(of_line).collect()
}

/// What is called or handed over in code, by whole words.
fn words_of(code: &str) -> BTreeSet<&str> {
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

#[test]
fn each_function_has_its_counterpart_in_cpp() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let read = |name: &str| fs::read_to_string(include.join(name)).expect("a header");
    let (c, cpp) = (read("rdmc.h"), read("rdmc.hpp"));
    let (functions, used) = (functions_of(&c), words_of(&cpp));
    assert!(functions.len() > 30, "{functions:?}");
    let missing: Vec<_> = functions.iter().filter(|name| !used.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "rdmc.hpp lacks these functions of rdmc.h: {missing:?}");
    // Callbacks, too: each is assigned where those of a group are made.
    let callbacks = c.split("typedef struct rdmc_callbacks {").nth(1).expect("the callbacks");
    let callbacks = callbacks.split('}').next().expect("their end").lines();
    let names: Vec<_> =
        callbacks.filter_map(|line| line.split("(*").nth(1)?.split(')').next()).collect();
    assert!(names.len() > 5, "{names:?}");
    let missing: Vec<_> =
        names.iter().filter(|name| !cpp.contains(&format!("functions.{name} = "))).collect();
    assert!(missing.is_empty(), "rdmc.hpp lacks these callbacks of rdmc.h: {missing:?}");
}

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
