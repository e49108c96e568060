//! The examples as programs, each member a process.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const SECRET: &str = "4242424242424242424242424242424242424242424242424242424242424242";

/// An example's program; `None`, and says so, where only the tests were built.
fn example(name: &str) -> Option<PathBuf> {
    let tests = env::current_exe().expect("this program's path");
    let built = tests.parent().and_then(Path::parent).expect("the folder of programs");
    let program = built.join("examples").join(name);
    if !program.is_file() {
        println!("SKIPPED: the example {name} is not built: cargo build -p rdmc --examples");
        return None;
    }
    Some(program)
}

/// Addresses on loopback that were free a moment ago.
fn members(count: usize) -> Vec<String> {
    let bind = |_| TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let listeners: Vec<TcpListener> = (0..count).map(bind).collect();
    let address = |listener: &TcpListener| listener.local_addr().expect("an address").to_string();
    listeners.iter().map(address).collect()
}

fn start(program: &Path, arguments: &[&str], members: &[String]) -> Child {
    Command::new(program)
        .args(arguments)
        .args(members)
        .env("RDMC_SECRET", SECRET)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example starts")
}

/// What it printed. Panics if it failed.
fn output(child: Child) -> String {
    let output = child.wait_with_output().expect("the example ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_file_is_replicated() {
    let Some(program) = example("broadcast") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    let contents: Vec<u8> = (0..3_000_000_u32).map(|index| ((index * 31) >> 3) as u8).collect();
    fs::write(path("file"), &contents).expect("a file");
    let members = members(3);
    let receivers =
        ["1", "2"].map(|rank| start(&program, &["receive", rank, &path(rank)], &members));
    output(start(&program, &["send", &path("file")], &members));
    for (receiver, rank) in receivers.into_iter().zip(["1", "2"]) {
        assert!(output(receiver).contains("3000000 bytes"));
        assert_eq!(fs::read(path(rank)).expect("a copy"), contents);
    }
}

#[test]
fn counts_of_processes_are_added_up() {
    let Some(program) = example("histogram") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let members = members(3);
    let mut processes = Vec::new();
    for rank in 0..3_u8 {
        let file = place.path().join(rank.to_string()).display().to_string();
        fs::write(&file, vec![b'a' + rank; 100 * usize::from(rank + 1)]).expect("a file");
        processes.push(start(&program, &[&file, &rank.to_string()], &members));
    }
    for process in processes {
        assert!(output(process).contains("600 bytes, 300 times 0x63"));
    }
}
