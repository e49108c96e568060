//! Peers beside rdmc, with loads so small that nothing is measured.

use std::{
    os::unix::fs::symlink,
    process::{Command, Output},
};

use serde_json::Value;

fn peers(arguments: &str, path: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"));
    command.arg("peers").args(arguments.split_whitespace());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().expect("the program starts")
}

fn rows(output: &Output) -> Vec<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    json["rows"].as_array().unwrap().clone()
}

/// Every row has figures or a reason; that a peer is not installed is one.
fn expect_figures(rows: &[Value]) {
    for row in rows {
        let name = format!("{}, {}", row["peer"], row["settings"]);
        match row["trouble"].as_str() {
            None => assert!(row["time_s"].as_f64().unwrap() >= 0.0, "{name}"),
            Some(reason) => {
                let is_absent = ["is not installed", "does not compile", "unshare"];
                assert!(is_absent.iter().any(|part| reason.contains(part)), "{name}: {reason}");
                assert!(row["time_s"].is_null(), "{name}");
                eprintln!("SKIPPED: {name}: {reason}");
            }
        }
    }
}

#[test]
fn missing_peers_are_listed_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    // The only program that plain sockets need.
    symlink("/usr/bin/setpriv", directory.path().join("setpriv")).unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments =
        "--local --members 2 --bytes 64KiB --repeats 1 --only openmpi,gloo,copies --json";
    let rows = rows(&peers(arguments, Some(path)));
    let trouble = |peer: &str| {
        let of_peer: Vec<_> = rows.iter().filter(|row| row["peer"] == peer).collect();
        assert!(!of_peer.is_empty(), "{peer}");
        of_peer.iter().map(|row| row["trouble"].clone()).collect::<Vec<_>>()
    };
    for (peer, reason) in [
        (
            "Open MPI",
            "mpirun.openmpi is not installed; Debian packages: openmpi-bin libopenmpi-dev",
        ),
        ("Gloo", "g++ is not installed; Debian packages: g++ libgloo-dev"),
    ] {
        assert!(trouble(peer).iter().all(|trouble| trouble == reason), "{:?}", trouble(peer));
    }
    assert_eq!(trouble("copies, parallel"), [Value::Null]);
}

#[test]
fn installed_peers_take_part_on_one_machine() {
    let rows = rows(&peers("--local --members 3 --bytes 1MiB --repeats 1 --json", None));
    assert_eq!(rows.len(), 15);
    expect_figures(&rows);
    // Peers that are part of this program are never missing.
    for peer in ["rdmc", "copies, parallel", "chain of sockets"] {
        assert!(rows.iter().any(|row| row["peer"] == peer && row["trouble"].is_null()), "{peer}");
    }
}

/// With root: all of them over shaped links. Without: a clear refusal.
#[test]
fn installed_peers_take_part_over_shaped_links() {
    let arguments = "--members 3 --rate 400 --bytes 1MiB --repeats 1 --rdmc chain:64KiB --json";
    let output = peers(arguments, None);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("need root") || errors.contains("iproute2") || errors.contains("netns") {
        eprintln!("SKIPPED: {errors}");
        assert!(!output.status.success());
        return;
    }
    let rows = rows(&output);
    assert_eq!(rows.len(), 11);
    expect_figures(&rows);
    for row in rows.iter().filter(|row| row["trouble"].is_null()) {
        let of_rate = row["of_rate"].as_f64().unwrap();
        assert!((0.0..1.5).contains(&of_rate), "the links are not shaped: {row}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for arguments in [
        "--bytes 7",
        "--bytes 2GiB",
        "--only nobody",
        "--rdmc chain",
        "--rdmc fast:1KiB",
        "--rdmc chain:1KiB:0",
        "--local --rate 100",
        "--local --small-burst",
    ] {
        assert_eq!(peers(arguments, None).status.code(), Some(2), "{arguments}");
    }
}
