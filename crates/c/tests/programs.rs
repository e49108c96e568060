//! Programs in C and C++ that are built against the installed library, outside of the tree: `./dev install` has to
//! have put it where `RDMC_PREFIX` says.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// What programs and tests that wait for each other end by; far beyond what they take.
const DEADLINE: &str = "600";

/// The installed library, and a directory for one test.
struct Installed {
    prefix: PathBuf,
    directory: TempDir,
}

impl Installed {
    /// `None`, with words, if it is not installed, or a tool is missing.
    fn find(tools: &[&str]) -> Option<Self> {
        let Some(prefix) = env::var_os("RDMC_PREFIX") else {
            eprintln!(
                "SKIPPED: programs in C and C++: RDMC_PREFIX does not say where librdmc is installed (./dev test does)"
            );
            return None;
        };
        for tool in tools {
            let found = Command::new(tool).arg("--version").output();
            if !found.is_ok_and(|output| output.status.success()) {
                eprintln!("SKIPPED: programs in C and C++: {tool} is not installed");
                return None;
            }
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        Some(Self { prefix: prefix.into(), directory })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Builds a C program with the flags that pkg-config prints, and these.
    fn compile(&self, name: &str, flags: &[&str]) -> PathBuf {
        self.compile_at(&programs().join(name).with_extension("c"), flags)
    }

    /// The same for a source elsewhere.
    fn compile_at(&self, source: &Path, flags: &[&str]) -> PathBuf {
        let program = self.at(source.file_stem().and_then(|name| name.to_str()).expect("a name"));
        let version = format!("-DRDMC_EXPECTED_VERSION=\"{}\"", env!("CARGO_PKG_VERSION"));
        let warnings = ["-std=c99", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"];
        let mut compiler = Command::new("cc");
        compiler.args(warnings).args(flags).arg(version).arg(source);
        compiler.args(self.flags("--cflags")).args(self.flags("--libs")).args(["-pthread", "-ldl"]);
        run(compiler.arg("-o").arg(&program));
        program
    }

    fn flags(&self, which: &str) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args([which, "rdmc"]).env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        let text = String::from_utf8(run(&mut command).stdout).expect("pkg-config prints text");
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// A command that finds the library, and that ends.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("timeout");
        command.arg(DEADLINE).arg(program.as_ref());
        command.env("LD_LIBRARY_PATH", self.prefix.join("lib"));
        command
    }

    /// Builds the C++ programs with CMake, and returns where they are.
    fn build_by_cmake(&self) -> PathBuf {
        let build = self.at("build");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(programs()).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display()));
        run(&mut configure);
        run(Command::new("cmake").arg("--build").arg(&build));
        build
    }
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Runs a command that has to succeed.
fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

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

/// An address of loopback that only this process uses.
fn own_ip() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    std::net::Ipv4Addr::new(127, 64 | (high & 63), middle, low.max(1)).to_string()
}

/// The names in a text that begin with `rdmc_` and are called.
fn functions_of(header: &str) -> BTreeSet<String> {
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let of_line = |line: &str| {
        let name = line.split('(').next()?.rsplit([' ', '*']).next()?;
        (line.contains('(') && name.starts_with("rdmc_")).then(|| name.to_owned())
    };
    code.filter_map(of_line).collect()
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
    let program = installed.compile("members", &[]);
    assert_whole(&run(&mut installed.command(program)));
}

#[test]
fn a_program_in_c_has_no_error_that_address_sanitizer_finds() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.compile("members", &["-fsanitize=address"]);
    assert_whole(&run(&mut installed.command(program)));
}

#[test]
fn a_program_in_c_has_no_error_that_valgrind_finds() {
    let Some(installed) = Installed::find(&["cc", "pkg-config", "valgrind"]) else { return };
    let program = installed.compile("members", &[]);
    let suppressions = format!("--suppressions={}", programs().join("valgrind.supp").display());
    let leaks = "--errors-for-leak-kinds=definite,indirect";
    let mut valgrind = installed.command("valgrind");
    valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", leaks, &suppressions]);
    assert_whole(&run(valgrind.arg(program).arg("--no-fork")));
}

/// The function is compiled as it is in the document, so that programs made from it report the failure of the root.
#[test]
fn the_receiver_of_the_document_fails_if_the_root_dies() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::read_to_string(path).expect("a file of the tree")
    };
    let document = read("../../docs/c.md");
    let receiver = document.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let source = installed.at("receiver.c");
    let whole = read("tests/programs/document.c") + receiver.expect("a program in C");
    fs::write(&source, whole).expect("the source is written");
    let program = installed.compile_at(&source, &[]);
    let ip = own_ip();
    let members = [format!("{ip}:7210"), format!("{ip}:7211")];
    for (dies, more) in [(false, &[][..]), (true, &["dies"])] {
        let mut root = installed.command(&program);
        let mut root = root.arg(SECRET).args(&members).arg("0").args(more).spawn().expect("a root");
        let mut receiver = installed.command(&program);
        let received = receiver.arg(SECRET).args(&members).arg("1").output().expect("it starts");
        let root = root.wait().expect("it ends");
        assert_eq!((root.success(), received.status.success()), (!dies, !dies), "{received:?}");
        assert_eq!(received.stdout, b"hello\n", "{received:?}");
        let said = String::from_utf8_lossy(&received.stderr);
        assert_eq!(said.contains("member 0"), dies, "{said}");
    }
}

/// With the stand-in for CUDA's driver: the C interface to memory of GPUs needs none to be tested.
#[test]
fn a_program_in_c_uses_memory_of_devices() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.compile("device", &[]);
    let tests = env::current_exe().expect("the tests' own path");
    let driver = tests.with_file_name("libtesting_gpu.so");
    let output = run(installed.command(program).arg(driver));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok refuse\nok devices\n");
}

#[test]
fn a_program_written_to_the_paper_is_built_by_cmake() {
    let Some(installed) = Installed::find(&["c++", "cmake"]) else { return };
    let build = installed.build_by_cmake();
    run(installed.command(build.join("paper")).args([SECRET, &own_ip(), "4"]));
}

#[test]
fn the_example_for_launchers_replicates_a_file() {
    let Some(installed) = Installed::find(&["c++", "cmake"]) else { return };
    let (build, ip) = (installed.build_by_cmake(), own_ip());
    let addresses: Vec<String> = (7200..7203).map(|port| format!("{ip}:{port}")).collect();
    let (file, output) = (installed.at("file"), installed.at("copy"));
    let contents: Vec<u8> = (0..3_000_001_u32).map(|at| (at * 7 / 8) as u8).collect();
    fs::write(&file, &contents).expect("the file is written");
    let start = |rank: usize| {
        let mut command = installed.command(build.join("broadcast"));
        command.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("RDMC_SECRET", SECRET);
        command.arg(&file).arg(&output).args(&addresses).spawn().expect("it starts")
    };
    let members: Vec<_> = (0..3).map(start).collect();
    for mut member in members {
        assert!(member.wait().expect("it ends").success());
    }
    for rank in [1, 2] {
        let copy = fs::read(output.with_extension(rank.to_string())).expect("a copy");
        assert!(copy == contents, "the copy of member {rank}");
    }
}

#[test]
fn the_example_without_a_launcher_says_what_is_missing() {
    let Some(installed) = Installed::find(&["c++", "cmake"]) else { return };
    let build = installed.build_by_cmake();
    let mut alone = installed.command(build.join("broadcast"));
    let output = alone.args(["a", "b", "127.0.0.1:0"]).output().expect("it starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no rank in the environment"), "{said}");
}
