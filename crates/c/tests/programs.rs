//! Programs in C and C++ that are built against the installed library, outside of the tree.

use std::{
    collections::BTreeSet,
    env, fs,
    path::PathBuf,
    process::{Command, Output},
};

use crate::{
    header::functions_of,
    installed::{DEADLINE, Installed, SECRET, own_ip, programs, run},
};

/// Of compilers, for programs that are run under them.
const SANITIZE: &str = "-fsanitize=address,undefined";
const STRICT: &str = "-fno-sanitize-recover=all";

/// All parts of members.c have run.
fn assert_whole(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let parts = [
        "start",
        "replicate",
        "agree",
        "fail",
        "refuse",
        "regions",
        "teams",
        "callbacks",
        "progress",
    ];
    let expected: String = parts.iter().map(|part| format!("ok {part}\n")).collect();
    assert_eq!(said, expected);
}

#[test]
fn the_library_exports_what_its_header_declares_and_nothing_else() {
    let Some(installed) = Installed::find(&["nm"]) else { return };
    let library = installed.prefix.join("lib/librdmc.so");
    let output = run(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library));
    let text = String::from_utf8(output.stdout).expect("nm prints text");
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect();
    let header = fs::read_to_string(installed.prefix.join("include/rdmc.h")).expect("a header");
    let declared = functions_of(&header);
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn a_program_in_c_is_built_by_pkg_config() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.compile("members.c", &[]);
    assert_whole(&run(&mut installed.command(program)));
}

#[test]
fn a_program_in_c_has_no_error_that_sanitizers_find() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.compile("members.c", &[SANITIZE, STRICT]);
    assert_whole(&run(&mut installed.command(program)));
}

#[test]
fn a_program_in_c_has_no_error_that_valgrind_finds() {
    let Some(installed) = Installed::find(&["cc", "pkg-config", "valgrind"]) else { return };
    let program = installed.compile("members.c", &[]);
    let suppressions = installed.prefix.join("share/rdmc/valgrind.supp");
    let suppressions = format!("--suppressions={}", suppressions.display());
    let leaks = "--errors-for-leak-kinds=definite,indirect";
    let mut valgrind = installed.command("valgrind");
    valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", leaks, &suppressions]);
    assert_whole(&run(valgrind.arg(program).arg("--no-fork")));
}

/// With the stand-in for CUDA's driver: the C interface to memory of GPUs needs none to be tested.
#[test]
fn a_program_in_c_uses_memory_of_devices() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.compile("device.c", &[]);
    let output = run(installed.command(program).arg(driver()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok refuse\nok devices\n");
}

/// The stand-in for CUDA's driver.
fn driver() -> PathBuf {
    let tests = env::current_exe().expect("the tests' own path");
    tests.with_file_name("libtesting_gpu.so")
}

#[test]
fn a_program_in_c_waits_for_descriptors() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.compile("polled.c", &[SANITIZE, STRICT]);
    let output = run(&mut installed.command(program));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "ok replicate\nok receive\nok notice\nok share\nok suspect\nok refuse\n");
}

/// By CMake as it is, and by pkg-config under sanitizers.
#[test]
fn a_program_in_cpp_uses_all_classes() {
    let Some(installed) = Installed::find(&["c++", "cmake", "pkg-config"]) else { return };
    let built = installed.build_by_cmake(&programs(), "classes");
    let checked = installed.compile("classes.cc", &[SANITIZE, STRICT]);
    for program in [built, checked] {
        let output = run(installed.command(program).arg(driver()));
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "ok lend\nok replicate\nok agree\nok devices\n");
    }
}

#[test]
fn a_program_written_to_the_paper_is_built_by_cmake() {
    let Some(installed) = Installed::find(&["c++", "cmake"]) else { return };
    let program = installed.build_by_cmake(&programs(), "paper");
    run(installed.command(program).args([SECRET, &own_ip(), "4"]));
}

/// As pkg-config says: nothing is looked for that is not there, and nothing is missing.
#[test]
fn a_program_in_c_is_linked_without_shared_libraries() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.at("static");
    let mut compiler = Command::new("cc");
    let version = format!("-DRDMC_EXPECTED_VERSION=\"{}\"", env!("CARGO_PKG_VERSION"));
    compiler.args(["-std=c99", "-static", &version]).arg(programs().join("members.c"));
    compiler.args(installed.flags(&["--cflags", "--static", "--libs"]));
    run(compiler.arg("-o").arg(&program));
    assert_whole(&run(Command::new("timeout").arg(DEADLINE).arg(program)));
}
