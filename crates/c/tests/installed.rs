//! The library as it is installed: `./dev install` has to have put it where `RDMC_PREFIX` says.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// What programs and tests that wait for each other end by; far beyond what they take.
pub(crate) const DEADLINE: &str = "600";

/// The installed library, and a directory for one test.
pub(crate) struct Installed {
    pub(crate) prefix: PathBuf,
    directory: TempDir,
}

impl Installed {
    /// Returns `None`, and prints what is missing, if the library or a tool is not installed.
    pub(crate) fn find(tools: &[&str]) -> Option<Self> {
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

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Builds a program with the flags that pkg-config prints, and these.
    pub(crate) fn compile(&self, name: &str, flags: &[&str]) -> PathBuf {
        self.compile_at(&programs().join(name), flags)
    }

    /// The same for a source elsewhere, in C or C++.
    pub(crate) fn compile_at(&self, source: &Path, flags: &[&str]) -> PathBuf {
        let program = self.at(source.file_stem().and_then(|name| name.to_str()).expect("a name"));
        let version = format!("-DRDMC_EXPECTED_VERSION=\"{}\"", env!("CARGO_PKG_VERSION"));
        let is_c = source.extension().is_some_and(|extension| extension == "c");
        let (compiler, standard) = if is_c { ("cc", "-std=c99") } else { ("c++", "-std=c++17") };
        let mut compiler = Command::new(compiler);
        compiler.args([standard, "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"]).arg(version);
        compiler.args(flags).arg(source).args(self.flags(&["--cflags", "--libs"]));
        run(compiler.args(["-pthread", "-ldl", "-o"]).arg(&program));
        program
    }

    /// What pkg-config prints.
    pub(crate) fn flags(&self, which: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(which).arg("rdmc").env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        let text = String::from_utf8(run(&mut command).stdout).expect("pkg-config prints text");
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// A command that finds the library, and that ends.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("timeout");
        command.arg(DEADLINE).arg(program.as_ref());
        command.env("LD_LIBRARY_PATH", self.prefix.join("lib"));
        command
    }

    /// Builds a program of this project with CMake, and returns its path.
    pub(crate) fn build_by_cmake(&self, project: &Path, program: &str) -> PathBuf {
        let build = self.at("build");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(project).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display()));
        run(&mut configure);
        run(Command::new("cmake").arg("--build").arg(&build).args(["--target", program]));
        build.join(program)
    }
}

/// Where the sources of programs are.
pub(crate) fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Runs a command that has to succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

/// An address of loopback that only this process uses.
pub(crate) fn own_ip() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    std::net::Ipv4Addr::new(127, 64 | (high & 63), middle, low.max(1)).to_string()
}
