//! `rdmc-bench collectives` with loads so small that nothing is measured.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Output},
};

use serde_json::Value;

fn collectives(arguments: &str, path: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"));
    command.arg("collectives").args(arguments.split_whitespace());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().expect("the program starts")
}

fn json_of(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rows<'a>(json: &'a Value, table: &str) -> &'a [Value] {
    json[table].as_array().expect("rows")
}

/// Members as processes; each checks its results.
#[test]
fn teams_and_send_receive_take_part() {
    let arguments = "--parts peers --only rdmc,two-sided --fabric tcp --members 2,5 --bytes 4,64KiB \
                     --turns 2 --budget-ms 1 --json";
    let json = json_of(&collectives(arguments, None));
    assert_eq!(rows(&json, "rows").len(), 3 * 2 * 2);
    for row in rows(&json, "rows") {
        assert!(
            row["4_B"].as_f64().unwrap() > 0.0 && row["64_KiB"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    let all = rows(&json, "all");
    assert_eq!(all.len(), 2 * 2 * 2 * 2);
    for row in all {
        let us = |name: &str| row[name].as_f64().unwrap();
        assert!(us("min_us") <= us("average_us") && us("average_us") <= us("max_us"), "{row}");
        assert!(us("p50_us") <= us("p99_us") && us("leaf_us") > 0.0, "{row}");
        assert!(row["repeats"].as_u64().unwrap() >= 2 * 3, "{row}");
    }
    assert!(json["missing"].is_null(), "{json}");
}

/// The simulated teams show what the paper has found, whatever this machine does.
#[test]
fn figures_have_the_papers_conclusions_in_the_simulated_network() {
    let json =
        json_of(&collectives("--parts figures,time --short --fabric tcp --many 32 --json", None));
    let simulated = |row: &&Value| row["source"] == "simulated";
    for row in rows(&json, "fig11").iter().filter(simulated) {
        let best = match row["bytes"].as_u64().unwrap() {
            0..=1024 => 3,
            2048.. => 1,
            // The degrees are nearly equal there.
            _ => continue,
        };
        assert_eq!(row["best"], best, "{row}");
    }
    for row in rows(&json, "fig12").iter().filter(simulated) {
        let gain = row["gain_of_best"].as_f64().unwrap();
        assert!(gain > 0.0 || row["bytes"].as_u64().unwrap() > 1024, "{row}");
    }
    for row in rows(&json, "model_errors").iter().filter(simulated) {
        assert!(row["mean_size"].as_f64().unwrap() < 0.15, "{row}");
    }
    for (figure, count) in [("fig6_7", 2), ("fig9_10", 1), ("fig13_14", 1), ("fig11", 6)] {
        assert_eq!(rows(&json, figure).len(), count * 10, "{figure}");
    }
    let layers = rows(&json, "layers");
    assert_eq!(layers.len(), 5);
    assert!(layers.iter().all(|row| row["time_us"].as_f64().unwrap() > 0.0));
    let team = &layers[3];
    assert!(team["writes"].as_f64().unwrap() > 0.0, "{team}");
}

/// Over shm, if libfabric has it here, by processes.
#[test]
fn layers_over_a_fabric_are_measured() {
    let json = json_of(&collectives("--parts time --short --fabric shm --json", None));
    assert!(json["layers"].is_null(), "TCP was not asked for: {json}");
    let all = rows(&json, "layers_over_fabrics");
    assert!(all.iter().all(|row| row["least_us"].as_f64().unwrap() > 0.0), "{all:?}");
    // What does not work here is in a note each, with the reason.
    let notes = json["notes"].as_array().unwrap();
    let missing = notes.iter().filter(|note| note.as_str().unwrap().starts_with("shm, ")).count();
    assert_eq!(all.len() + missing, 10, "{json}");
    let has = |layer: &str| all.iter().any(|row| row["layer"].as_str().unwrap().starts_with(layer));
    assert!(has("memory"), "{json}");
    if !has("transport-fabric: a write, reported") {
        eprintln!("SKIPPED: libfabric has no shm here: {notes:?}");
        return;
    }
    assert!(has("team: an allreduce, by reports") && has("rdmc: an allreduce"), "{json}");
}

#[test]
fn missing_peers_are_listed_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    symlink("/usr/bin/setpriv", directory.path().join("setpriv")).unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments =
        "--parts peers --only openmpi4,mpich5,gloo --members 2 --bytes 4 --turns 1 --json";
    let json = json_of(&collectives(arguments, Some(path)));
    let missing = rows(&json, "missing");
    for (program, reason) in [
        (
            "Open MPI 4",
            "mpirun.openmpi is not installed; Debian packages: openmpi-bin libopenmpi-dev",
        ),
        ("MPICH 5", "python3 is not installed; Debian packages: python3-venv"),
        ("Gloo", "g++ is not installed; Debian packages: g++ libgloo-dev"),
    ] {
        let of_program: Vec<&Value> =
            missing.iter().filter(|row| row["program"] == program).collect();
        assert!(!of_program.is_empty(), "{program}");
        assert!(of_program.iter().all(|row| row["reason"] == reason), "{of_program:?}");
    }
    assert!(rows(&json, "rows").is_empty());
}

#[test]
fn invalid_arguments_are_refused() {
    for arguments in [
        "--bytes 6",
        "--bytes 32MiB",
        "--members 1",
        "--only nobody",
        "--parts fast",
        "--short --turns 2",
    ] {
        assert_eq!(collectives(arguments, None).status.code(), Some(2), "{arguments}");
    }
}
