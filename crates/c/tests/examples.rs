//! Examples, and what docs/reference/c.md shows, built and run as they stand.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::installed::{Installed, SECRET, own_ip, run};

/// An example's source.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// A file of the tree, by its path from this crate.
fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(path).expect("a file of the tree")
}

/// The only part of docs/reference/c.md in this language.
fn snippet(language: &str) -> String {
    let (document, start) = (read("../../docs/reference/c.md"), format!("```{language}\n"));
    let parts: Vec<&str> = document.split(&start).skip(1).collect();
    let [part] = parts[..] else { panic!("{} parts in {language}", parts.len()) };
    part.split("```").next().expect("the part ends").to_owned()
}

fn addresses(ports: std::ops::Range<u16>) -> Vec<String> {
    let ip = own_ip();
    ports.map(|port| format!("{ip}:{port}")).collect()
}

/// The function is compiled as it is in the document, so that programs made from it report the failure of the root.
#[test]
fn the_receiver_of_the_document_fails_if_the_root_dies() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let source = installed.at("receiver.c");
    let whole = read("tests/programs/document.c") + &snippet("c");
    fs::write(&source, whole).expect("the source is written");
    let program = installed.compile_at(&source, &[]);
    let members = addresses(7210..7212);
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

#[test]
fn programs_are_built_by_the_lines_of_the_document() {
    let Some(installed) = Installed::find(&["cc", "cmake", "pkg-config"]) else { return };
    let project = installed.at("project");
    fs::create_dir(&project).expect("a directory");
    fs::copy(example("broadcast.c"), project.join("program.c")).expect("a source");
    let lines = snippet("sh");
    let line = lines.lines().find(|line| line.starts_with("cc ")).expect("a line for the compiler");
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(&project);
    run(shell.env("PKG_CONFIG_PATH", installed.prefix.join("lib/pkgconfig")));
    let before = "cmake_minimum_required(VERSION 3.16)\nproject(program C)\nadd_executable(program program.c)\n";
    let lists = before.to_owned() + &snippet("cmake");
    fs::write(project.join("CMakeLists.txt"), lists).expect("the project is written");
    for program in [project.join("a.out"), installed.build_by_cmake(&project, "program")] {
        let output = installed.command(program).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("usage: broadcast"), "{said}");
    }
}

/// In C and in C++: `source` is built, and copies a file as a launcher would start it.
fn replicates_a_file(source: &str, ports: std::ops::Range<u16>) {
    let Some(installed) = Installed::find(&["cc", "c++", "pkg-config"]) else { return };
    let program = installed.compile_at(&example(source), SANITIZE);
    let addresses = addresses(ports);
    let (file, output) = (installed.at("file"), installed.at("copy"));
    let contents: Vec<u8> = (0..3_000_001_u32).map(|at| (at * 7 / 8) as u8).collect();
    fs::write(&file, &contents).expect("the file is written");
    let start = |rank: usize| {
        let mut command = installed.command(&program);
        command.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("RDMC_SECRET", SECRET);
        command.arg(&file).arg(&output).args(&addresses).spawn().expect("it starts")
    };
    let members: Vec<_> = (0..addresses.len()).map(start).collect();
    for mut member in members {
        assert!(member.wait().expect("it ends").success());
    }
    for rank in 1..addresses.len() {
        let copy = fs::read(output.with_extension(rank.to_string())).expect("a copy");
        assert!(copy == contents, "the copy of member {rank}");
    }
    let mut alone = installed.command(&program);
    let output = alone.args(["a", "b", "127.0.0.1:0"]).output().expect("it starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no rank in the environment"), "{said}");
}

/// Each run under sanitizers, too, which end it with a failure.
const SANITIZE: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
fn the_example_in_c_replicates_a_file() {
    replicates_a_file("broadcast.c", 7220..7223);
}

#[test]
fn the_example_in_cpp_replicates_a_file() {
    replicates_a_file("broadcast.cc", 7200..7203);
}

/// All other members print what the root reads from a pipe. If the root is killed, they end with an error that names its rank.
#[test]
fn the_example_with_an_event_loop_copies_its_input() {
    let Some(installed) = Installed::find(&["cc", "pkg-config"]) else { return };
    let program = installed.compile_at(&example("event_loop.c"), SANITIZE);
    let contents: Vec<u8> = (0..1_000_003_u32).map(|at| (at * 7 / 8) as u8).collect();
    for is_killed in [false, true] {
        let addresses = addresses(7230..7233);
        let start = |rank: usize| {
            let mut command = installed.command(&program);
            command.arg(rank.to_string()).args(&addresses).env("RDMC_SECRET", SECRET);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("it starts")
        };
        let receivers = (1..addresses.len()).map(start);
        // What they print is read.
        let receivers: Vec<_> =
            receivers.map(|child| thread::spawn(|| child.wait_with_output())).collect();
        let mut root = start(0);
        let mut input = root.stdin.take().expect("a pipe");
        input.write_all(&contents).expect("the root reads");
        if is_killed {
            // By what runs it with a deadline, which passes the signal on.
            run(Command::new("kill").arg(root.id().to_string()));
            root.wait().expect("it ends");
        }
        drop(input);
        for receiver in receivers {
            let output = receiver.join().expect("a thread").expect("it ends");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), !is_killed, "{said}");
            assert_eq!(said.contains("member 0"), is_killed, "{said}");
            assert!(contents.starts_with(&output.stdout), "it is what the root has read");
            assert!(is_killed || output.stdout.len() == contents.len());
        }
        assert_eq!(root.wait().expect("it ends").success(), !is_killed);
    }
}
